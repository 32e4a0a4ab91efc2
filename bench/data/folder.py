"""A folder of documents with a file of questions: data as people have them.

The questions are CSV or JSON lines with a field ``question`` and optionally ``id``, ``answers``, ``task``,
``dataset`` and ``documents``: names of files in the folder that the question is about. Without the last it is
about all of them. In CSV, several answers or documents are separated by `` | ``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import model_validator

from bench.data.document_files import DocumentFiles, has_documents, read_documents
from bench.data.entries import Entry, container_of, read_entries
from bench.data.format import EntryError, Format, Parsed, parsed
from bench.data.formats import recognise
from bench.data.formats.bench_lines import QuestionFields, spelled_fields_of
from bench.errors import DataError
from bench.schema import Document

QUESTIONS = "questions"
"""Name of the questions file of a folder, without its ending; a single data file may have any name."""

LEFT_OUT = " (left out)"
_LONGEST_NAME = 250
"""Characters of a path in a folder; anything longer is a text."""

ONE_QUESTION = "question,answers,documents\nWhen was the reactor shut down?,June 2018,reactor.txt"
"""A right file of questions."""


def folder_format(files: DocumentFiles) -> Format:
    """The questions file of a folder as a format that knows its documents."""
    return Format(
        "folder",
        "documents with a file of questions",
        is_question,
        lambda entry: _parse(entry, files),
        answers_optional=True,
        example=ONE_QUESTION,
    )


def questions_file(folder: Path, data_files: Sequence[Path]) -> Path | None:
    """The file of questions on the documents of a folder; None for a folder of other data.

    data_files: those directly in the folder. Raises DataError for a folder of documents without questions.
    """
    named = [file for file in data_files if file.stem.lower() == QUESTIONS]
    if len(data_files) > 1 and not named or not has_documents(folder):
        return None
    if not data_files:
        raise DataError(
            f'{folder}: a folder of documents without questions. To ask one: bench ask "QUESTION" {folder}. '
            f"As a data set it needs a file questions.csv in it, such as:\n{ONE_QUESTION}"
        )
    file = (named or list(data_files))[0]
    return file if named or _holds_questions(file) else None


def _holds_questions(file: Path) -> bool:
    """Whether the first entry of a file is a question about files beside it, and no complete example."""
    try:
        entries = read_entries(file, container_of(file))
        first = next((entry for entry in entries if isinstance(entry, Entry)), None)
    except DataError:
        return False
    if first is None or not is_question(first):
        return False
    format = recognise(first)
    return format is None or (format.name == "bench" and _names_files(first))


def names_files(file: Path) -> bool:
    """Whether the documents of the first entry are names of files beside it."""
    entries = (entry for entry in read_entries(file, container_of(file)) if isinstance(entry, Entry))
    return any(map(_names_files, islice(entries, 1)))


def _names_files(entry: Entry) -> bool:
    folder, named = entry.place.path.parent, _lower(entry.value).get("documents")
    names = named.split(" | ") if isinstance(named, str) else named
    return isinstance(names, list) and all(
        isinstance(name, str) and len(name) < _LONGEST_NAME and (folder / name.strip()).is_file()
        for name in names or [None]
    )


def read_folder(folder: Path, questions: Path) -> DocumentFiles:
    """The folder's documents, with a warning for each file that cannot be read.

    Raises DataError if no document can be read.
    """
    files = read_documents([folder], besides=[questions])
    files.require_one()
    problems = tuple(
        replace(problem, message=f"{problem.message}{LEFT_OUT}", severity="warning")
        if problem.severity == "error"
        else problem
        for problem in files.problems
    )
    return replace(files, problems=problems)


class _Question(QuestionFields):
    documents: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _names(cls, row: Any) -> Any:
        """Several answers or documents in one field, apart."""
        full = dict(row) if isinstance(row, Mapping) else row
        for name in ("answers", "answer", "documents"):
            if isinstance(full, dict) and full.get(name) and isinstance(full[name], str):
                full[name] = [part.strip() for part in full[name].split(" | ") if part.strip()]
        return full


def is_question(entry: Entry) -> bool:
    """Whether an entry may be a question on documents beside it."""
    return "question" in _lower(entry.value)


def _lower(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its field names in lower case, ``document``, ``files`` and ``file`` as ``documents``."""
    lower = {str(name).strip().lower(): value for name, value in row.items()}
    for other in [name for name in ("files", "file", "document") if name in lower]:
        lower.setdefault("documents", lower.pop(other))
    return lower


def _parse(entry: Entry, files: DocumentFiles) -> Iterator[Parsed]:
    entry = replace(entry, value=_lower(entry.value))
    question = spelled_fields_of(entry, _Question)
    if "question" not in entry.value and question.task == "qa":
        raise EntryError(f"there is no field 'question'; there are {', '.join(entry.value)}")
    about = [_named(name, files) for name in dict.fromkeys(question.documents)]
    yield parsed(
        id=question.id_of(entry),
        question=question.question,
        answers=question.answers,
        documents=about or files.documents,
        task=question.task,
        datasets=(question.dataset,) if question.dataset else (),
    )


def _named(name: str, files: DocumentFiles) -> Document:
    """The document in the file of that name; raises EntryError for none, or for several of them."""
    matches = [document for document in files.documents if document.title == name]
    matches = matches or [document for document in files.documents if Path(document.title).name == name]
    if len(matches) == 1:
        return matches[0]
    titles = [document.title for document in files.documents]
    if matches:
        raise EntryError(f"{name!r} may be {' or '.join(d.title for d in matches)}; give its folder as well")
    unread = [p.message for p in files.problems if p.place == name or p.place.endswith(f"/{name}")]
    if unread:
        raise EntryError(f"document {name!r} is unreadable: {unread[0].removesuffix(LEFT_OUT).rstrip('.')}")
    near = difflib.get_close_matches(name, titles, n=1, cutoff=0.6)
    guess = f"is {near[0]!r} meant?" if near else f"there are {', '.join(titles[:8])}"
    raise EntryError(f"no document {name!r} that could be read; {guess}")
