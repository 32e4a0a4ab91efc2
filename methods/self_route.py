"""Self-Route: read k passages first, and the whole document only if they do not answer the question.

Li et al. 2024 (arXiv 2407.16833): step 1 ("RAG-and-Route") is retrieval as usual, with the prompt's
permission to decline ("unanswerable"); only questions that the model declines go on to step 2, the full
context. Where most questions end after step 1, the mean cost is near that of retrieval.

``decline=p_yes`` is a variant of ours: the reader is asked whether the passages suffice, and the whole
document is read where its probability of Yes is below ``t``. The answer follows in the same conversation, so
that the passages are forwarded once. The probability does not depend on ``t``, so a sweep asks once.

Prompts are not the paper's  # our choice: the permission is one sentence behind the question, whatever the
prompt; whether passages suffice is asked in PECAN's words (its Table A2), which the shipped readers know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bench.method import DEFAULT_PROMPT, Geometry, Meter, Method, ModelSet, Replayed, Role, fits, passages
from bench.method.ranking import RankedChunks
from bench.schema import Index, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from methods.pecan.prompts import PECAN_CHOICES, PECAN_NODE, pecan_search_head, pecan_second_turn
from methods.pecan.search import charged
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig

DECLINED = "unanswerable"
PERMISSION = f"If the information does not answer this, write only: {DECLINED}"
YES = PECAN_CHOICES[0]


class SelfRouteConfig(OverRankerConfig):
    """The first step's ranking, whose k=5 is ours (Top-5 of PECAN's Table 1), and when the second follows."""

    decline: Literal["word", "p_yes"] = Field(
        "word",
        description="what leads to the whole document: the answer 'unanswerable' (the paper), or a "
        "probability below t that the passages suffice",
    )
    t: float = Field(
        0.5, ge=0, le=1, description="with decline=p_yes: least probability of Yes to answer from passages"
    )  # our choice: Yes is as likely as No
    second_turn: Literal["paper", "restated"] = Field(
        "paper",
        description="with decline=p_yes: how the answer is asked for after a Yes, in PECAN's words "
        "(its Table A2), or with the question once more, for a reader that goes on answering Yes",
    )
    max_tokens: Annotated[int, Field(ge=64)] | Literal["window"] | None = Field(
        None, description="most tokens of the second step, as max_tokens of full_context"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.decline == "p_yes" and self.prompt != DEFAULT_PROMPT and self.second_turn == "paper":
            raise ValueError(
                f"prompt={self.prompt} repeats the question, second_turn=paper does not: set "
                f"second_turn=restated, or prompt={DEFAULT_PROMPT}"
            )
        return self


@dataclass(frozen=True)
class _FirstStep:
    """The first step from one choice of passages."""

    answer: Prediction | None
    """None if no threshold is met, or nothing fits."""
    p_yes: float | None
    """None if the reader was not asked."""
    asking: Meter
    """Cost of asking whether the passages suffice."""
    answering: Meter

    def suffices(self, config: SelfRouteConfig) -> bool:
        """Whether the question ends here."""
        if config.decline == "word":
            return self.answer is not None and DECLINED not in self.answer.text.lower()
        return self.p_yes is not None and self.p_yes >= config.t


class SelfRoute(OverRanker[SelfRouteConfig]):
    """Passages first, everything if they do not suffice."""

    name = "self_route"
    version = "2"
    summary = "read k passages, and everything only if the reader declines to answer from them"
    paper = "Li et al. 2024 (arXiv 2407.16833)"
    Config = SelfRouteConfig
    replayed = frozenset({"k", "t"})

    def __init__(self, config: SelfRouteConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options, and make the ranker and the method that reads everything."""
        super().__init__(config, geometry, seed)
        whole = FullContextConfig(max_tokens=config.max_tokens, prompt=config.prompt)
        self.whole = FullContext(whole, geometry, seed)

    def inner(self) -> Sequence[Method[Any]]:
        """The ranker, and the method that reads everything."""
        return (*super().inner(), self.whole)

    def roles(self) -> Mapping[str, Role]:
        """The ranker's; with decline=p_yes the reader is asked how likely Yes is."""
        roles = super().roles()
        if self.config.decline == "word":
            return roles
        ways_out = (
            "self_route asks how likely Yes is. Two ways out: a server that says so (vLLM, llama.cpp)"
            "; or --set decline=word."
        )
        return {**roles, "reader": roles["reader"].needing("probabilities", ways_out)}

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer from the passages, or from everything: a replay of one config."""
        return (await self.replay(index, question, models, [self.config]))[0].prediction

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[SelfRouteConfig]
    ) -> list[Replayed]:
        """One ranking, a first step for each choice of passages, and at most one full context for all.

        The surrounding meter is credited with the actual cost.
        """
        with charged() as ranking:
            ranked = await self.rank(index, question, models)
        lowest: dict[tuple[int, ...], float] = {}
        for config in configs:
            positions = self.pick(ranked, config).positions
            lowest[positions] = min(config.t, lowest.get(positions, 1.0))
        firsts = {at: await self._first_step(ranked, at, t, question, models) for at, t in lowest.items()}
        chosen = [(firsts[self.pick(ranked, config).positions], config) for config in configs]
        whole, reading = None, Meter()
        if not all(first.suffices(config) for first, config in chosen):
            with charged() as reading:
                whole = await self.whole.answer(index, question, models)
        results = []
        for first, config in chosen:
            ends = first.suffices(config)
            result = first.answer if ends else whole
            assert result is not None
            meters = [ranking, first.asking]
            if ends or config.decline == "word":
                meters.append(first.answering)
            if not ends:
                meters.append(reading)
            trace = {**result.trace, "read": "passages" if ends else "everything", "p_yes": first.p_yes}
            flags = result.flags if ends else (*result.flags, "read_everything")
            results.append(Replayed(replace(result, flags=flags, trace=trace), Meter.combined(meters)))
        return results

    async def _first_step(
        self, ranked: RankedChunks, positions: tuple[int, ...], t: float, question: Question, models: ModelSet
    ) -> _FirstStep:
        """The passages read; t: with decline=p_yes, the probability from which an answer is wanted."""
        if self.config.decline == "p_yes":
            return await self._ask_first(ranked, positions, t, question, models)
        allowed = replace(question, text=f"{question.text}\n{PERMISSION}")
        with charged() as answering:
            answer = await self.read_picked(ranked, positions, allowed, models)
        return _FirstStep(answer, None, Meter(), answering)

    async def _ask_first(
        self, ranked: RankedChunks, positions: tuple[int, ...], t: float, question: Question, models: ModelSet
    ) -> _FirstStep:
        """Whether the passages suffice and, if so, the answer; the worst are dropped if they do not fit."""
        lm, kept = models.lm(), list(positions)
        second_turn = pecan_second_turn(self.config.second_turn, question, self.config.prompt)
        room = 2 * lm.chat_overhead + lm.count_tokens(YES + second_turn) + question.max_new_tokens
        first_turn = ""
        while kept:
            order = sorted(kept) if self.config.order == "document" else list(kept)
            nodes = "".join(PECAN_NODE.format(text=ranked.chunks[at].text) for at in order)
            first_turn = pecan_search_head(question.text) + nodes
            if fits(first_turn, lm, room, lm.geometry.input_limit):
                break
            kept.pop()
        if not kept:
            return _FirstStep(None, None, Meter(), Meter())
        asking, answering, answer = Meter(), Meter(), None
        async with await lm.open(lm.chat_overhead + lm.count_tokens(first_turn) + room) as context:
            with charged() as asking:
                await context.extend(first_turn)
                p_yes = (await context.probe(PECAN_CHOICES)).probabilities[YES]
            if p_yes >= t:
                with charged() as answering:
                    await context.say(YES)
                    await context.extend(second_turn)
                    written = await context.generate(question.max_new_tokens)
                answer = Prediction(
                    text=written.text.strip(),
                    context=[
                        p for i in order for p in passages(ranked.chunks[i], question, ranked.scores[i])
                    ],
                    prompt_tokens=written.prompt_tokens,
                    completion_tokens=len(written.token_ids),
                    truncated=len(kept) < len(positions),
                )
        return _FirstStep(answer, p_yes, asking, answering)
