"""Documents and questions as one data file: ``bench data import``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.data.entries import Problem, container_of
from bench.data.folder import open_folder
from bench.data.loading import Tally
from bench.data.own import own_card
from bench.data.source import Source, open_source
from bench.errors import DataError
from bench.files.atomic import write_text
from bench.schema import JsonValue


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
    lines: list[dict[str, JsonValue]] = []
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
        lines.append(
            {
                "id": example.id,
                "dataset": named,
                "task": example.task,
                "question": example.question,
                "answers": list(example.answers),
                "documents": [
                    {"title": document.title, "text": document.text}
                    for document in example.documents.documents
                ],
            }
        )
    if not lines:
        raise DataError(f"{questions or source}: no question in it. A right file: {opened.format.example}")
    write_text(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return Imported(lines[0]["dataset"], len(lines), with_answers, len(documents), tuple(warnings.lines()))
