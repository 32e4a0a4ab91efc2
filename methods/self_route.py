"""Self-Route: read k passages first, and the whole document only if they do not answer the question.

Li et al. 2024 (arXiv 2407.16833): step 1 ("RAG-and-Route") is retrieval as usual, with the prompt's
permission to decline ("unanswerable"); only questions that the model declines go on to step 2, the full
context. Where most questions end after step 1, the mean cost is near that of retrieval.

The permission is one sentence behind the question, whatever the prompt, and not the paper's  # our choice
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from bench.method import Geometry, Meter, Method, ModelSet, charged, current_meter
from bench.method.ranking import RankedChunks
from bench.schema import Index, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig

DECLINED = "unanswerable"
PERMISSION = f"If the information does not answer this, write only: {DECLINED}"


class SelfRouteConfig(OverRankerConfig):
    """The first step's ranking, whose k=5 is ours (Top-5 of PECAN's Table 1), and the second's limit."""

    max_tokens: Annotated[int, Field(ge=64)] | Literal["window"] | None = Field(
        None, description="most tokens of the second step, as max_tokens of full_context"
    )


@dataclass(frozen=True)
class _Ranked(RankedChunks):
    """A ranking, and the second step, which is the same for every choice of passages."""

    whole: list[tuple[Prediction, Meter]] = field(default_factory=list)
    """At most one."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SelfRoute(OverRanker[SelfRouteConfig]):
    """Passages first, everything if they do not suffice."""

    name = "self_route"
    version = "4"
    summary = "read k passages, and everything only if the reader declines to answer from them"
    paper = "Li et al. 2024 (arXiv 2407.16833)"
    Config = SelfRouteConfig

    def __init__(self, config: SelfRouteConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options, and make the ranker and the method that reads everything."""
        super().__init__(config, geometry, seed)
        whole = FullContextConfig(max_tokens=config.max_tokens, prompt=config.prompt)
        self.whole = FullContext(whole, geometry, seed)

    def inner(self) -> Sequence[Method[Any]]:
        """The ranker, and the method that reads everything."""
        return (*super().inner(), self.whole)

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """As the ranker ranks."""
        return _Ranked(**vars(await super().rank(index, question, models)))

    async def read_picked(
        self, ranked: RankedChunks, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The answer from the passages, or from everything where the reader declines; both are paid for."""
        template = question.longbench_prompt
        if template and "{input}" not in template:  # that of a set without questions
            template = f"{template}\n{PERMISSION}"
        allowed = replace(question, text=f"{question.text}\n{PERMISSION}", longbench_prompt=template)
        answer = await super().read_picked(ranked, positions, allowed, models)
        if DECLINED not in answer.text.lower():
            return answer
        assert isinstance(ranked, _Ranked), "of rank()"
        async with ranked.lock:
            if ranked.whole:
                current_meter().add(ranked.whole[0][1])
            else:
                with charged() as reading:
                    ranked.whole.append((await self.whole.answer(Index(), question, models), reading))
        whole, _ = ranked.whole[0]
        return replace(whole, flags=tuple(dict.fromkeys((*ranked.flags, *whole.flags, "read_everything"))))
