"""What a data file contains and what is wrong with it: the report behind ``bench data check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.data.cards import Card
from bench.data.entries import Problem
from bench.data.format import Parsed
from bench.data.loading import claim, unwanted_split
from bench.data.own import own_card
from bench.data.source import open_source
from bench.errors import DataError

MAX_PROBLEMS = 10_000
"""Problems after which a file is not read further: each is kept in memory."""


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    path: Path
    usable: bool
    """Whether loading would succeed: the format is known, no error, at least one example."""
    format: str = ""
    """Name of the format; empty when it is not known."""
    description: str = ""
    """Format and container in words."""
    datasets: Mapping[str, int] = field(default_factory=dict)
    """Data set as the entries name it -> examples; if they name none, what ours are called, else ``?``."""
    splits: Mapping[str, int] = field(default_factory=dict)
    """Split -> examples, if one source holds several splits."""
    questions: int = 0
    """Distinct question texts."""
    documents: int = 0
    """Distinct documents."""
    evidence: int = 0
    """Examples with labels of their supporting evidence."""
    words: tuple[int, ...] = ()
    """Words of the documents of each example, titles included."""
    problems: tuple[Problem, ...] = ()

    @property
    def examples(self) -> int:
        """Number of examples without an error."""
        return len(self.words)


def check(path: Path, card: Card | None = None) -> Report:
    """Read all of a file or folder and report on it; faults in the data are reported, never raised.

    card: also check that the data belong to that data set.
    """
    problems: list[Problem] = []
    found: list[Parsed] = []
    sizes: dict[str, int] = {}
    words: list[int] = []
    try:
        source = open_source(path)
    except DataError as error:
        return Report(path, usable=False, problems=(_as_problem(error),))
    try:
        for item in source.examples():
            fault = item if isinstance(item, Problem) else claim(card, item) if card else None
            if fault is not None:
                problems.append(fault)
                if len(problems) == MAX_PROBLEMS:
                    problems.append(Problem(str(path), f"read no further after {MAX_PROBLEMS:,} problems"))
                    break
                continue
            assert isinstance(item, Parsed)
            found.append(item)
            documents = item.example.documents.documents
            sizes |= {one.id: len(one.full_text.split()) for one in documents if one.id not in sizes}
            words.append(sum(sizes[one.id] for one in documents))
    except DataError as error:
        problems.append(_as_problem(error))
    if not found and not problems:
        problems.append(Problem(str(path), "there is no example in it"))
    if len({(item.datasets, item.example.task) for item in found}) > len({item.datasets for item in found}):
        problems.append(Problem(str(path), "questions and summaries in one data set; expected one of them"))
    others = sum(bool(unwanted_split(item, card.split)) for item in found) if card else 0
    if card and others:
        message = f"only the split {card.split!r} is evaluated; {others} examples belong to other splits"
        problems.append(Problem(str(path), message, "warning"))
    unnamed = own_card(path.resolve().stem).name if source.format.answers_optional else "?"
    return Report(
        path,
        usable=len(found) > others and not any(problem.severity == "error" for problem in problems),
        format=source.format.name,
        description=f"{source.format.title} ({source.container})",
        datasets=Counter(" or ".join(item.datasets) or unnamed for item in found),
        splits=Counter(item.split for item in found if item.split),
        questions=len({item.example.question for item in found}),
        documents=len(sizes),
        evidence=sum(bool(item.example.evidence) for item in found),
        words=tuple(words),
        problems=tuple(problems),
    )


def _as_problem(error: DataError) -> Problem:
    place, _, message = str(error).partition(": ")
    return Problem(place, message)
