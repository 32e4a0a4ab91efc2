"""A data format: how its entries are recognised and how an entry becomes examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.data.entries import Entry
from bench.schema import Document, DocumentSet, Evidence, Example, JsonValue, Task

MOST_FAULTS = 8
"""Faults of one entry that are named."""


class EntryError(Exception):
    """An entry that cannot become examples; the message names the field and what was expected."""


@dataclass(frozen=True)
class Parsed:
    """An example as its file states it, before a card has claimed it (``example.dataset`` is empty)."""

    example: Example
    datasets: tuple[str, ...] = ()
    """The data sets that the entry may belong to; empty if its content names none."""
    split: str = ""
    """The entry's split, if one file holds several."""
    notes: tuple[str, ...] = ()
    """Oddities that were accepted, each worth a warning."""
    place: str = ""
    """Where its entry is; set by the source."""


@dataclass(frozen=True)
class Format:
    """One file format of benchmark data."""

    name: str
    title: str
    recognises: Callable[[Entry], bool]
    """Whether an entry has this format; also true for one that lacks a field or two."""
    parse: Callable[[Entry], Iterator[Parsed]]
    """The examples of an entry; raises EntryError."""
    companions: Callable[[Path], list[Path]] = lambda path: []
    """Files next to ``path`` that the examples also depend on."""
    one_per_file: bool = False
    """Whether a folder of this format holds one file per example."""
    answers_optional: bool = False
    """Whether a question without reference answers is answered and not scored; else it is an error."""
    example: str = ""
    """A right entry, for messages; empty for formats of others."""


class Fields(BaseModel):
    """Base of the typed views of entries: no coercion, extra fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


FieldsT = TypeVar("FieldsT", bound=Fields)


def fields_of(entry: Entry, view: type[FieldsT]) -> FieldsT:
    """The entry as a typed view; raises EntryError naming each field that does not fit."""
    try:
        return view.model_validate(entry.value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        shown = [_fault(dict(fault)) for fault in faults[:MOST_FAULTS]]
        shown += [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
        raise EntryError("; ".join(shown)) from None


def parsed(
    *,
    id: str,
    question: str,
    answers: Iterable[str],
    documents: Iterable[Document],
    task: Task = "qa",
    evidence: Iterable[Evidence] | None = None,
    metadata: dict[str, JsonValue] | None = None,
    datasets: tuple[str, ...] = (),
    split: str = "",
    notes: Iterable[str] = (),
) -> Parsed:
    """One example without its repeated answers and evidence."""
    example = Example(
        id=id,
        dataset="",
        task=task,
        question=question,
        answers=tuple(dict.fromkeys(answers)),
        documents=DocumentSet(tuple(documents)),
        evidence=None if evidence is None else tuple(dict.fromkeys(evidence)),
        metadata=metadata or {},
    )
    return Parsed(example, datasets, split, tuple(notes))


def rows_of(columns: JsonValue, name: str) -> list[dict[str, JsonValue]]:
    """``{a: [1, 2], b: [3, 4]}`` as ``[{a: 1, b: 3}, {a: 2, b: 4}]``; raises EntryError for other columns."""
    if not isinstance(columns, Mapping) or not all(isinstance(c, Sequence) for c in columns.values()):
        raise EntryError(f"{name}: expected an object of columns (lists)")
    if len({len(column) for column in columns.values()}) > 1:
        raise EntryError(f"{name}: its columns have different lengths")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def has(*names: str) -> Callable[[Entry], bool]:
    """A recogniser: the entry has all these fields."""
    return lambda entry: all(name in entry.value for name in names)


_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
    "int_type": "a whole number",
}


def _fault(fault: dict[str, Any]) -> str:
    where = ""
    for part in fault["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    if fault["type"] == "missing":
        return f"{where} is missing"
    expected = _EXPECTED.get(fault["type"])
    says = f"expected {expected}" if expected else fault["msg"][0].lower() + fault["msg"][1:]
    value = repr(fault["input"])
    return f"{where}: {says}, found {value if len(value) <= 60 else value[:57] + '...'}"
