"""A data set's examples from one of three sources: the shipped sample, the hub, or the user's own file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.data import hub
from bench.data.cards import Card, Selection, card_names, list_cards, sample_names
from bench.data.entries import Problem
from bench.data.source import DATA_SUFFIXES, SoundExample, Source, data_files, open_files, open_source
from bench.errors import ConfigError, DataError
from bench.files.paths import SAMPLE_SETS
from bench.schema import DocumentSet, Example

SourceKind = Literal["sample", "hub", "path"]


class DataUnavailableError(DataError):
    """A data set that is not available from the requested source, although others are."""


@dataclass(frozen=True)
class LoadedData:
    """Examples and where they came from."""

    examples: tuple[Example, ...]
    label: str
    """As shown in records, tables and the terminal: ``qasper (sample)``, ``qasper (dev.json)``."""
    source: SourceKind
    format: str
    """Name of the format (:mod:`bench.data.formats`)."""
    revision: str
    """The hub's commit, or ``sha256:`` and the hash of the file contents."""
    warnings: tuple[str, ...] = ()
    """Oddities of the data, each kind once with its first place and count."""


def load(card: Card, data: str = "sample", limit: int | None = None, *, training: bool = False) -> LoadedData:
    """The first ``limit`` examples that the card selects, in file order.

    data: ``sample`` (the set that ships with the project), ``hub`` (the full set), or a path. In a folder
    with several sets, the file or folder named after this one is used, and of several files there the one
    with most questions.
    training: load what a method may learn from instead of what is evaluated. From the hub these are the
    card's training files, from the sample its training part if it has one, from a folder its file ``train``
    if it has one beside the evaluated ``test``, from any other path every example that names no other
    split. Raises DataError, naming file and line, at the first problem and for data of another set;
    DataUnavailableError if only this set is missing; ConfigError for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit {limit}: expected at least 1; leave it out to use all examples.")
    kind: SourceKind
    chosen = ""
    match data:
        case "sample":
            kind, name, source = "sample", "sample", _sample(card, training)
        case "hub":
            kind, name, source = "hub", "hub", _hub(card, training)
        case _:
            if any("\ud800" <= character <= "\udfff" for character in data):
                raise ConfigError(f"{data!a}: the name is not UTF-8, and records hold it. Rename it.")
            path, chosen = _own_part(Path(data).expanduser(), card, training)
            kind, name, source = "path", path.resolve().name, open_source(path, card.formats)
    selector = _Selector(card, kind, training)
    examples, warnings = _collect(card, source, limit, selector)
    if chosen:
        warnings.insert(0, chosen)
    expected = card.hub.examples if card.hub and kind == "hub" and not training else None
    if limit is None and expected is not None and selector.seen != expected:
        warnings.append(f"{source.path}: {selector.seen} examples; the card expects {expected}")
    return LoadedData(
        examples=tuple(examples),
        label=f"{card.name} ({name})",
        source=kind,
        format=source.format.name,
        revision=card.hub.revision if card.hub and kind == "hub" else source.digest(),
        warnings=tuple(warnings),
    )


def claim(card: Card, sound: SoundExample) -> Problem | None:
    """Why an example does not belong to the card's data set; None if it does."""
    if sound.datasets and not any(card.accepts(name) for name in sound.datasets):
        named = " or ".join(sound.datasets)
        known = [name for name in sound.datasets if any(other.accepts(name) for other in list_cards())]
        advice = (
            f"use --dataset {known[0]}, or a file of {card.name}"
            if known
            else f"leave out --dataset, or use a file of {card.name}"
        )
        return Problem(str(sound.place), f"this is {named} data, not {card.name}; {advice}")
    if sound.example.task != card.task:
        return Problem(str(sound.place), f"a {sound.example.task} example; {card.name} is a {card.task} set")
    return None


def unwanted_split(card: Card, sound: SoundExample, split: str | None = None) -> str:
    """The example's split if it is not the wanted one, else empty.

    split: the wanted split, by default the evaluated one; empty: all splits.
    """
    wanted = card.split if split is None else split
    return sound.split if wanted and sound.split != wanted else ""


