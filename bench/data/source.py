"""A data file or folder on disk: its format, and a stream of its examples and problems."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bench.data.document_files import DOCUMENT_SUFFIXES, MAX_TEXT_CHARS, DocumentFiles
from bench.data.entries import Container, Entry, Problem, container_of, read_entries
from bench.data.folder import folder_format, names_files, questions_file, read_folder
from bench.data.format import EntryError, Format, Parsed
from bench.data.formats import recognise
from bench.data.formats.bench_lines import ONE_LINE
from bench.data.formats.narrativeqa import release_table
from bench.errors import DataError
from bench.files.hashing import file_sha256
from bench.schema import Example

DATA_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".parquet"})
"""Suffixes of data files in a folder; a file passed by its own path may have any name."""
_ENTRIES_TO_TRY = 50
"""Number of entries to inspect before a file's format counts as unknown."""


@dataclass(frozen=True)
class Source:
    """Data whose format is known."""

    path: Path
    """As the user passed it."""
    format: Format
    container: Container
    files: tuple[Path, ...]
    """The files that hold the entries, in order."""
    folder: DocumentFiles = DocumentFiles(())
    """The documents of a folder, whose questions are the entries; none: the entries are complete."""

    def examples(self) -> Iterator[Parsed | Problem]:
        """Every usable example in file order, interleaved with the problems."""
        ids = _Ids()
        yield from self.folder.problems
        for entry in self._entries():
            if isinstance(entry, Problem):
                yield entry
                continue
            place = str(entry.place)
            try:
                for parsed in self._parse(entry):
                    faults = list(faults_of(parsed.example, answers_optional=self.format.answers_optional))
                    yield from (Problem(place, fault) for fault in faults)
                    if faults:
                        continue
                    example = ids.admit(parsed.example, place)
                    yield from (Problem(place, oddity, "warning") for oddity in oddities_of(parsed))
                    if example.id != parsed.example.id:
                        first = ids.places[parsed.example.id]
                        message = f"id {parsed.example.id!r} belongs to a different example at {first}"
                        yield Problem(place, f"{message}; renamed to {example.id!r}", "warning")
                    yield replace(parsed, example=example, place=place)
            except EntryError as error:
                yield Problem(place, str(error))

    def digest(self) -> str:
        """SHA-256 over everything the examples depend on: file contents, plus names if there are several.

        Of a folder's documents it is their text as it was read.
        """
        files = [*self.files, *self.format.companions(self.files[0])]
        sums = [(file.name, file_sha256(file)) for file in files]
        sums += [(document.title, document.id) for document in self.folder.documents]
        if len(sums) == 1:
            return f"sha256:{sums[0][1]}"
        listing = "".join(f"{checksum}  {name}\n" for name, checksum in sums)
        return f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"

    def _entries(self) -> Iterator[Entry | Problem]:
        position = 0
        for file in self.files:
            for entry in read_entries(file, self.container):
                if isinstance(entry, Entry):
                    yield replace(entry, position=position)
                    position += 1
                else:
                    yield entry

    def _parse(self, entry: Entry) -> Iterator[Parsed]:
        if not self.format.recognises(entry) and (other := recognise(entry)) is not None:
            raise EntryError(f"a {other.title} entry among {self.format.title} entries")
        return self.format.parse(entry)


