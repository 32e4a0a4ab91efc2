"""Our own format: one complete example per line.

    {"id", "dataset", "task": "qa" | "summarization", "question", "answers": [...],
     "documents": [{"title", "text"}, ...]}

and optionally ``evidence`` (``[{"document", "sentence", "text"}]``, positions from 0) and ``metadata``.
Other fields (``source``, ``license``) are ignored. The shipped sample sets are in this format.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from bench.data.entries import Entry
from bench.data.format import EntryError, Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document, Evidence, JsonValue, Task


class _Document(Fields):
    title: str = ""
    text: str


class _Evidence(Fields):
    document: int = Field(ge=0)
    sentence: int | None = Field(default=None, ge=0)
    text: str | None = None


class _Line(Fields):
    id: str
    dataset: str
    task: Task
    question: str
    answers: list[str]
    documents: list[_Document]
    evidence: list[_Evidence] | None = None
    metadata: dict[str, JsonValue] = {}


def _recognises(entry: Entry) -> bool:
    return "documents" in entry.value and ("question" in entry.value or "answers" in entry.value)


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = fields_of(entry, _Line)
    for label in line.evidence or ():
        if label.document >= len(line.documents):
            raise EntryError(f"evidence names document {label.document}, but there are {len(line.documents)}")
        text = line.documents[label.document].text
        if label.sentence is None and label.text is not None and label.text not in text:
            raise EntryError(f"document {label.document} does not contain the evidence {label.text[:60]!r}")
    yield parsed(
        id=line.id,
        question=line.question,
        answers=line.answers,
        documents=(Document(document.title, document.text) for document in line.documents),
        task=line.task,
        evidence=None
        if line.evidence is None
        else (Evidence(label.document, label.sentence, label.text) for label in line.evidence),
        metadata=line.metadata,
        datasets=(line.dataset,),
    )


BENCH = Format("bench", "longdoc-bench", _recognises, _parse)
