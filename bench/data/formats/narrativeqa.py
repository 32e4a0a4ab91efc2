"""NarrativeQA: the authors' release folder and the hub's rows (Kočiský et al. 2018).

The release is ``qaps.csv`` (document_id, set, question, answer1, answer2, ...), and the stories that its
``download_stories.sh`` writes to ``tmp/<document_id>.content``; the document of a question is the whole
story. A hub row has the question and its story: ``document: {id, text}``, ``question: {text}``,
``answers: [{text}]``. Questions have no ids; theirs are made of the document id and the row number.

Stories are stored as the web sites served them: mostly UTF-8, some Latin-1, some with HTML left in.
The text stays unchanged except that a byte order mark is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from bench.data.entries import Entry
from bench.data.format import EntryError, Fields, Format, Parsed, fields_of, has, parsed
from bench.schema import Document


class _Question(Fields):
    document_id: str
    set: str
    question: str
    answer1: str
    answer2: str


class _Text(Fields):
    text: str


class _HubDocument(Fields):
    id: str
    text: str


class _Row(Fields):
    document: _HubDocument
    question: _Text
    answers: list[_Text]


def release_table(folder: Path) -> Path | None:
    """The question table of a release folder; None for any other folder."""
    table = folder / "qaps.csv"
    return table if table.is_file() else None


def _parse_release(entry: Entry) -> Iterator[Parsed]:
    question = fields_of(entry, _Question)
    path = entry.place.path.parent / "tmp" / f"{question.document_id}.content"
    if "/" in question.document_id or not path.is_file():
        raise EntryError(f"its story {path} is missing; run download_stories.sh in {path.parent.parent}")
    document, notes = _read_story(path, path.stat().st_mtime_ns)
    yield parsed(
        id=f"{question.document_id}-{entry.position}",
        question=question.question,
        answers=(question.answer1, question.answer2),
        documents=(document,),
        datasets=("narrativeqa",),
        split=question.set,
        notes=notes,
    )


def _parse_row(entry: Entry) -> Iterator[Parsed]:
    row = fields_of(entry, _Row)
    yield parsed(
        id=f"{row.document.id}-{entry.position}",
        question=row.question.text,
        answers=(answer.text for answer in row.answers),
        documents=(Document("", row.document.text),),
        datasets=("narrativeqa",),
    )


@lru_cache(maxsize=2)  # questions on one story are adjacent
def _read_story(path: Path, changed: int) -> tuple[Document, tuple[str, ...]]:
    content = path.read_bytes()
    try:
        return Document("", content.decode("utf-8-sig")), ()
    except UnicodeDecodeError:  # Latin-1 decodes every byte
        return Document("", content.decode("latin-1")), (f"{path.name} is not UTF-8; read as Latin-1",)


NARRATIVEQA_RELEASE = Format(
    "narrativeqa-release",
    "NarrativeQA release, whole stories",
    has("document_id", "question", "answer1"),
    _parse_release,
    companions=lambda path: sorted((path.parent / "tmp").glob("*.content")),
)
NARRATIVEQA_HUB = Format(
    "narrativeqa-hub",
    "NarrativeQA, hub rows",
    lambda entry: isinstance(entry.value.get("document"), dict) and "question" in entry.value,
    _parse_row,
)
