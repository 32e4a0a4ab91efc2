"""A data set's examples from one of its three sources: shipped sample, hub, or a file of the user's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.data import hub
from bench.data.cards import Card, Selection, card_names, list_cards, sample_names
from bench.data.entries import Problem
from bench.data.source import DATA_SUFFIXES, Found, Source, open_files, open_source
from bench.errors import ConfigError, DataError
from bench.files.paths import SAMPLE_SETS
from bench.schema import DocumentSet, Example

SourceKind = Literal["sample", "hub", "path"]


class DataUnavailableError(DataError):
    """A data set that cannot be had in the way that was asked for, where others can."""


@dataclass(frozen=True)
class LoadedData:
    """Examples with where they came from."""

    examples: tuple[Example, ...]
    label: str
    """As records, tables and the terminal say it: ``qasper (sample)``, ``qasper (dev.json)``."""
    source: SourceKind
    format: str
    """Name of the format (:mod:`bench.data.formats`)."""
    revision: str
    """The hub's commit, or ``sha256:`` and the hash of the file contents."""
    warnings: tuple[str, ...] = ()
    """What is odd about the data, each kind once with its first place and its count."""


def load(card: Card, data: str = "sample", limit: int | None = None, *, training: bool = False) -> LoadedData:
    """The examples of a data set, the first ``limit`` in file order, of those that the card selects.

    data: ``sample`` (the set that ships with the project), ``hub`` (the full set), or a path; of a folder of
    several sets, the file or folder named after this one. training: what
    a method may learn from, in the place of what is evaluated: the card's training files, a sample set's own
    training part where it has one; of a path, all that is of no other split than training.
    Raises DataError, naming file and line, at the first problem or for data of another set than the card's,
    DataUnavailableError where only this set is missing, ConfigError for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit {limit}: expected at least 1, or none for all examples.")
    kind: SourceKind
    match data:
        case "sample":
            kind, name, source = "sample", "sample", _sample(card, training)
        case "hub":
            kind, name, source = "hub", "hub", _hub(card, training)
        case _:
            path = _own_part(Path(data).expanduser(), card)
            kind, name, source = "path", path.resolve().name, open_source(path)
    chosen = _Chosen(card, kind, training)
    examples, warnings = _collect(card, source, limit, chosen)
    expected = card.hub.examples if card.hub and kind == "hub" and not training else None
    if limit is None and expected is not None and chosen.seen != expected:
        warnings.append(f"{source.path}: {chosen.seen} examples; the card expects {expected}")
    return LoadedData(
        examples=tuple(examples),
        label=f"{card.name} ({name})",
        source=kind,
        format=source.format.name,
        revision=card.hub.revision if card.hub and kind == "hub" else source.digest(),
        warnings=tuple(warnings),
    )


def claim(card: Card, found: Found) -> Problem | None:
    """Why an example cannot be one of the card's data set; None when it can."""
    if found.datasets and not any(card.accepts(name) for name in found.datasets):
        theirs = " or ".join(found.datasets)
        known = [name for name in found.datasets if any(other.accepts(name) for other in list_cards())]
        advice = (
            f"give --dataset {known[0]}, or a file of {card.name}" if known else f"give one of {card.name}"
        )
        return Problem(str(found.place), f"this is {theirs} data, not {card.name}; {advice}")
    if found.example.task != card.task:
        return Problem(str(found.place), f"a {found.example.task} example; {card.name} is a {card.task} set")
    return None


def left_out(card: Card, found: Found, split: str | None = None) -> str:
    """The name of the example's split when it is another than the one that is wanted, else empty.

    split: by default the one that is evaluated; empty: every one is.
    """
    wanted = card.split if split is None else split
    return found.split if wanted and found.split != wanted else ""


class _Chosen:
    """Which examples of a source are used: those of the wanted split, and of the card's selection."""

    def __init__(self, card: Card, kind: SourceKind, training: bool) -> None:
        self.training = training
        self.split = TRAINING_SPLIT if training and card.split else card.split
        self.selection = None if kind == "sample" else card.selection
        self.documents = self.selection.documents if self.selection and not training else None
        self.seen = 0
        """Examples of the split, selected or not."""
        self.others: Counter[str] = Counter()
        self.short = 0
        self.beyond = 0

    def takes(self, card: Card, found: Found) -> bool:
        """Whether the example is used; counts those that are not."""
        if other := left_out(card, found, self.split):
            self.others[other] += 1
            return False
        self.seen += 1
        if self.selection is None or self.selection.more_than is None:
            return True
        long = length(found.example, self.selection) > self.selection.more_than
        self.short += not long
        return long

    def remarks(self) -> Iterator[str]:
        """What was left out, in sentences."""
        if self.others:
            held = ", ".join(f"{name} {count}" for name, count in sorted(self.others.items()))
            yield f"only the split {self.split!r} is used; left out: {held}"
        if self.short and self.selection:
            unit = self.selection.measured_by or "words"
            yield (
                f"only examples of more than {self.selection.more_than:,} ({unit}) are used, as in "
                f"{self.selection.source}; left out: {self.short}"
            )
        if self.beyond and self.selection:
            yield (
                f"only the questions on the first {self.documents} document sets are used, as in "
                f"{self.selection.source}; left out: {self.beyond}"
            )


