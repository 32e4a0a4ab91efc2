"""TF-IDF and rank fusion by hand, and the line below every table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.flops.meter import Meter, metered
from bench.method import RankConfig, reading
from bench.method.prompts import DEFAULT_PROMPT, reader_prompt
from bench.models.conversation import ModelSet
from bench.schema import Chunk, ContextItem, Document, DocumentSet, Index, Prediction, Question
from methods.closed_book import ClosedBook, ClosedBookConfig
from methods.retrievers.bm25 import Bm25, Bm25Config
from methods.retrievers.hybrid import reciprocal_rank_fusion, shared_ranks
from methods.retrievers.tfidf import Tfidf
from tests.stand_ins import GEOMETRY, WordModels

TEXTS = ("the kite lay in the mill", "the fair", "a kite, a red kite", "the mill and the mill", "?!")


def chunks(texts: tuple[str, ...]) -> list[Chunk]:
    return [Chunk(0, i, 0, len(t), t, 1) for i, t in enumerate(texts)]


def asked(text: str, documents: DocumentSet | None = None) -> Question:
    return Question(text, documents or DocumentSet(()), 8)


def tfidf(question: str, texts: tuple[str, ...] = TEXTS) -> np.ndarray[Any, Any]:
    ranker = Tfidf(RankConfig(), GEOMETRY)
    return np.asarray(asyncio.run(ranker.score(chunks(texts), Index(), asked(question), WordModels())))


OF_BM25 = [Bm25(config, GEOMETRY) for config in (Bm25Config(), Bm25Config(k1=0), Bm25Config(b=1))]


@pytest.mark.parametrize("ranker", [Tfidf(RankConfig(), GEOMETRY), *OF_BM25])
def test_rankers_search_with_the_retrieval_query_and_ask_with_the_question(ranker: Any) -> None:
    def scores(question: Question) -> list[float]:
        index = Index(*asyncio.run(ranker.prepare(chunks(TEXTS), WordModels())))
        return list(asyncio.run(ranker.score(chunks(TEXTS), index, question, WordModels())))

    other = replace(asked("What was told?"), retrieval_query="red kite")
    assert scores(other) == scores(asked("red kite")) != scores(asked("What was told?"))
    prompt = reader_prompt(DEFAULT_PROMPT, "", other)
    assert "What was told?" in prompt and "red" not in prompt


def test_tfidf_is_the_cosine_of_smoothed_tfidf_vectors() -> None:
    similarities = tfidf("red KITE?", ("red kite", "red red barn", "a barn"))
    # idf = 1 + ln((1 + n) / (1 + df)), n = 3: red 2, kite 1, barn 2, a 1.
    common, rare = 1 + np.log(4 / 3), 1 + np.log(4 / 2)
    query = np.array([common, rare, 0, 0]) / np.hypot(common, rare)
    first = query
    second = np.array([2 * common, 0, common, 0]) / np.hypot(2 * common, common)
    np.testing.assert_allclose(similarities, [query @ first, query @ second, 0], atol=1e-12)


def test_tfidf_without_a_known_word_leaves_the_document_order() -> None:
    assert not tfidf("nowhere").any()
    assert not tfidf("kite", ("?!", "...")).any()
    assert not tfidf("").any()
    assert tfidf("kite mill").argmax() == 0  # both words, one each


def test_equal_scores_share_the_best_of_their_ranks() -> None:
    np.testing.assert_array_equal(shared_ranks(np.array([0.0, 3.0, 0.0, 5.0, 3.0])), [4, 2, 4, 1, 2])
    assert shared_ranks(np.zeros(0)).shape == (0,)


def test_fusion_adds_reciprocal_ranks() -> None:
    dense, sparse = np.array([0.9, 0.8, 0.1]), np.array([0.0, 7.0, 7.0])
    fused = reciprocal_rank_fusion([dense, sparse])
    np.testing.assert_allclose(fused, [1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 63 + 1 / 61])
    with_nothing = reciprocal_rank_fusion([dense, np.zeros(3)])  # a ranker that knows nothing
    assert np.argsort(-with_nothing).tolist() == [0, 1, 2]


class Scored(Tfidf):
    """A ranker whose scores are given."""

    fixed_scores: tuple[float, ...] = ()

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        return np.array(self.fixed_scores[: len(chunks)])


def ranked(scores: tuple[float, ...], words: int, **options: Any) -> Prediction:
    """What the reader of 256 words is given of one passage per score, each of so many words."""
    ranker = Scored(RankConfig(chunk_tokens=words, **options), GEOMETRY)
    ranker.fixed_scores = scores
    pages = DocumentSet(tuple(Document("", " ".join([f"page{i}"] * words)) for i in range(len(scores))))

    async def ask() -> Prediction:
        models: Any = WordModels()
        return await ranker.answer(await ranker.index(pages, models), asked("Where", pages), models)

    return asyncio.run(ask())


@pytest.mark.parametrize(("order", "kept"), [("rank", [3, 1]), ("document", [1, 3]), ("reverse", [1, 3])])
def test_a_window_that_is_too_short_loses_the_worst_passages_first(order: str, kept: list[int]) -> None:
    prediction = ranked((0.1, 0.7, 0.3, 0.9), 100, k=4, order=order)
    assert [item.document for item in prediction.context] == kept
    assert prediction.truncated and prediction.context[0].score == (0.9 if order == "rank" else 0.7)


def test_many_passages_too_many_are_dropped_after_few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, a long document once took minutes a question."""
    counts: list[str] = []
    real = reading.fits
    monkeypatch.setattr(reading, "fits", lambda prompt, *given: counts.append(prompt) or real(prompt, *given))
    prediction = ranked(tuple(np.linspace(1, 0, 90)), 20, k=90)
    assert [item.document for item in prediction.context] == [*range(len(prediction.context))]
    assert prediction.truncated and 8 < len(prediction.context) < 13 and len(counts) < 10


def test_a_drop_order_that_lacks_passages_goes_on_from_the_end() -> None:
    pages = [ContextItem(f"page{i} " * 100) for i in range(4)]
    read = reading.read(pages, asked("Where", DocumentSet(())), WordModels().lm(), drop_order=[0, 0])
    assert [item.text[:5] for item in asyncio.run(read).context] == ["page1", "page2"]


@pytest.mark.parametrize(("k", "kept"), [(2, [1, 0]), (3, [1, 0, 2]), (5, [1, 0, 2, 3])])
def test_passages_with_equal_scores_are_read_in_document_order(k: int, kept: list[int]) -> None:
    prediction = ranked((0.5, 0.7, 0.5, 0.5), 8, k=k)
    assert [item.document for item in prediction.context] == kept and not prediction.truncated


def test_closed_book_sees_the_question_only() -> None:
    question = asked("Where is it", DocumentSet((Document("Mill", "It is old. The kite is in it."),)))
    method = ClosedBook(ClosedBookConfig(), GEOMETRY)
    with metered(Meter()) as meter:
        prediction = asyncio.run(method.answer(Index(), question, WordModels()))
    alone = reader_prompt("pecan", "", question)
    assert meter.new_tokens == prediction.prompt_tokens == WordModels().lm().count_tokens(alone) + 2
    assert prediction.context == () and prediction.flags == ()
    assert "Information" not in alone