class _Ids:
    """Keeps ids unique within a source."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._contents: dict[tuple[str, str, str, tuple[str, ...]], str] = {}
        self._copies: Counter[str] = Counter()

    def admit(self, example: Example, place: str) -> Example:
        """The example, renamed if its id is taken; raises EntryError for a duplicate example."""
        content = (example.id, example.question, example.documents.id, example.answers)
        if (first := self._contents.get(content)) is not None:
            raise EntryError(f"repeats the example {example.id!r} of {first}; remove one of the two")
        id = example.id
        while id in self.places:
            self._copies[example.id] += 1
            id = f"{example.id}-{self._copies[example.id] + 1}"
        self._contents[content] = self.places[id] = place
        return replace(example, id=id)


def faults_of(example: Example, *, answers_optional: bool = False) -> Iterator[str]:
    """What makes an example unusable; answers_optional: not that it has no reference answer."""
    if example.task == "qa" and not example.question.strip():
        yield "the question is empty"
    unanswered = not any(answer.strip() for answer in example.answers)
    if unanswered and not (answers_optional and not example.answers):
        yield "there is no reference answer; is this a test file whose answers are withheld?"
    if not example.id.strip():
        yield "the id is empty"
    for document in example.documents.documents:
        if len(document.text) > MAX_TEXT_CHARS:
            size = f"{len(document.text):,} characters"
            yield f"the document {document.title!r} has {size}; at most {MAX_TEXT_CHARS:,} are read. Split it"
    for name, text in _texts(example):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            yield f"{name} holds half a character (surrogate {text[error.start]!a} at {error.start})"


def oddities_of(parsed: Parsed) -> Iterator[str]:
    """What is accepted but worth a warning."""
    yield from parsed.notes
    if not parsed.example.answers:
        yield "no reference answer: the question is answered and not scored"
    elif not all(answer.strip() for answer in parsed.example.answers):
        yield "one of the reference answers is empty"
    elif not any(re.search("[a-z0-9]", answer.lower()) for answer in parsed.example.answers):
        yield "no reference answer has a letter a-z or a digit, all that ROUGE counts: ROUGE will be 0"
    if not parsed.example.documents.documents:
        yield "there are no documents"
    elif not any(document.text.strip() for document in parsed.example.documents.documents):
        yield "all documents are empty"


def _texts(example: Example) -> Iterator[tuple[str, str]]:
    yield "question", example.question
    yield from (("an answer", answer) for answer in example.answers)
    for number, document in enumerate(example.documents.documents):
        yield f"document {number}", document.full_text


def open_source(path: Path, formats: Sequence[str] = ()) -> Source:
    """The data at ``path``, its format detected from its content.

    formats: those that a card names, which come first where several recognise the content. Raises DataError
    if there are no data, if the format is unknown, or if a folder holds several unrelated data files.
    """
    if path.is_dir():
        table = release_table(path)
        questions = None if table else questions_file(path, data_files(path))
        if questions is not None:
            files = read_folder(path, questions)
            return Source(path, folder_format(files), container_of(questions), (questions,), files)
        return open_files(path, [table] if table else _files_of_folder(path), formats)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder.{_nearest(path)}")
    if not path.is_file():
        raise DataError(f"{path}: not a regular file; save the data to one first.")
    source = open_files(path, [path], formats)
    if source.format.name == "bench" and names_files(path):
        raise DataError(f"{path}: its documents are names of files; pass their folder: {path.parent}")
    return source


def open_files(path: Path, files: Sequence[Path], formats: Sequence[str] = ()) -> Source:
    """The data in ``files``, the parts of one source; raises DataError like :func:`open_source`."""
    container = container_of(files[0])
    first_problem: Problem | None = None
    first_entry: Entry | None = None
    for entry in islice(read_entries(files[0], container), _ENTRIES_TO_TRY):
        if isinstance(entry, Problem):
            if entry.severity == "error":
                first_problem = first_problem or entry
            continue
        first_entry = first_entry or entry
        format = recognise(entry, formats)
        if format is not None:
            return Source(path, format, container, tuple(files))
    if first_entry is not None:
        raise DataError(
            f"{first_entry.place}: {container} in an unknown format, with the fields "
            f"{', '.join(list(first_entry.value)[:12])}. {_as_our_own(first_entry)} One right line: "
            f"{ONE_LINE} Formats of published data sets: docs/guide.md"
        )
    raise DataError(str(first_problem or f"{files[0]}:1: the file holds no entries; expected at least one."))


_OTHER_NAMES = {
    "question": ("query", "input", "instruction", "prompt", "questions"),
    "documents": ("document", "context", "contexts", "text", "article", "passage", "passages", "content"),
    "answers": ("answer", "target", "output", "reference", "references", "label", "gold"),
}
"""Field of our own format -> what others call it."""


def _as_our_own(entry: Entry) -> str:
    """What our own format would need of the entry, with a guess at which of its fields hold it."""
    guesses = []
    for name, others in _OTHER_NAMES.items():
        synonyms = [field for field in entry.value if field.lower() in others and name not in entry.value]
        near = synonyms or difflib.get_close_matches(name, islice(entry.value, 100), n=1, cutoff=0.7)
        guesses += [f"{near[0]} -> {name}"] if near and near[0] != name else []
    renamed = f" Perhaps: {', '.join(guesses)}." if guesses else ""
    return f"Our own format needs 'question' and 'documents', and for scores 'answers'.{renamed}"


def data_files(folder: Path) -> list[Path]:
    """The data files directly in a folder, by name."""
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}.") from None
    return [
        file
        for file in inside
        if file.suffix.lower() in DATA_SUFFIXES and not file.name.startswith(".") and file.is_file()
    ]


_SEVERAL = "Several data sets: a folder or a file for each, by its name (hotpotqa/, hotpotqa.jsonl)."


def _files_of_folder(folder: Path) -> list[Path]:
    """The one data file of a folder, all its shards, or its files of one example each."""
    files = data_files(folder)
    shards = [re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})(-\w+)?\.parquet", file.name) for file in files]
    if files and all(shards) and len({(m[1], m[3]) for m in shards if m}) == 1:
        expected = int(shards[0][3]) if shards[0] else 0
        if len(files) != expected:
            raise DataError(f"{folder}: {len(files)} of {expected} shards; fetch the others.")
        return files
    if len(files) == 1 or (files and _is_one_per_file(files[0])):
        return files
    if not files:
        data, texts = (", ".join(sorted(kinds)) for kinds in (DATA_SUFFIXES, DOCUMENT_SUFFIXES))
        raise DataError(f"{folder}: no data file in it ({data}), and no document ({texts}). {_SEVERAL}")
    listed = ", ".join(file.name for file in files[:8]) + (", ..." if len(files) > 8 else "")
    raise DataError(f"{folder}: {len(files)} data files in this folder; pass one: {listed}. {_SEVERAL}")


def _is_one_per_file(file: Path) -> bool:
    """Whether a file's format has one file per example."""
    try:
        return open_files(file, [file]).format.one_per_file
    except DataError:
        return False


def _nearest(path: Path) -> str:
    folder = path.parent
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f" Did you mean {folder / near[0]}?" if near else ""
