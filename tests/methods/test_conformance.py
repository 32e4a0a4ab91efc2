"""Every registered method passes the conformance suite; a new one is listed here or the test fails."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.conformance import DOCUMENTS, MethodConformance
from bench.method.registry import registered_methods
from tests.bench.models.builders import save_cross_encoder, save_plain_encoder


class Variant(MethodConformance):
    """Other options of a method whose suite stands above: what no option changes is checked there."""

    test_names_itself = None  # type: ignore[assignment]
    test_options_are_checked = None  # type: ignore[assignment]
    test_empty_document = None  # type: ignore[assignment]
    test_very_long_document = None  # type: ignore[assignment]

    def test_hostile_documents(self) -> None:
        """One word, and imitated control tokens."""
        for name in ("one_word", "control_text"):
            self.check(DOCUMENTS[name])


class Costly(MethodConformance):
    """A method that asks its reader often; test_hostile_documents.py gives it odd characters at once."""

    def test_hostile_documents(self) -> None:
        """Repetition, and many texts."""
        for name in ("duplicates", "many"):
            self.check(DOCUMENTS[name])


class TestBm25(MethodConformance):
    method = "bm25"
    grid = {"k": [1, 3, 5, 500, "gap"]}  # noqa: RUF012


class TestBm25InDocumentOrder(Variant):
    method = "bm25"
    options = {"order": "document", "k": 3, "chunk_tokens": 20}  # noqa: RUF012
    grid = {"k": [4, 2]}  # noqa: RUF012


class TestSbert(MethodConformance):
    method = "sbert"
    grid = {"k": [2, 7]}  # noqa: RUF012
    long_words = 1700


class TestTfidf(MethodConformance):
    method = "tfidf"
    grid = {"k": [1, 3, 500]}  # noqa: RUF012


class TestAttentionRanker(MethodConformance):
    method = "attention_ranker"
    grid = {"k": [1, 7, "gap"]}  # noqa: RUF012


class TestAttentionRankerWithHeads(Variant):
    method = "attention_ranker"
    options = {"heads": "0.0+0.1"}  # noqa: RUF012
    grid = {"k": [2]}  # noqa: RUF012


class TestPecan(Costly):
    method = "pecan"
    options = {"summary_tokens": 64}  # noqa: RUF012
    grid = {  # noqa: RUF012
        "t_p": [1, 3],
        "t_c": [0.4],
        "patience": ["cumulative", "consecutive"],
        "confidence": ["absolute", "over_nothing"],
    }
    long_words = 1700  # just over the window


class TestGarlicOnATreeWithoutProgressControl(Variant):
    method = "pecan"
    options = {  # noqa: RUF012
        "variant": "garlic",
        "graph": "tree",
        "progress_control": "off",
        "n_nodes": 6,
        "attention": "off",
    }
    grid = {"t_p": [2], "t_c": [0.5], "patience": ["cumulative"], "confidence": ["over_top"]}  # noqa: RUF012


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of plain BERTs with random weights, as a hub repository of Dragon or Contriever holds them."""
    folder = tmp_path_factory.mktemp("encoders")
    save_plain_encoder(folder / "query", seed=1)
    save_plain_encoder(folder / "context", seed=2)
    return folder


class WithEncoders(MethodConformance):
    """The default weights of these methods are not shipped: the promises are kept on small random ones."""

    encoder = ""
    grid = {"k": [2, 7]}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _given_encoders(self, encoders: Path) -> None:
        self.options = {"encoder": str(encoders / self.encoder)}  # type: ignore[misc]


class TestDragon(WithEncoders):
    method = "dragon"


class TestDpr(WithEncoders):
    method = "dpr"


class TestBm25Dpr(WithEncoders):
    method = "bm25_dpr"


class TestContriever(WithEncoders):
    method = "contriever"
    encoder = "query"


class TestFullContext(MethodConformance):
    method = "full_context"
    long_words = 1700  # test_full_context.py has texts beyond what the model takes


class TestCachedContext(MethodConformance):
    method = "cached_context"


class TestCachedContextWithoutHalfItsKeys(Variant):
    method = "cached_context"
    options = {"ratio": 0.5}  # noqa: RUF012


class TestCachedContextByExpectedAttention(Variant):
    method = "cached_context"
    options = {"ratio": 0.3, "evict": "expected"}  # noqa: RUF012


class TestLongLlmLingua(Costly):
    method = "longllmlingua"
    long_words = 1500  # over the window


class TestClosedBook(MethodConformance):
    method = "closed_book"


