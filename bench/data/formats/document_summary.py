"""Lines of a text and its summary: GovReport and WCEP-10 on the hub.

    {"report", "summary"}        GovReport
    {"document", "summary"}      GovReport in its authors' hub repository; WCEP-10

``document`` is a text or a list of texts; WCEP-10 joins its articles with ``</s>``. Lines with a
``document`` name no data set; they belong to whichever one the user loads them as.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import AliasChoices, Field

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document

SEPARATOR = "</s>"
"""Separates the articles of WCEP-10 (PRIMERA's code)."""


class _Line(Fields):
    document: str | list[str] = Field(validation_alias=AliasChoices("report", "document"))
    summary: str
    id: str | int | None = None


def _recognises(entry: Entry) -> bool:
    text = entry.value.get("report", entry.value.get("document"))
    return isinstance(text, str | list) and "summary" in entry.value


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = fields_of(entry, _Line)
    texts = line.document.split(SEPARATOR) if isinstance(line.document, str) else line.document
    known = ("gov_report",) if "report" in entry.value else ()
    yield parsed(
        id=f"summary-{entry.position if line.id is None else line.id}",
        question="",
        answers=[line.summary],
        documents=(Document("", text.strip()) for text in texts if text.strip()),
        task="summarization",
        datasets=known,
        notes=[] if known else ["the line does not say which data set it belongs to"],
    )


DOCUMENT_SUMMARY = Format("document-summary", "text and summary (GovReport, WCEP-10)", _recognises, _parse)
