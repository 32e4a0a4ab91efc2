"""MuSiQue, as JSON lines (the release) or as an array (Trivedi et al. 2022).

    {"id", "question", "answer", "answer_aliases": [...], "answerable",
     "paragraphs": [{"idx", "title", "paragraph_text", "is_supporting"}, ...],
     "question_decomposition": [...]}

References are the answer and its aliases. MuSiQue-Full repeats each question with supporting paragraphs
removed (``answerable: false``, the same id): there the reference is "Unanswerable", as in Qasper. The
papers use MuSiQue-Ans, which has no such questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document, Evidence

UNANSWERABLE = "Unanswerable"


class _Paragraph(Fields):
    title: str
    paragraph_text: str
    is_supporting: bool


class _Entry(Fields):
    id: str
    question: str
    answer: str
    paragraphs: list[_Paragraph]
    answer_aliases: list[str] = []
    answerable: bool = True


def _recognises(entry: Entry) -> bool:
    paragraphs = entry.value.get("paragraphs")
    return "question_decomposition" in entry.value or (
        isinstance(paragraphs, list)
        and bool(paragraphs)
        and isinstance(paragraphs[0], dict)
        and "paragraph_text" in paragraphs[0]
    )


def _parse(entry: Entry) -> Iterator[Parsed]:
    fields = fields_of(entry, _Entry)
    hops = re.match(r"(\d)hop", fields.id)
    yield parsed(
        id=fields.id if fields.answerable else f"{fields.id}-unanswerable",
        question=fields.question,
        answers=[fields.answer, *fields.answer_aliases] if fields.answerable else [UNANSWERABLE],
        documents=(Document(part.title, part.paragraph_text) for part in fields.paragraphs),
        evidence=[Evidence(index) for index, part in enumerate(fields.paragraphs) if part.is_supporting],
        metadata={"hops": int(hops[1])} if hops else None,
        datasets=("musique",),
        notes=[] if fields.answerable else [f"an unanswerable question (MuSiQue-Full): {UNANSWERABLE!r}"],
    )


MUSIQUE = Format("musique", "MuSiQue", _recognises, _parse)
