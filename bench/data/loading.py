"""A data set's examples from one of three sources: the shipped sample, the hub, or the user's own file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.data import hub
from bench.data.cards import Card, Selection, list_cards, sample_names, sets_in
from bench.data.entries import Problem
from bench.data.format import Parsed
from bench.data.source import DATA_SUFFIXES, Source, data_files, open_files, open_source
from bench.errors import ConfigError, DataError
from bench.files.paths import SAMPLE_SETS, written_path
from bench.files.printable import printable
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
    with several sets, the file or folder named after this one is used.
    training: load what a method may learn from instead of what is evaluated. From the hub these are the
    card's training files, from the sample its training part if it has one, from a folder its file ``train``
    if it has one beside the evaluated ``test``, from any other path every example that names no other
    split. Raises DataError, naming file and line, at the first problem and for data of another set;
    DataUnavailableError if only this set is missing; ConfigError for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit {limit}: expected at least 1; leave it out to use all examples.")
    kind: SourceKind
    match data:
        case "sample":
            kind, name, source = "sample", "sample", _sample(card, training)
        case "hub":
            kind, name, source = "hub", "hub", _hub(card, training)
        case _:
            if any("\ud800" <= character <= "\udfff" for character in data):
                raise ConfigError(f"{data!a}: the name is not UTF-8, and records hold it. Rename it.")
            path = _own_part(written_path(data), card, training)
            name = printable(path.resolve().name).replace("\n", "\ufffd")
            kind, source = "path", open_source(path, card.formats)
    examples, warnings = _select(card, source, kind, limit, training)
    return LoadedData(
        examples=tuple(examples),
        label=f"{card.name} ({name})",
        source=kind,
        format=source.format.name,
        revision=card.hub.revision if card.hub and kind == "hub" else source.digest(),
        warnings=tuple(warnings),
    )


def claim(card: Card, sound: Parsed) -> Problem | None:
    """Why an example does not belong to the card's data set; None if it does."""
    if sound.datasets and not any(card.accepts(name) for name in sound.datasets):
        named = " or ".join(sound.datasets)
        known = [name for name in sound.datasets if any(other.accepts(name) for other in list_cards())]
        advice = (
            f"use --dataset {known[0]}, or a file of {card.name}"
            if known
            else f"leave out --dataset, or use a file of {card.name}"
        )
        return Problem(sound.place, f"this is {named} data, not {card.name}; {advice}")
    if sound.example.task != card.task:
        return Problem(sound.place, f"a {sound.example.task} example; {card.name} is a {card.task} set")
    return None


def unwanted_split(sound: Parsed, wanted: str) -> str:
    """The example's split if it is not the wanted one (empty: any), else empty."""
    return sound.split if wanted and sound.split != wanted else ""


TRAINING_SPLIT = "train"
"""The training split's name in files that hold several splits."""


def _select(
    card: Card, source: Source, kind: SourceKind, limit: int | None, training: bool
) -> tuple[list[Example], list[str]]:
    """The first ``limit`` examples of the card's split and selection, and warnings; DataError for none."""
    split = TRAINING_SPLIT if training and card.split else card.split
    selection = (None if kind == "sample" else card.selection) or Selection(source="")
    longer_than = selection.more_than or 0
    most = (selection.documents, selection.rows, selection.skip if kind == "hub" else None)
    most_documents, most_rows, skip = (None, None, None) if training else most
    examples: list[Example] = []
    warnings: list[Problem] = []
    documents: dict[str, DocumentSet] = {}  # questions on one text share it in memory
    as_in, bound = f"as in {selection.source}", f"{longer_than:,} ({selection.measured_by or 'words'})"
    other_splits: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    skipped: set[str] = set()
    seen = 0  # of the split, selected or not
    for sound in _sound_examples(card, source, warnings):
        example, id_ = sound.example, sound.example.documents.id
        if other := unwanted_split(sound, split):
            other_splits[other] += 1
            continue
        seen += 1
        if id_ in skipped or len(skipped) < (skip or 0):
            skipped.add(id_)
        elif longer_than and _length(sound, selection) <= longer_than:
            left_out[f"only examples of more than {bound} are used, {as_in}"] += 1
        elif most_documents == len(documents) and id_ not in documents:
            sets = f"questions on the first {most_documents} document sets"
            left_out[f"only the {sets} are used, {as_in}"] += 1
        elif most_rows == len(examples):
            left_out[f"only the first {most_rows} questions are used, {as_in}"] += 1
        else:
            shared = documents.setdefault(id_, example.documents)
            question = example.question if example.question.strip() else card.query
            examples.append(replace(example, dataset=card.name, documents=shared, question=question))
            if len(examples) == limit:
                break
    found = ", ".join(f"{name} {count}" for name, count in sorted(other_splits.items()))
    remarks = [f"only the split {split!r} is used; left out: {found}"] if other_splits else []
    if skipped:
        remarks.append(f"questions on the first {len(skipped)} document sets are left out, {as_in}")
    remarks += [f"{why}; left out: {count}" for why, count in left_out.items()]
    if not examples and other_splits and not seen:
        purpose = "learned from" if training else "evaluated"
        raise DataError(
            f"{source.path}: no question of the split {split!r}, which is {purpose}; found {found}. Use a "
            "file of that split."
        )
    if not examples:
        raise DataError(f"{source.path}: no examples" + (f": {'; '.join(remarks)}." if remarks else "."))
    lines = by_kind(warnings) + [f"{source.path}: {remark}" for remark in remarks]
    expected = card.hub.examples if card.hub and kind == "hub" and not training else None
    if limit is None and expected is not None and seen != expected:
        lines.append(f"{source.path}: {seen} examples; the card expects {expected}")
    return examples, lines