class TestRaptor(Costly):
    method = "raptor"
    grid = {"k": [1, 4, 10, 500]}  # noqa: RUF012
    long_words = 1700  # just over the window: BIC over 49 mixtures of so many equal leaves takes its time


class TestRaptorTreeTraversal(Variant):
    method = "raptor"
    options = {"mode": "tt", "leaf_tokens": 12}  # noqa: RUF012
    grid = {"k": [2, 5]}  # noqa: RUF012


class TestMemWalker(Costly):
    method = "memwalker"
    long_words = 1700  # a walk may stand at every node twice, and this model often goes back


class TestMemWalkerWithoutReasons(Variant):
    method = "memwalker"
    options = {"reasoning": "off", "segment_tokens": 40, "summary_tokens": 20, "group": 3}  # noqa: RUF012


class TestGor(Costly):
    method = "gor"
    options = {"queries": 4, "epochs": 2}  # noqa: RUF012
    grid = {"k": [1, 6, 500]}  # noqa: RUF012
    long_words = 1700


class TestGorWithoutTraining(Variant):
    method = "gor"
    options = {"queries": 3, "train": "off"}  # noqa: RUF012
    grid = {"k": [2, 5]}  # noqa: RUF012


class TestThoughtRetriever(Costly):
    method = "thought_retriever"
    options = {"queries": 3}  # noqa: RUF012
    grid = {"k": [1, 6, 500]}  # noqa: RUF012
    long_words = 700


@pytest.mark.skipif(find_spec("gensim") is None, reason="needs gensim, which has no wheel for Python 3.14")
class TestNode2Vec(Costly):
    method = "node2vec"
    options = {"queries": 3}  # noqa: RUF012
    grid = {"k": [1, 6, 500]}  # noqa: RUF012
    long_words = 700


class TestRerank(MethodConformance):
    method = "rerank"
    options = {"n": 4}  # noqa: RUF012
    grid = {"k": [1, 3, 500]}  # noqa: RUF012
    long_words = 1500


class TestRerankByCrossEncoder(Variant):
    method = "rerank"
    grid = {"k": [1, 3]}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _given_scorer(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.getbasetemp() / "cross-encoder"
        self.options = {"n": 6, "scorer": str(save_cross_encoder(folder))}  # type: ignore[misc]


class TestHybrid(MethodConformance):
    method = "hybrid"
    grid = {"k": [2, 7]}  # noqa: RUF012
    long_words = 1500


class TestHyde(WithEncoders):
    method = "hyde"
    encoder = "query"
    long_words = 1500


class TestIrcot(Costly):
    method = "ircot"
    options = {"k": 1, "rounds": 3}  # noqa: RUF012
    grid = {"rounds": [0, 1, 3]}  # noqa: RUF012
    long_words = 1500


class TestIterRetGen(MethodConformance):
    method = "iter_retgen"
    options = {"k": 1}  # noqa: RUF012
    grid = {"rounds": [1, 2, 4]}  # noqa: RUF012
    long_words = 1500


class TestChainOfAgents(MethodConformance):
    method = "chain_of_agents"
    options = {"window": 512}  # noqa: RUF012
    long_words = 1500


class TestReadAgent(Costly):
    method = "read_agent"
    long_words = 1500


class TestLinearRag(MethodConformance):
    method = "linear_rag"
    grid = {"k": [2, 7]}  # noqa: RUF012
    long_words = 1500


class TestHippoRag(Costly):
    method = "hipporag"
    options = {"extract_tokens": 24}  # noqa: RUF012
    grid = {"k": [2, 7]}  # noqa: RUF012
    long_words = 1500


class TestSelfRoute(MethodConformance):
    method = "self_route"
    grid = {"k": [1, 5], "t": [0.5]}  # noqa: RUF012
    long_words = 1500


class TestSelfRouteByProbability(Variant):
    method = "self_route"
    options = {"decline": "p_yes", "ranker": "tfidf"}  # noqa: RUF012
    grid = {"k": [1, 5], "t": [0.0, 0.5, 1.0]}  # noqa: RUF012


def test_every_registered_method_is_covered() -> None:
    covered = {suite.method for suite in _suites(MethodConformance) if suite.method}
    ours = {
        name for name, entry in registered_methods().items() if entry.distribution.startswith("longdoc-bench")
    }
    assert covered == ours


def _suites(base: type[MethodConformance]) -> Iterator[type[MethodConformance]]:
    for suite in base.__subclasses__():
        yield suite
        yield from _suites(suite)
