"""BookSum: chapters with summaries from study guides (Kryściński et al. 2022).

Rows of one chapter and one summary (``chapter``, ``chapter_length``, ``summary_text``, ``book_id``,
``source``), as CSV or parquet.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document

LENGTH = "chapter_length"
"""Metadata field: length of the chapter in words, as the row states it."""


class _Row(Fields):
    book_id: str
    chapter: str
    summary_text: str
    source: str = ""
    chapter_length: float | None = Field(default=None, strict=False)  # text in a CSV cell


def _parse(entry: Entry) -> Iterator[Parsed]:
    row = fields_of(entry, _Row)
    yield parsed(
        id="-".join(part for part in ("booksum", row.book_id, row.source) if part),
        question="",
        answers=[row.summary_text],
        documents=(Document("", row.chapter),),
        task="summarization",
        metadata=None if row.chapter_length is None else {LENGTH: row.chapter_length},
        datasets=("booksum",),
    )


BOOKSUM = Format("booksum", "BookSum", has("chapter", "summary_text"), _parse)