TRAINING_SPLIT = "train"
"""As the formats name it, where one file holds several splits."""


def length(example: Example, selection: Selection) -> float:
    """The length that a selection goes by: words of the documents and titles, or what the data tell."""
    told = example.metadata.get(selection.measured_by) if selection.measured_by else None
    if told is not None:
        return float(told)
    return sum(len(document.full_text.split()) for document in example.documents.documents)


def _collect(
    card: Card, source: Source, limit: int | None, chosen: _Chosen
) -> tuple[list[Example], list[str]]:
    examples: list[Example] = []
    warnings = Tally()
    documents: dict[str, DocumentSet] = {}  # questions on one text share it in memory
    for found in _sound(card, source, warnings):
        if not chosen.takes(card, found):
            continue
        example = found.example
        if chosen.documents == len(documents) and example.documents.id not in documents:
            chosen.beyond += 1
            continue
        shared = documents.setdefault(example.documents.id, example.documents)
        question = example.question if example.question.strip() else card.query
        examples.append(replace(example, dataset=card.name, documents=shared, question=question))
        if limit is not None and len(examples) == limit:
            break
    remarks = list(chosen.remarks())
    if not examples and chosen.others and not chosen.seen:
        held = ", ".join(f"{name} {count}" for name, count in sorted(chosen.others.items()))
        purpose = "learned from" if chosen.training else "evaluated"
        raise DataError(
            f"{source.path}: no question of the split {chosen.split!r}, which is {purpose}; found {held}."
        )
    if not examples:
        raise DataError(f"{source.path}: no examples" + (f": {'; '.join(remarks)}." if remarks else "."))
    for remark in remarks:
        warnings.add(str(source.path), remark)
    return examples, warnings.lines()


def _sound(card: Card, source: Source, warnings: Tally) -> Iterator[Found]:
    """The examples up to the first error, which is raised; warnings are tallied."""
    for found in source.examples():
        problem = found if isinstance(found, Problem) else claim(card, found)
        if problem is None:
            assert isinstance(found, Found)
            yield found
        elif problem.severity == "warning":
            warnings.add(problem.place, problem.message)
        else:
            raise DataError(f"{problem}. (All problems of a file: bench data check {source.path})")


class Tally:
    """Warnings grouped by what they say."""

    def __init__(self) -> None:
        """Begin without any."""
        self._first: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    def add(self, place: str, message: str) -> None:
        """Count one warning."""
        self._first.setdefault(message, place)
        self._count[message] += 1

    def lines(self) -> list[str]:
        """``place: message``, with how many more places there are."""
        return [
            f"{place}: {message}" + (f" (and {more} more)" if (more := self._count[message] - 1) else "")
            for message, place in self._first.items()
        ]


def has_training_part(name: str) -> bool:
    """Whether a set's sample ships with a part to learn from."""
    return (SAMPLE_SETS / f"{name}_train.jsonl").is_file()


def _sample(card: Card, training: bool) -> Source:
    part = training and has_training_part(card.name)
    path = SAMPLE_SETS / f"{card.name}{'_train' if part else ''}.jsonl"
    if not path.is_file():
        raise DataError(
            f"{card.name}: there is no sample set of it. Give --data hub or --data PATH, or choose a set "
            f"that has one: {', '.join(sample_names())}."
        )
    return open_source(path)


def _own_part(path: Path, card: Card) -> Path:
    """The path, or what is named after the card in a folder of several sets.

    Raises DataUnavailableError for a folder that holds such parts of other cards only.
    """
    if not path.is_dir():
        return path
    for name in (card.name, *(f"{card.name}{suffix}" for suffix in sorted(DATA_SUFFIXES))):
        if (path / name).exists():
            return path / name
    parts = {inside.stem for inside in path.iterdir()}
    others = sorted(parts & set(card_names()))
    if others:
        raise DataUnavailableError(
            f"{path}: no file or folder named {card.name}; there are {', '.join(others)}."
        )
    return path


def _hub(card: Card, training: bool) -> Source:
    if card.hub is None:
        raise DataUnavailableError(f"{card.name}: not to be fetched. {card.obtain}")
    files = hub.fetch(card, training=training)
    return open_files(Path(card.hub.repo), files)
