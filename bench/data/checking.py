"""What a data file contains and what is wrong with it: the report behind ``bench data check``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.data.cards import Card
from bench.data.entries import Problem
from bench.data.loading import claim, unwanted_split
from bench.data.own import own_card
from bench.data.source import Source, open_source
from bench.errors import DataError
from bench.schema import JsonValue


@dataclass(frozen=True)
class TextCounter:
    """Measures the length of a text."""

    name: str
    """The tokenizer, or ``whitespace``."""
    unit: str
    """``tokens``, or ``words`` if no tokenizer is available."""
    count: Callable[[str], int]


WORDS = TextCounter("whitespace", "words", lambda text: len(text.split()))


@dataclass(frozen=True)
class Lengths:
    """Lengths per example: the sum over its documents, titles included."""

    counter: str
    unit: str
    minimum: int
    mean: float
    median: float
    maximum: int


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    path: str
    usable: bool
    """Whether loading would succeed: the format is known, no error, at least one example."""
    format: str = ""
    """Name of the format; empty when it is not known."""
    description: str = ""
    """Format and container in words."""
    revision: str = ""
    datasets: Mapping[str, int] = field(default_factory=dict)
    """Data set as the entries name it -> examples; if they name none, what ours are called, else ``?``."""
    splits: Mapping[str, int] = field(default_factory=dict)
    """Split -> examples, if one source holds several splits."""
    examples: int = 0
    questions: int = 0
    """Distinct question texts."""
    documents: int = 0
    """Over all examples."""
    unique_documents: int = 0
    evidence: int = 0
    """Examples with labels of their supporting evidence."""
    lengths: Lengths | None = None
    unread: Mapping[str, int] = field(default_factory=dict)
    """Field of data of our own format that it does not have -> examples with it."""
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """The report as JSON data."""
        return asdict(self)


def check(path: Path, counter: TextCounter = WORDS, card: Card | None = None) -> Report:
    """Read all of a file or folder and report on it; faults in the data are reported, never raised.

    card: also check that the data belong to that data set.
    """
    try:
        source = open_source(path)
    except DataError as error:
        return Report(str(path), usable=False, problems=(_as_problem(error),))
    return _check(source, counter, card)


def _check(source: Source, counter: TextCounter, card: Card | None) -> Report:
    known = Report(
        path=str(source.path),
        usable=False,
        format=source.format.name,
        description=f"{source.format.title} ({source.container})",
    )
    problems: list[Problem] = []
    unnamed = own_card(source.path.resolve().stem).name if source.format.answers_optional else "?"
    datasets: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    questions: set[str] = set()
    sizes: dict[str, int] = {}
    lengths: list[int] = []
    documents = evidence = others = 0
    try:
        for item in source.examples():
            if isinstance(item, Problem):
                problems.append(item)
                continue
            if card is not None:
                if (fault := claim(card, item)) is not None:
                    problems.append(fault)
                    continue
                others += bool(unwanted_split(card, item))
            example = item.example
            datasets[" or ".join(item.datasets) or unnamed] += 1
            splits.update([item.split] if item.split else [])
            unread.update(item.unread)
            questions.add(example.question)
            documents += len(example.documents.documents)
            evidence += bool(example.evidence)
            for document in example.documents.documents:
                if document.id not in sizes:
                    sizes[document.id] = counter.count(document.full_text)
            lengths.append(sum(sizes[document.id] for document in example.documents.documents))
        revision = source.digest()
    except DataError as error:
        return replace(known, problems=(*problems, _as_problem(error)))
    if card is not None and others:
        message = f"only the split {card.split!r} is evaluated; {others} examples belong to other splits"
        problems.append(Problem(str(source.path), message, "warning"))
    errors = any(problem.severity == "error" for problem in problems)
    return replace(
        known,
        usable=len(lengths) > others and not errors,
        revision=revision,
        datasets=dict(datasets),
        splits=dict(splits),
        examples=len(lengths),
        questions=len(questions),
        documents=documents,
        unique_documents=len(sizes),
        evidence=evidence,
        lengths=_lengths(lengths, counter) if lengths else None,
        unread=dict(unread),
        problems=tuple(problems),
    )


def _lengths(lengths: list[int], counter: TextCounter) -> Lengths:
    return Lengths(
        counter=counter.name,
        unit=counter.unit,
        minimum=min(lengths),
        mean=statistics.fmean(lengths),
        median=statistics.median(lengths),
        maximum=max(lengths),
    )


def _as_problem(error: DataError) -> Problem:
    place, _, message = str(error).partition(": ")
    return Problem(place, message)
