"""LinearRAG: names lead from the question's passage to the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.schema import Document, DocumentSet, Question
from methods.retrievers import linear_rag
from methods.retrievers.linear_rag import LinearRag, LinearRagConfig, names_in
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
    near = ranked("Whom did Mara Feld give the kite")
    monkeypatch.setattr(linear_rag, "TIERS", 1)
    alone = ranked("Whom did Mara Feld give the kite")
    assert list(near.best_first[:2]) == [1, 2]
    assert near.scores[2] > alone.scores[2]


def test_without_a_name_in_the_question_or_in_any_document_the_most_similar_passage_is_first() -> None:
    assert ranked("which goat was called what").best_first[0] == 4
    assert ranked("Did Otto see a goat", "rain fell", "a goat ran").best_first[0] == 1
