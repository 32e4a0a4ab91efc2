"""The plan of a method's training: which documents it learns from before any question is asked.

The result of the training is stored like an index, under the hash of everything that it depends on. Its cost
is query-independent and shared equally by the document sets of the run, together with the cost of indexing
documents that only the training needed.
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
"""Value of ``train_on``: the training part of the run's own data set, from the run's source."""


class NoTrainingDataError(ConfigError):
    """The requested data has no training part."""


def with_source(training: Training | None, data: str, card: Card) -> Training | None:
    """The training with ``auto`` resolved: to the training part if there is one, else to the run's own.

    data, card: ``--data`` and the card of the run's data set. Raises NoTrainingDataError where its training
    part is asked for and there is none.
    """
    if training is None or training.data not in ("auto", TRAINING_PART):
        return training
    if has_training_part(card, data):
        return replace(training, data=TRAINING_PART)
    if training.data == "auto":
        return replace(training, data="run")
    named = {"sample": f"the sample set of {card.name}", "hub": f"the card of {card.name}"}.get(data, data)
    raise NoTrainingDataError(
        f"train_on=train: {named} has no training part. Use other documents (train_on=PATH), or the run's "
        "own (train_on=run); in a folder, the training part is a file named train.",
    )


@dataclass(frozen=True)
class TrainingPlan:
    """The data that a cell's method learns from."""

    training: Training
    sets: tuple[DocumentSet, ...]
    references: Mapping[str, tuple[Reference, ...]]
    """Id of a document set -> its questions with reference answers; empty unless the training uses them."""
    identity: str
    """Hash of documents and references if the documents are not the run's own; else empty."""


def plan_training(
    training: Training | None, run: LoadedData, load: Callable[[str], LoadedData], seed: int
) -> TrainingPlan | None:
    """The documents of a training, with references if it uses them; None for a method without training.

    run: the run's own data; load: loads other data of the same set, from a value of ``--data``.
    Raises ConfigError if the references are the run's own or the set has no reference summaries, and
    whatever loading raises.
    """
    if training is None:
        return None
    own = training.data == "run"
    examples = (run if own else load(training.data)).examples
    if training.references:
        _require_summaries(examples, own, {example.documents.id for example in run.examples})
    sets = _sample(list({one.documents.id: one.documents for one in examples}.values()), training, seed)
    references: dict[str, tuple[Reference, ...]] = {}
    if training.references:
        for example in examples:
            reference = Reference(example.question, example.answers)
            references[example.documents.id] = (*references.get(example.documents.id, ()), reference)
    identity = "" if own else stable_hash(training_parts(sets, references))
    return TrainingPlan(training, tuple(sets), references, identity)


def _require_summaries(examples: Sequence[Example], own: bool, asked: Collection[str]) -> None:
    if own:
        raise ConfigError(
            "Training on reference summaries needs documents other than the run's own: name a file or folder "
            "of training data, train_on=PATH.",
        )
    bad = next((example for example in examples if example.task != "summarization"), None)
    if bad is not None:
        raise ConfigError(
            f"Training on reference summaries: example {bad.id!r} of the training data has none, its task is "
            f"{bad.task!r}. Choose a summarisation data set, or leave out supervised=on."
        )
    shared = sum(example.documents.id in asked for example in examples)
    if shared:
        raise ConfigError(
            f"Training on reference summaries: {shared} of the {len(examples)} training examples are on "
            "documents of the run itself. Name training data without them: train_on=PATH.",
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
    """Everything about documents and references that a training depends on, for hashing."""
    return [
        [documents.id, *([r.question, *r.answers] for r in references.get(documents.id, ()))]
        for documents in sets
    ]