def _length(sound: Parsed, selection: Selection) -> float:
    """The length that a selection compares: words of documents and titles, or a metadata field."""
    field, example = selection.measured_by, sound.example
    recorded = example.metadata.get(field) if field else None
    if recorded is None:
        return sum(len(document.full_text.split()) for document in example.documents.documents)
    try:
        return float(recorded)
    except (TypeError, ValueError):
        raise DataError(f"{sound.place}: metadata {field!r} is no number: {recorded!r}.") from None


def _sound_examples(card: Card, source: Source, warnings: list[Problem]) -> Iterator[Parsed]:
    """The examples up to the first error, which is raised; warnings are collected."""
    for item in source.examples():
        problem = item if isinstance(item, Problem) else claim(card, item)
        if problem is None:
            assert isinstance(item, Parsed)
            yield item
        elif problem.severity == "warning":
            warnings.append(problem)
        else:
            right = f" A right line:\n{source.format.example}" if source.format.example else ""
            raise DataError(f"{problem}. (All problems of a file: bench data check {source.path}){right}")


def by_kind(problems: Iterable[Problem]) -> list[str]:
    """``place: message`` per message, with the number of further lines or the names of further files."""
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.message, []).append(problem.place)
    return [f"{at[0]}: {message}{_further(at)}" for message, at in places.items()]


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
    folder = _named_part(written_path(data), card)
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
    """What is named after the card in a folder of several sets, else the path; raises DataError for two."""
    names = (card.name, *(f"{card.name}{suffix}" for suffix in sorted(DATA_SUFFIXES)))
    parts = [path / name for name in names if path.is_dir() and (path / name).exists()]
    if len(parts) > 1:
        raise DataError(f"{path} has {' and '.join(one.name for one in parts)} for {card.name}; pass one.")
    return (*parts, path)[0]


def _part_files(folder: Path) -> list[Path]:
    """The data files of a folder; where it has none, those with the suffix .txt, as WCEP-10 has them."""
    return data_files(folder) or sorted(file for file in folder.glob("*.txt") if file.is_file())


def _own_part(path: Path, card: Card, training: bool) -> Path:
    """The path, or what belongs to the card and the split in a folder.

    That is the file or folder named after the card; in a folder with a file for each split, which is named
    after it, that of the evaluated split or of the training split. Raises DataUnavailableError for a folder
    that only has parts named after other cards.
    """
    part = _named_part(path, card)
    if part.is_dir():
        split = TRAINING_SPLIT if training else card.split or "test"
        of_split = [file for file in _part_files(part) if file.stem.lower() == split]
        if len(of_split) == 1:
            return of_split[0]
    if part == path and (others := sets_in(path)):
        raise DataUnavailableError(f"{path}: nothing is named {card.name}; there are {', '.join(others)}.")
    return part


def _hub(card: Card, training: bool) -> Source:
    if card.hub is None:
        raise DataUnavailableError(f"{card.name} cannot be downloaded. {card.obtain}")
    return open_files(Path(card.hub.repo), hub.fetch(card, training=training), card.formats)
