"""LinearRAG: names lead from the question's passage to the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from bench.schema import Document, DocumentSet, Index, Question
from methods.retrievers import linear_rag
from methods.retrievers.linear_rag import LinearRag, LinearRagConfig, names_in
from methods.retrievers.page_rank import page_rank
from tests.methods.retrievers.test_over_ranker import Encoder, Encoders
from tests.methods.retrievers.test_rankers import chunks
from tests.methods.writers import Models
from tests.stand_ins import GEOMETRY

TEXTS = (
    "Rain fell all day on the fields.",
    "Mara Feld gave the kite to Otto Lund.",
    "In the spring Otto Lund moved to Harbury.",
    "Ines Marlow sold a clock. Where it went nobody knows.",
    "The goat was called Pepper.",
)


def ranked(question: str, *texts: str) -> Any:
    pages = DocumentSet(tuple(Document("", text) for text in texts or TEXTS))
    models: Any = Models(lambda prompt: "")
    method = LinearRag(LinearRagConfig(chunk_tokens=32, join_documents="off"), GEOMETRY)

    async def both() -> Any:
        return await method.rank(await method.index(pages, models), Question(question, pages, 8), models)

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("sentence", "names"),
    [
        ("In the spring Mara Feld met Otto.", ["Mara Feld", "Otto"]),
        ("Where did Otto Lund of Harbury live?", ["Otto Lund of Harbury"]),
        ("The Bank of England’s Bank of England", ["Bank of England’s Bank of England"]),
        ("When Ines' clock stopped, Ines wept", ["Ines"]),
        ("rain fell. Where?", []),
        ("In Łódź, Émile Zola met Иван Петров.", ["Łódź", "Émile Zola", "Иван Петров"]),
        ("Karel Čapek", ["Karel Čapek"]),
        ("Has Ha Long Bay a port?", ["Ha Long Bay"]),
        ("Otto lá Brand", ["Otto", "Brand"]),
        ("She sold an iPhone and a McIntosh.", ["McIntosh"]),
    ],
)
def test_names_are_runs_of_capitalised_words(sentence: str, names: list[str]) -> None:
    assert names_in(sentence) == names


def test_a_name_that_the_question_lacks_leads_to_the_second_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_rag, "THRESHOLD", 0.1)
    monkeypatch.setattr(linear_rag, "PASSAGE_RATIO", 0.0)
    assert list(ranked("Whom did Mara Feld give the kite").best_first[:2]) == [1, 2]


def test_a_graph_of_three_passages_by_hand() -> None:
    """Of the activation 0.8 is passed on in the second tier, and 0.8 * 0.7 in the third."""
    texts = ("Mara Feld and Otto Lund met.", "Otto Lund saw Otto Lund of Harbury.", "Rain.")
    passages = [[[0, 1], [1, 1]], [[1, 2], [2, 1]], []]
    data = {"names": ["Mara Feld", "Otto Lund", "Harbury", "Rye"], "passages": passages}
    unit = {"names": np.eye(4, 2), "passages": np.array([[0.9, 0], [0.5, 0], [0.1, 0]])}
    sentences = {"sentences": np.array([[0.8, 0], [0.7, 0], [0.5, 0]])}
    index = Index({**data, "sentences": [[0, 1], [1, 2], [2, 3]]}, {**unit, **sentences})
    models = Encoders(embedder=Encoder(lambda texts: np.array([[1.0, 0]] * len(texts))))
    method, question = LinearRag(LinearRagConfig(), GEOMETRY), Question("Did Mara Feld?", DocumentSet(()), 8)
    scores = asyncio.run(method.score(chunks(texts), index, question, models))
    log = [np.log1p(0.8 * np.log(2) / 2 + 0.56 * np.log(2) / 3), np.log1p(0.56 * (np.log(3) + np.log(2)) / 3)]
    restart = [1.8, 0.8 + 0.56, 0.56, 0, 0.05 * (2 + log[0]), 0.05 * (1 + log[1]), 0]
    first, second = np.array([4, 4, 5, 5, 4, 5]), np.array([0, 1, 1, 2, 5, 6])
    weights = np.array([1 / 2, 1 / 2, 2 / 3, 1 / 3, 1, 1])
    expected = page_rank(np.array(restart), first, second, weights, damping=0.5)[4:]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_without_a_name_in_the_question_or_in_any_document_the_most_similar_passage_is_first() -> None:
    assert ranked("which goat was called what").best_first[0] == 4
    assert ranked("Did Otto see a goat", "rain fell", "a goat ran").best_first[0] == 1
