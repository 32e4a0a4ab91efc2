"""WCEP: news articles on one event with a one-line summary (Gholipour Ghalandari et al. 2020).

    {"id", "date", "summary", "articles": [{"title", "text", "url", ...}, ...]}

The version distributed by PRIMERA's authors has no titles; it is read by
:mod:`bench.data.formats.document_summary`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document


class _Article(Fields):
    text: str
    title: str | None = None


class _Event(Fields):
    summary: str
    articles: list[_Article]
    id: int | str | None = None


def _parse(entry: Entry) -> Iterator[Parsed]:
    event = fields_of(entry, _Event)
    yield parsed(
        id=f"wcep-{entry.position if event.id is None else event.id}",
        question="",
        answers=[event.summary],
        documents=(Document(article.title or "", article.text) for article in event.articles),
        task="summarization",
        datasets=("wcep",),
    )


WCEP = Format("wcep", "WCEP", has("articles", "summary"), _parse)
