"""Our own format: one complete example per line.

    {"id", "dataset", "task": "qa" | "summarization", "question", "answers": [...],
     "documents": [{"title", "text"}, ...]}

and optionally ``evidence`` (``[{"document", "sentence", "text"}]``, positions from 0) and ``metadata``.
Only ``question`` and ``documents`` are needed, and for a summary not even the question. A line without an
``id`` is numbered (``q1``), one without a ``task`` is a question, one without ``answers`` is answered and not
scored; a single answer or document may stand without brackets, a document as its text alone, and ``answer``
for ``answers``. Other fields (``source``) are not read; one that looks like one of these misspelt is refused.
The shipped sample sets are in this format.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from pydantic import Field, model_validator

from bench.data.entries import Entry
from bench.data.format import MOST_FAULTS, EntryError, Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document, Evidence, JsonValue, Task

ONE_LINE = (
    '{"question": "When was the reactor shut down?", "answers": ["June 2018"], '
    '"documents": [{"title": "reactor.txt", "text": "..."}]}'
)
"""A right line, for messages."""


class QuestionFields(Fields):
    """What a line says of a question, whether its documents are on the line or in files beside it."""

    id: str = ""
    dataset: str = ""
    task: Task = "qa"
    question: str = ""
    answers: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, line: Any) -> Any:
        """Short forms written out; what is empty (null, or a field of a CSV row) counts as left out."""
        if not isinstance(line, Mapping):
            return line
        full = {key: value for key, value in line.items() if value is not None and value != ""}
        if "answer" in full:
            full.setdefault("answers", full.pop("answer"))
        for name in ("answers", "documents"):
            if name in full and not isinstance(full[name], list):
                full[name] = [full[name]]
        if isinstance(full.get("answers"), list):
            full["answers"] = [_as_text(answer) for answer in full["answers"]]
        if "id" in full:
            full["id"] = _as_text(full["id"])
        return full

    def id_of(self, entry: Entry) -> str:
        """The line's id, or its number."""
        return self.id or f"q{entry.position + 1}"


_MOST_FIELDS = 100
"""Fields of an object that are compared with the known names; a slip stands among few."""
LineT = TypeVar("LineT", bound=QuestionFields)


def _as_text(value: Any) -> Any:
    """A number as text; anything else as it is."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class _Document(Fields):
    title: str = ""
    text: str

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value


class _Evidence(Fields):
    document: int = Field(ge=0)
    sentence: int | None = Field(default=None, ge=0)
    text: str | None = None


class _Line(QuestionFields):
    documents: list[_Document]
    evidence: list[_Evidence] | None = None
    metadata: dict[str, JsonValue] = {}


def _recognises(entry: Entry) -> bool:
    return "documents" in entry.value and not {"question", "answers", "answer"}.isdisjoint(entry.value)


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = spelled_fields_of(entry, _Line)
    for label in line.evidence or ():
        if label.document >= len(line.documents):
            raise EntryError(f"evidence names document {label.document}, but there are {len(line.documents)}")
        text = line.documents[label.document].text
        if label.sentence is None and label.text is not None and label.text not in text:
            raise EntryError(f"document {label.document} does not contain the evidence {label.text[:60]!r}")
    yield parsed(
        id=line.id_of(entry),
        question=line.question,
        answers=line.answers,
        documents=(Document(document.title, document.text) for document in line.documents),
        task=line.task,
        evidence=None
        if line.evidence is None
        else (Evidence(label.document, label.sentence, label.text) for label in line.evidence),
        metadata=line.metadata,
        datasets=(line.dataset,) if line.dataset else (),
    )


def spelled_fields_of(entry: Entry, view: type[LineT]) -> LineT:
    """The entry as a typed view; raises EntryError naming each field that does not fit or looks misspelt."""
    slips = [*_slips(entry.value, view, besides=("answer",))]
    for name, part in (("documents", _Document), ("evidence", _Evidence)):
        values = entry.value.get(name) if name in view.model_fields else None
        for number, value in enumerate(values if isinstance(values, list) else [values]):
            if len(slips) >= MOST_FAULTS:
                break
            slips += _slips(value, part, where=f"{name}[{number}]: ") if isinstance(value, dict) else ()
    try:
        line = fields_of(entry, view)
    except EntryError as error:
        raise EntryError("; ".join([str(error), *slips])) from None
    if slips:
        raise EntryError("; ".join(slips))
    return line


def _slips(
    value: Mapping[str, JsonValue], view: type[Fields], *, where: str = "", besides: Sequence[str] = ()
) -> Iterator[str]:
    """The fields that look like ones of the view which the value lacks."""
    known = {*view.model_fields, *besides}
    lacking = sorted(known - value.keys())
    for name in islice(value, _MOST_FIELDS):
        if name not in known and (near := _resembled(name, lacking)):
            yield f"{where}unknown field {name!r} (did you mean {near!r}?)"


def _resembled(name: str, known: Sequence[str]) -> str:
    """The known name that this one may be misspelt from; empty for none.

    Two neighbours exchanged ("taks") count as a slip in words too short for a ratio of common letters.
    """
    name = name.strip().lower()
    anagrams = [one for one in known if sorted(one) == sorted(name)]
    near = anagrams or difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return near[0] if near else ""


BENCH = Format("bench", "longdoc-bench", _recognises, _parse, answers_optional=True, example=ONE_LINE)
