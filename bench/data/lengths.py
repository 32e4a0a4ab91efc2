"""Questions at controlled document lengths: what answers them, among more and more other documents.

As RULER's QA tasks do (Hsieh et al. 2024, arXiv 2404.06654): a question keeps the documents that answer it,
and documents of other questions fill up to the length, in random order. Here the same question is asked at
every length, and what a shorter text holds a longer one holds too, so that only the length differs; and a
document with a reference answer in it is not used to fill  # our choices.

Works on any set with several documents for each question and labels of those that answer it (HotpotQA,
MuSiQue, your own), so it needs no download, and no reader sees text of another kind.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.errors import DataError
from bench.files.atomic import write_text
from bench.metrics.squad import normalize_answer
from bench.schema import Document, DocumentSet, Example, JsonValue

LENGTH = "length_tokens"
"""Metadata field: the length that an example was made for."""


@dataclass(frozen=True)
class Controlled:
    """Examples at each length, and how many questions were passed over."""

    examples: tuple[Example, ...]
    passed_over: int
    """Questions whose own documents exceed the shortest length, or without labels."""


def at_lengths(
    examples: Sequence[Example],
    lengths: Sequence[int],
    questions: int,
    count: Callable[[str], int],
    seed: int = 0,
) -> Controlled:
    """The first ``questions`` usable examples at every length, length by length.

    lengths: tokens of the documents, titles included; a text has at most so many, and less than one further
    document would take. count: tokens of a text. Raises DataError where no example has labels, or the data
    have too few documents for the longest.
    """
    if not any(example.evidence and len(example.documents.documents) > 1 for example in examples):
        raise DataError(
            "no question has several documents with labels of those that answer it, such as HotpotQA's and "
            "MuSiQue's; lengths cannot be controlled."
        )
    pool = list({document.id: document for e in examples for document in e.documents.documents}.values())
    sizes = {document.id: count(document.full_text) for document in pool}
    made: dict[int, list[Example]] = {length: [] for length in sorted(lengths)}
    passed_over = done = 0
    for example in examples:
        if done == questions:
            break
        gold = sorted({label.document for label in example.evidence or ()})
        own = sum(sizes[example.documents.documents[at].id] for at in gold)
        if not gold or own > min(lengths):
            passed_over += 1
            continue
        rng = random.Random(f"{seed} {example.id}")
        filling = list(_filling(example, gold, pool, rng))
        places = [rng.random() for _ in range(len(gold) + len(filling))]
        for length in made:
            made[length].append(_filled(example, gold, filling, places, sizes, length))
        done += 1
    return Controlled(tuple(example for of_length in made.values() for example in of_length), passed_over)


def _filling(
    example: Example, gold: Sequence[int], pool: Sequence[Document], rng: random.Random
) -> Iterator[Document]:
    """Documents without an answer: the question's own first, then all others, each group in random order."""
    documents = example.documents.documents
    answers = {normalize_answer(answer) for answer in example.answers} - {"", "yes", "no"}
    own = [document for at, document in enumerate(documents) if at not in gold]
    known = {document.id for document in documents}
    others = [document for document in pool if document.id not in known]
    rng.shuffle(own)
    rng.shuffle(others)
    for document in (*own, *others):
        text = f" {normalize_answer(document.full_text)} "
        if not any(f" {answer} " in text for answer in answers):
            yield document


def _filled(
    example: Example,
    gold: Sequence[int],
    filling: Sequence[Document],
    places: Sequence[float],
    sizes: dict[str, int],
    length: int,
) -> Example:
    """The example at one length; places: where each document stands, gold ones first."""
    chosen = [example.documents.documents[at] for at in gold]
    total = sum(sizes[document.id] for document in chosen)
    for document in filling:
        if total + sizes[document.id] > length:
            break
        chosen.append(document)
        total += sizes[document.id]
    else:
        raise DataError(
            f"the documents of all questions come to {total:,} tokens for {example.id!r}; {length:,} were "
            "asked for. Ask for less, or give data with more questions (--data)."
        )
    order = sorted(range(len(chosen)), key=lambda at: places[at])
    moved = {gold[at]: position for position, at in enumerate(order) if at < len(gold)}
    evidence = tuple(replace(label, document=moved[label.document]) for label in example.evidence or ())
    return replace(
        example,
        id=f"{example.id}-{length}",
        documents=DocumentSet(tuple(chosen[at] for at in order)),
        evidence=evidence,
        metadata={**example.metadata, LENGTH: length},
    )


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
