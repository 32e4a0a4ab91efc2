"""What every method that picks and reads does for several options at once, and what an index depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import Field

from bench.conformance import DOCUMENTS, QUESTION
from bench.method import Geometry, MethodConfig, ModelSet, PickAndRead, Picked, RankConfig, RankThenRead
from bench.method.ranking import GAP_BUFFER, before_gap
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_a_replayed_grid_is_its_cells_run_alone(ks: list[int]) -> None:
    question, models = Question(QUESTION, DOCUMENTS["story"], 8), cast(Any, None)
    method = Letters(PickConfig(k=ks[0]), GEOMETRY)
    together = asyncio.run(method.replay(Index(), question, models, [PickConfig(k=k) for k in ks]))
    alone = [asyncio.run(Letters(PickConfig(k=k), GEOMETRY).answer(Index(), question, models)) for k in ks]
    assert [(one.text, one.trace["k"]) for one in alone] == [("abc"[:k], k) for k in ks]
    assert [one.prediction for one in together] == alone
    assert method.calls == ["rank", *dict.fromkeys(f"read {one.text}" for one in alone)]


def test_a_method_without_an_index_of_its_own_keeps_one_for_all_options() -> None:
    class Indexed(Letters):
        async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
            return Index({"k": self.config.k})

    assert Letters(PickConfig(k=7), GEOMETRY).index_options() == {}
    assert Indexed(PickConfig(k=7), GEOMETRY).index_options() == {"k": 7}
    assert asyncio.run(Letters(PickConfig(), GEOMETRY).index(DOCUMENTS["story"], cast(Any, None))) == Index()


def test_a_ranker_that_scores_only_some_chunks_is_an_error() -> None:
    class Short(RankThenRead[RankConfig]):
        async def score(self, chunks: Any, index: Any, question: Any, models: Any) -> Any:
            return [1.0]

    question = Question(QUESTION, DOCUMENTS["story"], 8)
    index = Index({"chunks": [[0, 0, 9, 2], [0, 9, 20, 2]]})
    with pytest.raises(ValueError, match=r"shape \(1,\), expected \(2,\): one per chunk"):
        asyncio.run(Short(RankConfig(), GEOMETRY).rank(index, question, cast(Any, None)))


@pytest.mark.parametrize(("scores", "k"), [([0.9, 0.8, 0.3], 2 + 5), ([0.5] * 30, 6), ([0.5], 5), ([], 5)])
def test_k_gap_is_the_largest_drop_and_five_more(scores: list[float], k: int) -> None:
    assert before_gap(np.array(scores)) == k


def test_k_gap_is_the_authors_rule() -> None:
    """Their code step by step: drops, the tail cut by a share, the first least difference, items to it."""
    rng = np.random.default_rng(0)
    for n in range(2, 120):
        scores = sorted(map(float, np.round(rng.random(n), 1 + n % 3)), reverse=True)
        differences = [after - before for before, after in zip(scores, scores[1:], strict=False)]
        cut = int((n - 1) * 0.1)
        seen = differences[:-cut] if cut else differences
        threshold = seen.index(min(seen)) + GAP_BUFFER
        taken = [at for at in range(n) if not at > threshold]
        assert len(scores[: before_gap(np.array(scores))]) == len(taken), n
