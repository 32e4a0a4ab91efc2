"""Documents and questions as one data file: ``bench data import``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.data.entries import Problem, container_of
from bench.data.folder import open_folder
from bench.data.loading import Tally
from bench.data.own import own_card
from bench.data.source import Source, open_source
from bench.errors import DataError
from bench.files.atomic import write_text
from bench.schema import Example, JsonValue


@dataclass(frozen=True)
class Imported:
    """What was written of a folder."""

    dataset: str
    questions: int
    with_answers: int
    documents: int
    warnings: tuple[str, ...]


def import_folder(source: Path, questions: Path | None, dataset: str | None, out: Path) -> Imported:
    """Write the documents of a folder (or of one file) with their questions as lines of our own format.

    questions: a file of questions; None: the folder's. dataset: the name of the data; None: what the
    questions say, else the folder's. Raises DataError at the first problem of a question, and for a folder
    without questions or without a document that can be read.
    """
    if questions is not None:
        folder = open_folder(source, questions)
        opened = Source(source, folder.format, container_of(questions), (questions,), folder)
    else:
        opened = open_source(source)
    card = own_card(dataset or source.resolve().stem)
    warnings = Tally()
    documents: set[str] = set()
    examples: list[Example] = []
    with_answers = 0
    for item in opened.examples():
        if isinstance(item, Problem):
            if item.severity == "error":
                raise DataError(f"{item}. A right file: {opened.format.example}")
            warnings.add(item.place, item.message)
            continue
        example = item.example
        documents |= {document.id for document in example.documents.documents}
        with_answers += bool(example.answers)
        named = item.datasets[0] if item.datasets and dataset is None else card.name
        examples.append(replace(example, dataset=named, evidence=None, metadata={}))
    if not examples:
        raise DataError(f"{questions or source}: no question in it. A right file: {opened.format.example}")
    write_lines(out, examples)
    return Imported(examples[0].dataset, len(examples), with_answers, len(documents), tuple(warnings.lines()))


def write_lines(path: Path, examples: Sequence[Example]) -> None:
    """Write examples as lines of our own format (:mod:`bench.data.formats.bench_lines`)."""
    lines = (json.dumps(_line(example), ensure_ascii=False) + "\n" for example in examples)
    write_text(path, "".join(lines))


def _line(example: Example) -> dict[str, JsonValue]:
    line: dict[str, JsonValue] = {
        "id": example.id,
        "dataset": example.dataset,
        "task": example.task,
        "question": example.question,
        "answers": list(example.answers),
        "documents": [
            {"title": document.title, "text": document.text} for document in example.documents.documents
        ],
    }
    if example.evidence is not None:
        line["evidence"] = [asdict(label) for label in example.evidence]
    if example.metadata:
        line["metadata"] = dict(example.metadata)
    return line
