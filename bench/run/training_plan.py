"""What a method learns from documents before any question is asked: planned, done once, kept.

The result is kept like an index, under the hash of all that it depends on. A training that was cut goes
on from its last checkpoint. Its cost is query-independent and shared equally by the document sets of
the run, together with the cost of indexing documents that only the training needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.data.cards import Card
from bench.data.loading import has_training_part
from bench.errors import ConfigError
from bench.files.hashing import stable_hash
from bench.method.contract import Reference, Training
from bench.schema import DocumentSet, Example

if TYPE_CHECKING:
    from bench.data import LoadedData

log = logging.getLogger(__name__)


TRAINING_PART = "train"
"""Names the training part of the data that is asked about, wherever these are from."""


TRAINING_PART_OR_RUN = "auto"
"""The training part where the data has one, else the documents that are asked about."""


class NoTrainingDataError(ConfigError):
    """A training part was asked for of data that has none."""


def training_source(named: str, data: str, dataset: str) -> str:
    """What ``--data`` would call the training data that a method names.

    data, dataset: what is asked about. Raises NoTrainingDataError for the training part of a file or folder,
    and of a sample set that has none.
    """
    if named != TRAINING_PART:
        return named
    if data == "sample" and not has_training_part(dataset):
        raise NoTrainingDataError(
            f"train_on=train: the sample set of {dataset} has no training part. Name other documents, "
            "train_on=PATH, or those that are asked about, train_on=run.",
            option="train_on",
        )
    if data in ("sample", "hub"):
        return data
    raise NoTrainingDataError(
        f"train_on=train: {data} is a file or folder, and does not say where its training part is. Name it, "
        "train_on=PATH.",
        option="train_on",
    )


def with_source(training: Training | None, data: str, card: Card) -> Training | None:
    """The training with ``auto`` resolved for what is asked about: ``--data`` and the card of its set."""
    if training is None or training.data != TRAINING_PART_OR_RUN:
        return training
    has = has_training_part(card.name) if data == "sample" else False
    if data == "hub":
        has = card.hub is not None and bool(card.hub.train_files)
    return replace(training, data=TRAINING_PART if has else "run")


@dataclass(frozen=True)
class TrainingPlan:
    """What a cell's method learns from."""

    training: Training
    sets: tuple[DocumentSet, ...]
    references: Mapping[str, tuple[Reference, ...]]
    """Id of a document set -> what is asked about it; empty unless the training asked for references."""
    identity: str
    """Hash of all this where the documents are not the run's own; else empty."""


def plan_training(
    training: Training | None, run: LoadedData, load: Callable[[str], LoadedData], seed: int
) -> TrainingPlan | None:
    """The documents of a training, and their references where it asks for them; None where there is none.

    run: the data that is asked about; load: other data of the same set, by what ``--data`` takes.
    Raises ConfigError for references of the run itself, or of a set that has no reference summaries, and
    whatever loading raises.
    """
    if training is None:
        return None
    own = training.data == "run"
    examples = (run if own else load(training.data)).examples
    if training.references:
        _require_summaries(examples, own, {example.documents.id for example in run.examples})
    sets = _sample(
        list({example.documents.id: example.documents for example in examples}.values()), training, seed
    )
    references: dict[str, tuple[Reference, ...]] = {}
    if training.references:
        for example in examples:
            found = Reference(example.question, example.answers)
            references[example.documents.id] = (*references.get(example.documents.id, ()), found)
    identity = "" if own else stable_hash(training_parts(sets, references))
    return TrainingPlan(training, tuple(sets), references, identity)


def _require_summaries(examples: Sequence[Example], own: bool, asked: Collection[str]) -> None:
    if own:
        raise ConfigError(
            "Training on reference summaries needs documents other than those that are asked about: name a "
            "file or folder of training data, train_on=PATH.",
            option="train_on",
        )
    bad = next((example for example in examples if example.task != "summarization"), None)
    if bad is not None:
        raise ConfigError(
            f"Training on reference summaries: example {bad.id!r} of the training data is of task "
            f"{bad.task!r} and has none. Choose a summarisation data set, or leave out supervised=on."
        )
    shared = sum(example.documents.id in asked for example in examples)
    if shared:
        raise ConfigError(
            f"Training on reference summaries: {shared} of the {len(examples)} training examples are on "
            "documents that are asked about. Name training data without them, train_on=PATH.",
            option="train_on",
        )


def _sample(sets: list[DocumentSet], training: Training, seed: int) -> list[DocumentSet]:
    """At most ``training.most`` of the sets, drawn without replacement, in their order."""
    if len(sets) <= training.most:
        return sets
    drawn = np.random.default_rng([seed, len(sets)]).choice(len(sets), training.most, replace=False)
    return [sets[position] for position in sorted(drawn)]


def training_parts(
    sets: Sequence[DocumentSet], references: Mapping[str, tuple[Reference, ...]]
) -> list[object]:
    """What of the documents, and of what is asked about them, a training depends on."""
    return [
        [documents.id, *([r.question, *r.answers] for r in references.get(documents.id, ()))]
        for documents in sets
    ]
