"""Every registered method passes the conformance suite; a new one is listed here or the test fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.conformance import DOCUMENTS, MethodConformance
from bench.method.registry import registered_methods
from tests.bench.models.builders import save_cross_encoder
from tests.methods.writers import needs_gensim


class Suite(MethodConformance):
    """The very long document is one for a small random model, whose window is short."""

    long_words = 500

    def test_very_long_document(self, weights: Path) -> None:  # type: ignore[override]
        """Longer than the model's window: nothing fails, nothing is cut in silence."""
        self.model = str(weights / "reader")  # type: ignore[misc]
        super().test_very_long_document()


class Variant(Suite):
    """Other options of a method whose suite stands above: what no option changes is checked there."""

    test_names_itself = None  # type: ignore[assignment]
    test_options_are_checked = None  # type: ignore[assignment]
    test_empty_document = None  # type: ignore[assignment]
    test_very_long_document = None  # type: ignore[assignment]

    def test_hostile_documents(self) -> None:
        """One word, and imitated control tokens."""
        for name in ("one_word", "control_text"):
            self.check(DOCUMENTS[name], self.once(name))


class Costly(Suite):
    """A method that asks its reader often; test_hostile_documents.py gives it odd characters at once."""

    def test_hostile_documents(self) -> None:
        """Repetition, and many texts."""
        for name in ("duplicates", "many"):
            self.check(DOCUMENTS[name], self.once(name))


class WithEncoders(Suite):
    """The default weights of these methods are not shipped: the promises are kept on small random ones."""

    encoder = ""
    grid = {"k": [2, 7]}

    @pytest.fixture(autouse=True)
    def _given_encoders(self, weights: Path) -> None:
        self.options = {"encoder": str(weights / self.encoder)}  # type: ignore[misc]


def suite(method: str, base: type[MethodConformance] = Suite, **settings: Any) -> Any:
    """The suite of a method; settings: its options, the grid of its replayed ones."""
    return type(f"Suite of {method}", (base,), {"method": method, **settings})


TestSbert = suite("sbert", grid={"k": [2, 7]})
TestBm25 = suite("bm25", grid={"k": [1, 3, 5, 500, "gap"]})
TestBm25InDocumentOrder = suite(
    "bm25", Variant, options={"order": "document", "k": 3, "chunk_tokens": 20}, grid={"k": [4, 2]}
)
TestTfidf = suite("tfidf", grid={"k": [1, 3, 500]})
TestAttentionRanker = suite("attention_ranker", grid={"k": [1, 7, "gap"]})
TestAttentionRankerHeads = suite("attention_ranker", Variant, options={"heads": "0.0+0.1"}, grid={"k": [2]})
TestDragon = suite("dragon", WithEncoders)
TestDpr = suite("dpr", WithEncoders)
TestContriever = suite("contriever", WithEncoders, encoder="query")

PATIENCE, CONFIDENCE = ["cumulative", "consecutive"], ["absolute", "over_nothing"]
TestPecan = suite(
    "pecan",
    Costly,
    options={"summary_tokens": 64},
    grid={"t_p": [1, 3], "t_c": [0.4], "patience": PATIENCE, "confidence": CONFIDENCE},
)
GARLIC = {"variant": "garlic", "graph": "tree", "progress_control": "off", "n_nodes": 6, "attention": "off"}
TestGarlicOnATreeWithoutProgressControl = suite(
    "pecan",
    Variant,
    options=GARLIC,
    grid={"t_p": [2], "t_c": [0.5], "patience": ["cumulative"], "confidence": ["over_top"]},
)

TestFullContext = suite("full_context")
TestCachedContext = suite("cached_context")
TestCachedContextWithoutHalfItsKeys = suite("cached_context", Variant, options={"ratio": 0.5})
TestCachedContextByExpectedAttention = suite(
    "cached_context", Variant, options={"ratio": 0.3, "evict": "expected"}
)
TestLongLlmLingua = suite("longllmlingua", Costly)
TestClosedBook = suite("closed_book")

TestRaptor = suite("raptor", Costly, grid={"k": [1, 4, 10, 500]})
TestRaptorTraversal = suite("raptor", Variant, options={"mode": "tt", "leaf_tokens": 12}, grid={"k": [2, 5]})
TestMemWalker = suite("memwalker", Costly)
TestMemWalkerWithoutReasons = suite(
    "memwalker", Variant, options={"reasoning": "off", "segment_tokens": 40, "summary_tokens": 20, "group": 3}
)

GRAPHS = {"k": [1, 6, 500]}
TestGor = suite("gor", Costly, options={"queries": 4, "epochs": 2}, grid=GRAPHS)
TestGorWithoutTraining = suite("gor", Variant, options={"queries": 3, "train": "off"}, grid={"k": [2, 5]})
TestThoughtRetriever = suite("thought_retriever", Costly, options={"queries": 3}, grid=GRAPHS)
TestNode2Vec = needs_gensim(suite("node2vec", Costly, options={"queries": 3}, grid=GRAPHS))

TestRerank = suite("rerank", options={"n": 4}, grid={"k": [1, 3, 500]})


class TestRerankByCrossEncoder(Variant):
    method = "rerank"
    grid = {"k": [1, 3]}

    @pytest.fixture(autouse=True)
    def _given_scorer(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.getbasetemp() / "cross-encoder"
        self.options = {"n": 6, "scorer": str(save_cross_encoder(folder))}  # type: ignore[misc]


TestHybrid = suite("hybrid", grid={"k": [2, 7]})
TestHyde = suite("hyde", WithEncoders, encoder="query")
TestIrcot = suite("ircot", Costly, options={"k": 1, "rounds": 3}, grid={"rounds": [0, 1, 3]})
TestIterRetGen = suite("iter_retgen", options={"k": 1}, grid={"rounds": [1, 2, 4]})
TestChainOfAgents = suite("chain_of_agents", options={"window": 512})
TestReadAgent = suite("read_agent", Costly)
TestLinearRag = suite("linear_rag", grid={"k": [2, 7]})
TestHippoRag = suite("hipporag", Costly, options={"extract_tokens": 24}, grid={"k": [2, 7]})
TestSelfRoute = suite("self_route", options={"ranker": "tfidf"}, grid={"k": [1, 5]})


def test_every_registered_method_is_covered() -> None:
    here = (suite for suite in _suites(MethodConformance) if suite.__module__ == __name__)  # no plug-in's
    covered = {suite.method for suite in here if suite.method}
    ours = {n for n, one in registered_methods().items() if one.distribution.startswith("longdoc-bench")}
    assert covered == ours


def _suites(base: type[MethodConformance]) -> Iterator[type[MethodConformance]]:
    for suite in base.__subclasses__():
        yield suite
        yield from _suites(suite)
