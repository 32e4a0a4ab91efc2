"""What a data file is and what is wrong with it: everything ``bench data check`` says."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.data.cards import Card
from bench.data.entries import Problem
from bench.data.loading import claim, left_out
from bench.data.source import Source, open_source
from bench.errors import DataError
from bench.schema import JsonValue


@dataclass(frozen=True)
class TextCounter:
    """Measures the length of a text."""

    name: str
    """The tokenizer, or ``whitespace``."""
    unit: str
    """``tokens``, or ``words`` where no tokenizer is to be had."""
    count: Callable[[str], int]


WORDS = TextCounter("whitespace", "words", lambda text: len(text.split()))


@dataclass(frozen=True)
class Lengths:
    """Lengths per example, all its documents with their titles together."""

    counter: str
    unit: str
    minimum: int
    mean: float
    median: float
    maximum: int


@dataclass(frozen=True)
class Report:
    """What a check found."""

    path: str
    usable: bool
    """Whether loading would succeed: the format is known, no error, at least one example."""
    format: str = ""
    """Name of the format; empty when it is not known."""
    description: str = ""
    """Format and container in words."""
    revision: str = ""
    datasets: Mapping[str, int] = field(default_factory=dict)
    """Data set as the entries name it -> examples; ``?`` when they do not say."""
    splits: Mapping[str, int] = field(default_factory=dict)
    """Split -> examples, where one source holds several."""
    examples: int = 0
    questions: int = 0
    """Distinct question texts."""
    documents: int = 0
    """Over all examples."""
    unique_documents: int = 0
    evidence: int = 0
    """Examples with labels of their supporting evidence."""
    lengths: Lengths | None = None
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """The report as JSON data."""
        return asdict(self)


def check(path: Path, counter: TextCounter = WORDS, card: Card | None = None) -> Report:
    """Read all of a file or folder and report on it; never raises for what is wrong with the data.

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
    datasets: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    questions: set[str] = set()
    sizes: dict[str, int] = {}
    lengths: list[int] = []
    documents = evidence = others = 0
    try:
        for found in source.examples():
            if isinstance(found, Problem):
                problems.append(found)
                continue
            if card is not None:
                if (fault := claim(card, found)) is not None:
                    problems.append(fault)
                    continue
                others += bool(left_out(card, found))
            example = found.example
            datasets[" or ".join(found.datasets) or "?"] += 1
            splits.update([found.split] if found.split else [])
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
        message = f"only the split {card.split!r} is evaluated; {others} examples are of others"
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
