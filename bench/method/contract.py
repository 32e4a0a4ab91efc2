"""What a method is: a config, two coroutines, and the models it asks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from bench.flops.meter import Meter, metered
from bench.method.graph_view import GraphView
from bench.models.api import Geometry
from bench.models.conversation import ModelSet
from bench.schema import DocumentSet, Index, JsonValue, Prediction, Question


class MethodConfig(BaseModel):
    """Base of every method's options: immutable, ranges checked, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


ConfigT = TypeVar("ConfigT", bound=MethodConfig)


Need = Literal["", "probabilities", "tokens", "attention"]
"""Beyond generating and embedding: how likely a word is, which not every server says; logits or vectors of a
prompt's tokens, which only a model in this process gives; or attention by span, which not all of these give.
In this order of strength."""


@dataclass(frozen=True)
class Role:
    """What a method needs one model for."""

    model: str = ""
    """Preset, hub id or folder; empty: the run's own reader."""
    index: bool = True
    """Whether the index depends on it; runs whose models differ in other roles share the index."""
    needs: Need = ""
    """Asked of the model before any index is built."""
    ways_out: str = ""
    """For the error where the model does not give what is needed: why it is needed, what to do instead."""

    def needing(self, needs: Need, ways_out: str) -> Role:
        """The role with this need, unless it has a stronger one."""
        order = get_args(Need)
        if order.index(self.needs) > order.index(needs):
            return self
        return replace(self, needs=needs, ways_out=ways_out)


@dataclass(frozen=True)
class Replayed:
    """One answer out of several derived from the same run, with the cost it would have had alone."""

    prediction: Prediction
    meter: Meter


@dataclass(frozen=True)
class Training:
    """What a method learns from documents before the first question; cached like an index."""

    options: Mapping[str, JsonValue]
    """Everything that the result depends on besides the documents, their indexes and the roles; resolved."""
    roles: frozenset[str] = frozenset()
    """The roles whose models take part, besides those of the index."""
    data: str = "run"
    """``run``: the documents that are asked about; else data of the same set, as ``--data`` takes it."""
    most: int = 400
    """Maximum number of document sets; of more, a seeded sample is taken."""
    references: bool = False
    """Whether it sees questions and reference summaries; these are never those of the run."""


@dataclass(frozen=True)
class Reference:
    """A question about a training document, with its reference answers."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class TrainingItem:
    """One document set to learn from, with its index."""

    documents: DocumentSet
    index: Index
    references: tuple[Reference, ...] = ()
    """Empty unless the training asked for them."""


class Method(ABC, Generic[ConfigT]):
    """One way of reading a long document.

    Subclasses set the class variables and write :meth:`answer`, and :meth:`index` if they keep an index of
    a document, as straight-line code that awaits the models. They never see batches, devices, other
    questions, caches on disk, or the tracker.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    """Raise it whenever results may change: it is part of every cell's and index's identity."""
    summary: ClassVar[str]
    """One line for ``bench list methods``."""
    paper: ClassVar[str]
    """Reference."""
    family: ClassVar[str] = "other"
    """Its group in ``bench list methods``: one of :data:`bench.method.reference.FAMILIES`."""
    Config: ClassVar[type[MethodConfig]]
    replayed: ClassVar[frozenset[str]] = frozenset()
    """Options that only say when to stop or how much to read; a sweep over them asks each question once."""
    editions: ClassVar[frozenset[str]] = frozenset()
    """Options that say which paper's method this is; what an ablation is matched to has the same."""

    index_name: ClassVar[str] = ""
    """Directory of its indexes; methods that build the same index share it. Empty: the method's name."""
    index_version: ClassVar[str] = ""
    """Raise it whenever an index stored under ``index_name`` may change. Empty: the method's version."""
    own_models: ClassVar[frozenset[str]] = frozenset()
    """Names under which the method credits models that it trains itself; their FLOPs are its own count."""

    def __init__(self, config: ConfigT, geometry: Geometry, seed: int = 0) -> None:
        """Keep the validated options, the reader's geometry and the run's seed; no work, no models here."""
        self.config = config
        self.geometry = geometry
        self.seed = seed

    def roles(self) -> Mapping[str, Role]:
        """The models that the method needs, by role; the default is the run's own reader alone."""
        return {"reader": Role()}

    def inner(self) -> Sequence[Method[Any]]:
        """The methods that this one asks, such as a ranker of choice (default: none).

        Their versions are part of a cell's identity.
        """
        return ()

    def packages(self) -> Mapping[str, str]:
        """What it imports beyond the core and the models; checked before the first question.

        Import name -> what to install, such as ``longdoc-bench[gor]``. Default: what the methods that it asks
        import.
        """
        return {name: wanted for method in self.inner() for name, wanted in method.packages().items()}

    def choices(self) -> Mapping[str, JsonValue]:
        """What a table says of it beside its models and prompt: choices of papers or ours that move numbers.

        Option -> its value, resolved. Default: none.
        """
        return {}

    def index_options(self) -> Mapping[str, JsonValue]:
        """The options that the index depends on, resolved; runs that differ elsewhere share the index.

        Default: every option, or none where the method keeps no index of its own.
        """
        if type(self).index is Method.index:
            return {}
        return self.config.model_dump(mode="json")

    def training(self, dataset: str) -> Training | None:
        """What the method learns before any question of the data set is asked; None: nothing.

        Raises ConfigError where the options do not fit.
        """
        return None

    async def train(self, items: Sequence[TrainingItem], training: Training, models: ModelSet) -> Index:
        """The state learned from the items under the options of ``training``; called only with a training."""
        raise NotImplementedError(f"{self.name} names a training but does not implement it")

    def finish(self, index: Index, learned: Index | None) -> Index:
        """The index that questions are answered with: the stored index combined with the learned state.

        Computed whenever an index is loaded and never stored, so it must be cheap compared to building one.
        """
        return index

    def graph_view(self, index: Index, documents: DocumentSet) -> GraphView | None:
        """The index as a figure draws it; None: it is no graph."""
        return None

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[ConfigT]
    ) -> list[Replayed]:
        """The answer under each config, in order, with its cost as if run alone.

        The configs differ from this method's own only in the options in ``replayed``. A method with such
        options overrides this to ask once and derive every config from the longest run.
        """
        answers = []
        for config in configs:
            with metered(Meter()) as meter:
                other = type(self)(config, self.geometry, self.seed)
                answers.append(Replayed(await other.answer(index, question, models), meter))
        return answers

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The query-independent index of the documents; default: empty."""
        return Index()

    @abstractmethod
    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer to one question (query-dependent)."""
