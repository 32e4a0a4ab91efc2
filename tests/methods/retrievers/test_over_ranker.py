"""Methods over other rankers: what the ranker says, and what is added to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.errors import ConfigError
from bench.method import RankConfig, RankedChunks, Role
from bench.models.api import Geometry
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Chunk, Document, DocumentSet, Index, Question
from methods.iter_retgen import IterRetGen, IterRetGenConfig
from methods.retrievers.bm25 import Bm25, Bm25Config
from methods.retrievers.contriever import ContrieverConfig
from methods.retrievers.hybrid import Hybrid, HybridConfig, reciprocal_rank_fusion
from methods.retrievers.hyde import Hyde
from methods.retrievers.rerank import Rerank, RerankConfig, p_yes
from methods.retrievers.tfidf import Tfidf
from methods.self_route import SelfRoute, SelfRouteConfig
from tests.methods.pecan.scripted import CLOSING, Script, ScriptedModel
from tests.methods.retrievers.test_rankers import TEXTS, asked, chunks
from tests.stand_ins import GEOMETRY, WordModels

PAPERS = Geometry(chunk_tokens=300, window=8192, input_limit=8192, summary_tokens=512)


class Encoder:
    """An encoder by a function of the texts."""

    max_tokens = 99

    def __init__(self, vectors: Callable[[Sequence[str]], Any]) -> None:
        self.vectors = vectors

    def truncated(self, texts: Sequence[str]) -> int:
        return 0

    async def embed(self, texts: Sequence[str]) -> Any:
        return np.asarray(self.vectors(texts), np.float32)


class Encoders(WordModels):
    """Encoders by role."""

    def __init__(self, **encoders: Encoder) -> None:
        super().__init__()
        self.encoders = encoders

    def embedder(self, role: str = "embedder", *, pooling: Any = None) -> Any:
        return self.encoders[role]


def scores(ranker: Any, question: str, models: Any = None) -> Any:
    async def both() -> Any:
        data, arrays = await ranker.prepare(chunks(TEXTS), models or WordModels())
        index = Index({"chunks": [[at, 0, len(text), 1] for at, text in enumerate(TEXTS)], **data}, arrays)
        about = asked(question, DocumentSet(tuple(Document("", text) for text in TEXTS)))
        ranked = await ranker.rank(index, about, models or WordModels())
        assert ranked.candidates == (ranker.config.n if isinstance(ranker, Rerank) else None)
        assert ranked.best_first.tolist() == np.argsort(-ranked.scores, kind="stable").tolist()
        return ranked.scores

    return asyncio.run(both())


def test_candidates_are_ordered_by_yes_and_others_follow_as_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def probability(chunk: Chunk, question: Question, lm: Any) -> float:
        return {0: 1e-6, 2: 0.9, 3: 1e-5}[chunk.index]

    monkeypatch.setattr("methods.retrievers.rerank.p_yes", probability)
    first = np.argsort(-scores(Bm25(Bm25Config(), GEOMETRY), "kite mill"), kind="stable")
    assert set(first[:3]) == {0, 2, 3}
    relevance = scores(Rerank(RerankConfig(n=3), GEOMETRY), "kite mill")
    np.testing.assert_array_equal(np.argsort(-relevance), [2, 3, 0, *first[3:]])
    np.testing.assert_allclose(relevance[[2, 3, 0]], [0.9, 1e-5, 1e-6], rtol=0.01)
    assert relevance[first[3:]].tolist() == [-1.0 - place for place in range(3, len(TEXTS))]


def test_a_candidate_is_asked_about_as_the_first_node_of_a_search_is() -> None:
    lm, documents = ScriptedModel(script=Script(p_yes=lambda _: 0.3)), DocumentSet((Document("", ""),))
    assert asyncio.run(p_yes(chunks(TEXTS)[0], asked("kite", documents), lm)) == 0.3
    (context,) = lm.contexts
    assert f"Question:\nkite\n\nInformation:\n* {TEXTS[0]}\n" in "".join(text for _, text in context.log)
    assert context.closed and context.capacity == context.length + len(CLOSING)


def test_what_only_rounding_tells_apart_stays_in_the_ranker_s_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def probability(chunk: Chunk, question: Question, lm: Any) -> float:
        return 0.5 + chunk.index * 1e-6  # other questions of the batch change as much

    async def ranked(ranker: Any) -> Any:
        data, arrays = await ranker.prepare(chunks(TEXTS), WordModels())
        index = Index({"chunks": [[at, 0, len(text), 1] for at, text in enumerate(TEXTS)], **data}, arrays)
        about = asked("mill", DocumentSet(tuple(Document("", text) for text in TEXTS)))
        return (await ranker.rank(index, about, WordModels())).best_first.tolist()

    monkeypatch.setattr("methods.retrievers.rerank.p_yes", probability)
    first = asyncio.run(ranked(Bm25(Bm25Config(), GEOMETRY)))
    assert first != sorted(first)
    assert asyncio.run(ranked(Rerank(RerankConfig(n=4), GEOMETRY))) == first


def test_k_gap_is_looked_for_among_the_candidates_of_a_reranking() -> None:
    """Between the last candidate and the first chunk without a score is a drop that says nothing."""
    scores = np.array([0.9, 0.85, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, *(-1.0 - np.arange(12))])
    pick, config = Bm25(Bm25Config(), GEOMETRY).pick, Bm25Config(k="gap")
    assert len(pick(RankedChunks([], scores, np.arange(20)), config).positions) == 8 + 5
    assert len(pick(RankedChunks([], scores, np.arange(20), candidates=8), config).positions) == 2 + 5


def test_a_cross_encoder_orders_the_candidates_without_asking_the_reader() -> None:
    class Scorer:
        async def score(self, query: str, texts: Sequence[str]) -> Any:
            assert query == "kite mill" and len(texts) == 3
            return np.array([0.2, 0.8, 0.5])

    class Models(WordModels):
        def lm(self, role: str = "reader") -> Any:
            raise AssertionError("the reader is not needed")

        def pair_scorer(self, role: str = "scorer") -> Any:
            return Scorer()

    first = np.argsort(-scores(Bm25(Bm25Config(), GEOMETRY), "kite mill"), kind="stable")
    method = Rerank(RerankConfig(n=3, scorer="some/encoder"), GEOMETRY)
    scorer = method.roles()["scorer"]
    assert (scorer.model, scorer.index, scorer.needs) == ("some/encoder", False, "tokens")
    relevance = scores(method, "kite mill", Models())
    np.testing.assert_array_equal(np.argsort(-relevance), [first[1], first[2], first[0], *first[3:]])


def test_hybrid_fuses_the_two_that_are_named() -> None:
    config = HybridConfig(first="tfidf", second="bm25")
    parts = [Tfidf(RankConfig(), GEOMETRY), Bm25(Bm25Config(), GEOMETRY)]
    expected = reciprocal_rank_fusion([scores(part, "red mill") for part in parts])
    np.testing.assert_allclose(scores(Hybrid(config, GEOMETRY), "red mill"), expected)


def test_two_rankers_of_one_kind_keep_their_models_and_indexes_apart() -> None:
    hybrid = Hybrid(HybridConfig(first="sbert", second="contriever"), PAPERS)
    assert hybrid.roles() == {
        "reader": Role(),
        "first_embedder": Role("minilm"),
        "second_embedder": Role("contriever"),
    }
    ones = Encoder(lambda texts: [[1.0, 1.0] for _ in texts])
    models = Encoders(first_embedder=ones, second_embedder=Encoder(lambda texts: [[2.0, 2.0] for _ in texts]))
    _, arrays = asyncio.run(hybrid.prepare(chunks(TEXTS), models))  # type: ignore[arg-type]
    assert sorted(arrays) == ["first_embeddings", "second_embeddings"]
    assert scores(hybrid, "kite", models).shape == (len(TEXTS),)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("pecan", "does not score chunks; expected a ranker"),
        # It ranked as plain BM25.
        *((name, "does more than rank chunks") for name in ("ircot", "iter_retgen", "self_route")),
    ],
)
def test_a_part_that_is_no_ranker_or_does_more_than_rank_is_refused(name: str, fault: str) -> None:
    over = (Rerank, RerankConfig(ranker=name)), (SelfRoute, SelfRouteConfig(ranker=name))
    pairs = (Hybrid, HybridConfig(first=name)), (Hybrid, HybridConfig(second=name))
    for method, config in (*over, *pairs):
        with pytest.raises(ConfigError, match=f"{name} {fault}"):
            method(config, GEOMETRY)


@pytest.mark.parametrize("options", [{"k": 3}, {"chunk_tokens": 60}, {"order": "document"}])
def test_an_option_of_the_method_over_a_ranker_is_refused_inside(options: dict[str, Any]) -> None:
    """Chunks were cut as the outer option says, and the index was filed under the inner one."""
    (name,) = options
    with pytest.raises(ConfigError, match=rf"{name} must be an option of that method \(--set {name}="):
        Rerank(RerankConfig(ranker_options=options), GEOMETRY)


class Telling(Bm25):
    """BM25 that says what happened."""

    def roles(self) -> dict[str, Role]:
        """As if the reader were asked, and a cross-encoder ran here."""
        reader = Role(index=False, needs="probabilities", ways_out="telling asks")
        return {"reader": reader, "scorer": Role("x", needs="attention", ways_out="here")}

    async def rank(self, index: Index, question: Question, models: Any) -> RankedChunks:
        """With a flag and a trace."""
        return replace(await super().rank(index, question, models), flags=("told",), trace={"said": 1})


def test_what_a_ranker_says_of_its_ranking_the_method_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """HippoRAG inside another method lost its flags, and inside Hybrid what it needs of a server, too."""
    monkeypatch.setattr("methods.retrievers.over_ranker.load_method", lambda name: Telling)
    documents = DocumentSet((Document("", "the kite"),))

    def ranked(method: Any) -> RankedChunks:
        index = Index(dict.fromkeys(("first", "second"), {}) | {"chunks": [[0, 0, 8, 2]]})
        ranking: RankedChunks = asyncio.run(method.rank(index, asked("kite", documents), WordModels()))
        return ranking

    one = ranked(IterRetGen(IterRetGenConfig(), GEOMETRY))
    assert one.flags == ("told",) and one.trace == {"said": 1}
    hybrid = Hybrid(HybridConfig(), GEOMETRY)
    both = ranked(hybrid)
    assert both.flags == ("told",) and both.trace == {"first": {"said": 1}, "second": {"said": 1}}
    assert hybrid.roles() == {
        "reader": Role(index=False, needs="probabilities", ways_out="telling asks"),
        "first_scorer": Role("x", needs="attention", ways_out="here"),
        "second_scorer": Role("x", needs="attention", ways_out="here"),
    }


def test_hyde_searches_with_the_mean_of_question_and_draft() -> None:
    embedded: list[str] = []

    def lengths(texts: Sequence[str]) -> list[list[float]]:
        embedded[:] = texts
        return [[len(text), 1.0] for text in texts]

    method = Hyde(ContrieverConfig(encoder="minilm"), PAPERS)
    relevance = scores(method, "kite", Encoders(embedder=Encoder(lengths)))
    assert embedded == ["kite", "Question:"]  # the stand-in says the last word of the first line
    mean = np.array([(4 + 9) / 2, 1.0])
    np.testing.assert_allclose(relevance, [len(text) * mean[0] + mean[1] for text in TEXTS])
    assert method.roles()["embedder"].model == "minilm" and method.index_name == "contriever"


def test_a_ranker_over_a_ranker_is_named_and_both_have_one_scorer() -> None:
    config = RerankConfig(ranker="rerank", ranker_options={"scorer": "A"}, scorer="B")
    with pytest.raises(ConfigError, match="the ranker inside has A"):
        Rerank(config, GEOMETRY).roles()
    over = IterRetGen(IterRetGenConfig(ranker="rerank"), GEOMETRY)
    assert over.choices()["ranker"] == "rerank over bm25"


@pytest.mark.parametrize("options", [{}, {"ranker": "hybrid", "ranker_options": {"second": "tfidf"}}])
def test_a_new_version_of_the_ranker_makes_another_cell_of_the_method_over_it(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a ranker inside the ranker; before, cells with the old ranking were taken for finished."""
    request = CellRequest("self_route", "hotpotqa", "tiny", options=options)
    before = plan_cell(request).identity
    assert before.inner[-1] == "full_context 1" and f"bm25 {Bm25.version}" in before.inner
    monkeypatch.setattr(Bm25, "version", "next")
    assert plan_cell(request).identity.cell_id != before.cell_id
