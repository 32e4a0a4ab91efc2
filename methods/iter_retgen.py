"""Iter-RetGen: search with the last answer, answer from what that finds, and again.

Shao et al. 2023 (arXiv 2305.15294): passages are retrieved for the question and the model answers; then
question and answer together are the query, and the model answers again from the passages of this round alone.
The last answer counts. Unlike :mod:`methods.ircot`, a round is a complete answer, and passages do not
accumulate.

``rounds`` only says when to stop, so one run serves every smaller number. A round that finds what the one
before found would repeat its answer, so the loop ends there  # our choice: it saves a generation and changes
no answer. The paper has the model reason from examples; here it is asked as in every other method
# our choice, as in FlashRAG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from bench.method import Meter, ModelSet, Replayed, charged
from bench.schema import Index, Prediction, Question
from methods.retrievers.over_ranker import OverRanker, OverRankerConfig


class IterRetGenConfig(OverRankerConfig):
    """Passages of each round, and how many rounds."""

    rounds: int = Field(
        2,
        ge=1,
        le=16,
        description="searches, each with its answer; 1: the ranker alone (FlexRAG: 2, FlashRAG: 3)",
    )


@dataclass(frozen=True)
class _Round:
    """What one round found and said."""

    positions: tuple[int, ...]
    prediction: Prediction
    meter: Meter
    """Cost of this round alone."""


class IterRetGen(OverRanker[IterRetGenConfig]):
    """Answer, search with the answer, answer again."""

    name = "iter_retgen"
    version = "2"
    summary = "search with the question and the last answer, answer again from what that finds"
    paper = "Shao et al. 2023 (arXiv 2305.15294)"
    Config = IterRetGenConfig
    replayed = frozenset({"rounds"})

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[IterRetGenConfig]
    ) -> list[Replayed]:
        """As many rounds as the longest config has.

        The surrounding meter is credited with the actual cost.
        """
        rounds: list[_Round] = []
        for _ in range(max(config.rounds for config in configs)):
            latest = await self._round(rounds, index, question, models)
            rounds.append(latest)
            if len(rounds) > 1 and latest.positions == rounds[-2].positions:
                break
        results = []
        for config in configs:
            done = rounds[: config.rounds]
            trace = {
                "answers": [one.prediction.text for one in done],
                "passages": [list(one.positions) for one in done],
            }
            cost = Meter.combined(one.meter for one in done)
            results.append(Replayed(replace(done[-1].prediction, trace=trace), cost))
        return results

    async def _round(
        self, done: Sequence[_Round], index: Index, question: Question, models: ModelSet
    ) -> _Round:
        """The next round after those that are done; one that finds the same is not answered again."""
        asked = question
        if done:
            query = f"{question.query} {done[-1].prediction.text}"
            asked = replace(question, text=query, retrieval_query="")
        with charged() as meter:
            ranked = await self.rank(index, asked, models)
            positions = self.pick(ranked, self.config).positions
            if done and positions == done[-1].positions:
                return _Round(positions, done[-1].prediction, meter)
            return _Round(positions, await self.read_picked(ranked, positions, question, models), meter)