class _Selector:
    """Selects examples by split and by the card's selection, and counts the ones it drops."""

    def __init__(self, card: Card, kind: SourceKind, training: bool) -> None:
        self.training = training
        self.split = TRAINING_SPLIT if training and card.split else card.split
        self.selection = None if kind == "sample" else card.selection
        evaluated = self.selection if not training else None
        self.documents = evaluated.documents if evaluated else None
        self.rows = evaluated.rows if evaluated else None
        self.skip = evaluated.skip if evaluated and kind == "hub" else None
        self.skipped: dict[str, None] = {}
        """Ids of the document sets at the beginning that are left out."""
        self.seen = 0
        """Examples of the split, selected or not."""
        self.other_splits: Counter[str] = Counter()
        self.too_short = 0
        self.over_document_limit = 0
        self.over_row_limit = 0

    def accepts(self, card: Card, sound: SoundExample) -> bool:
        """Whether the example is used; dropped examples are counted."""
        if other := unwanted_split(card, sound, self.split):
            self.other_splits[other] += 1
            return False
        self.seen += 1
        documents = sound.example.documents.id
        if documents in self.skipped or len(self.skipped) < (self.skip or 0):
            self.skipped[documents] = None
            return False
        if self.selection is None or self.selection.more_than is None:
            return True
        long = length(sound.example, self.selection) > self.selection.more_than
        self.too_short += not long
        return long

    def listed_splits(self) -> str:
        """The dropped splits with their sizes: ``dev 12, train 400``."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.other_splits.items()))

    def remarks(self) -> Iterator[str]:
        """One sentence per kind of dropped examples."""
        if self.other_splits:
            yield f"only the split {self.split!r} is used; left out: {self.listed_splits()}"
        if self.too_short and self.selection:
            unit = self.selection.measured_by or "words"
            yield (
                f"only examples of more than {self.selection.more_than:,} ({unit}) are used, as in "
                f"{self.selection.source}; left out: {self.too_short}"
            )
        if self.skipped and self.selection:
            yield (
                f"questions on the first {len(self.skipped)} document sets are left out, as in "
                f"{self.selection.source}"
            )
        if self.over_row_limit and self.selection:
            yield (
                f"only the first {self.rows} questions are used, as in {self.selection.source}; left out: "
                f"{self.over_row_limit}"
            )
        if self.over_document_limit and self.selection:
            yield (
                f"only the questions on the first {self.documents} document sets are used, as in "
                f"{self.selection.source}; left out: {self.over_document_limit}"
            )


TRAINING_SPLIT = "train"
"""The training split's name in files that hold several splits."""


def length(example: Example, selection: Selection) -> float:
    """The length that a selection compares: words of documents and titles, or a metadata field."""
    recorded = example.metadata.get(selection.measured_by) if selection.measured_by else None
    if recorded is not None:
        return float(recorded)
    return sum(len(document.full_text.split()) for document in example.documents.documents)


def _collect(
    card: Card, source: Source, limit: int | None, selector: _Selector
) -> tuple[list[Example], list[str]]:
    examples: list[Example] = []
    warnings = Tally()
    documents: dict[str, DocumentSet] = {}  # questions on one text share it in memory
    for sound in _sound_examples(card, source, warnings):
        if not selector.accepts(card, sound):
            continue
        example = sound.example
        if selector.documents == len(documents) and example.documents.id not in documents:
            selector.over_document_limit += 1
            continue
        if selector.rows == len(examples):
            selector.over_row_limit += 1
            continue
        shared = documents.setdefault(example.documents.id, example.documents)
        question = example.question if example.question.strip() else card.query
        examples.append(replace(example, dataset=card.name, documents=shared, question=question))
        if limit is not None and len(examples) == limit:
            break
    remarks = list(selector.remarks())
    if not examples and selector.other_splits and not selector.seen:
        purpose = "learned from" if selector.training else "evaluated"
        raise DataError(
            f"{source.path}: no question of the split {selector.split!r}, which is {purpose}; found "
            f"{selector.listed_splits()}. Use a file of that split."
        )
    if not examples:
        raise DataError(f"{source.path}: no examples" + (f": {'; '.join(remarks)}." if remarks else "."))
    for remark in remarks:
        warnings.add(str(source.path), remark)
    return examples, warnings.lines()


def _sound_examples(card: Card, source: Source, warnings: Tally) -> Iterator[SoundExample]:
    """The examples up to the first error, which is raised; warnings are tallied."""
    for item in source.examples():
        problem = item if isinstance(item, Problem) else claim(card, item)
        if problem is None:
            assert isinstance(item, SoundExample)
            yield item
        elif problem.severity == "warning":
            warnings.add(problem.place, problem.message)
        else:
            right = f" A right line: {source.format.example}" if source.format.example else ""
            raise DataError(f"{problem}.{right} (All problems of a file: bench data check {source.path})")


