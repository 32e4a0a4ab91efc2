"""What every method that picks and reads does for several options at once, and what an index depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from bench.conformance import DOCUMENTS, QUESTION
from bench.method import Geometry, MethodConfig, ModelSet, PickAndRead, Picked
from bench.schema import DocumentSet, Index, Prediction, Question

GEOMETRY = Geometry(window=100, chunk_tokens=10, summary_tokens=10, input_limit=100)


class PickConfig(MethodConfig):
    k: int = Field(2, ge=1)


class Letters(PickAndRead[PickConfig, str]):
    """Reads the first k of three letters."""

    name, version, summary, paper, Config = "letters", "1", "", "", PickConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: list[str] = []

    async def rank(self, index: Index, question: Question, models: ModelSet) -> str:
        self.calls.append("rank")
        return "abc"

    def pick(self, ranked: str, config: PickConfig) -> Picked:
        return Picked(tuple(range(min(config.k, 3))), {"k": config.k})

    async def read_picked(
        self, ranked: str, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        text = "".join(ranked[at] for at in positions)
        self.calls.append(f"read {text}")
        return Prediction(text)


def test_several_options_rank_once_and_read_each_distinct_choice_once() -> None:
    method, question = Letters(PickConfig(), GEOMETRY), Question(QUESTION, DOCUMENTS["story"], 8)
    models: Any = None
    configs = [PickConfig(k=k) for k in (3, 1, 9, 1)]
    replayed = asyncio.run(method.replay(Index(), question, models, configs))
    assert [one.prediction.text for one in replayed] == ["abc", "a", "abc", "a"]
    assert [one.prediction.trace["k"] for one in replayed] == [3, 1, 9, 1], "each has its own log"
    assert method.calls == ["rank", "read abc", "read a"]
    assert asyncio.run(method.answer(Index(), question, models)).text == "ab"


def test_a_method_without_an_index_of_its_own_keeps_one_for_all_options() -> None:
    class Indexed(Letters):
        async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
            return Index({"k": self.config.k})

    assert Letters(PickConfig(k=7), GEOMETRY).index_options() == {}
    assert Indexed(PickConfig(k=7), GEOMETRY).index_options() == {"k": 7}
    models: Any = None
    assert asyncio.run(Letters(PickConfig(), GEOMETRY).index(DOCUMENTS["story"], models)) == Index()