class Tally:
    """Warnings grouped by message."""

    def __init__(self) -> None:
        """Start empty."""
        self._places: dict[str, list[str]] = {}

    def add(self, place: str, message: str) -> None:
        """Count one warning."""
        self._places.setdefault(message, []).append(place)

    def lines(self) -> list[str]:
        """``place: message`` per kind, with the number of further lines or the names of further files."""
        return [f"{places[0]}: {message}{_further(places)}" for message, places in self._places.items()]


_MOST_NAMED = 8
"""Files with the same fault that are named besides the first."""


def _further(places: Sequence[str]) -> str:
    """What else has the fault of the first place."""
    further = places[1:]
    if not further:
        return ""
    if any(re.search(r":\d+$", place) for place in places):
        return f" (and {len(further)} more)"
    unnamed = len(further) - _MOST_NAMED
    return f" (also {', '.join(further[:_MOST_NAMED])}{f' and {unnamed} more' if unnamed > 0 else ''})"


def has_training_part(card: Card, data: str = "sample") -> bool:
    """Whether data, as ``--data`` takes it, has a part of the set to learn from beside what is evaluated.

    Of a folder: a file whose name has the word train in it.
    """
    if data == "sample":
        return (SAMPLE_SETS / f"{card.name}_train.jsonl").is_file()
    if data == "hub":
        return card.hub is not None and bool(card.hub.train_files)
    folder = _named_part(Path(data).expanduser(), card)
    return folder.is_dir() and any(_TRAIN.search(file.stem.lower()) for file in _part_files(folder))


def _sample(card: Card, training: bool) -> Source:
    part = training and has_training_part(card)
    path = SAMPLE_SETS / f"{card.name}{'_train' if part else ''}.jsonl"
    if not path.is_file():
        raise DataError(
            f"{card.name} has no sample set. Use --data hub or --data PATH, or choose a data set "
            f"that has one: {', '.join(sample_names())}."
        )
    return open_source(path)


_TRAIN = re.compile(rf"(?:^|[_\W]){TRAINING_SPLIT}(?=[_\W]|$)")


def _named_part(path: Path, card: Card) -> Path:
    """The file or folder named after the card in a folder of several sets; else the path itself."""
    names = (card.name, *(f"{card.name}{suffix}" for suffix in sorted(DATA_SUFFIXES)))
    return next((path / name for name in names if path.is_dir() and (path / name).exists()), path)


def _part_files(folder: Path) -> list[Path]:
    """The data files of a folder, those with the suffix .txt too, which some sets have (WCEP-10)."""
    return sorted([*data_files(folder), *(file for file in folder.glob("*.txt") if file.is_file())])


def _own_part(path: Path, card: Card, training: bool) -> tuple[Path, str]:
    """The path, or what belongs to the card and the split in a folder; and what was chosen.

    That is the file or folder named after the card; in a folder with a file for each split, which is named
    after it, that of the evaluated split or of the training split. Raises DataUnavailableError for a folder
    that only has parts named after other cards.
    """
    part = _named_part(path, card)
    if part.is_dir():
        split = TRAINING_SPLIT if training else card.split or "test"
        of_split = [file for file in _part_files(part) if file.stem.lower() == split]
        if len(of_split) == 1:
            return of_split[0], ""
    if part != path:
        return _fullest(part, card)
    others = sorted({inside.stem for inside in path.iterdir()} & set(card_names())) if path.is_dir() else []
    if others:
        raise DataUnavailableError(
            f"{path}: no file or folder named {card.name}; there are {', '.join(others)}."
        )
    return path, ""


def _fullest(folder: Path, card: Card) -> tuple[Path, str]:
    """Of a folder with several sources, the one with most questions of the card's set, and a word on it.

    Files with errors are passed over, unless all have some: then the folder itself is the answer, and opening
    it says what is wrong.
    """
    if not folder.is_dir():
        return folder, ""
    try:
        open_source(folder)
    except DataError:
        counted = [(_usable(file, card), file) for file in data_files(folder)]
        most = max((count for count, _ in counted), default=0)
        if most:
            file = next(file for count, file in counted if count == most)
            return file, f"{folder}: {file.name} has most questions ({most}) of {len(counted)} data files"
    return folder, ""


def _usable(file: Path, card: Card) -> int:
    """How many questions of the card's set the file holds; 0 where it cannot be used as it is."""
    try:
        return sum(1 for _ in _sound_examples(card, open_source(file, card.formats), Tally()))
    except DataError:
        return 0


def _hub(card: Card, training: bool) -> Source:
    if card.hub is None:
        raise DataUnavailableError(f"{card.name} cannot be downloaded. {card.obtain}")
    files = hub.fetch(card, training=training)
    return open_files(Path(card.hub.repo), files, card.formats)
