"""The typed content of ``summary.json`` and ``cell.json``, which every table, figure and report reads.

The fields are those of the files; unknown fields of a file are ignored. FLOPs count one multiply-add as 2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.errors import BenchError
from bench.files.hashing import stable_hash
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.metrics.statistics import Interval
from bench.results.records import CELL_FILE, SUMMARY_FILE, TFLOP
from bench.schema import JsonValue


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def to_json(self) -> dict[str, JsonValue]:
        """The fields as stored in the file; unset ones are left out."""
        return self.model_dump(mode="json", exclude_unset=True)


class TokenMeans(_Frozen):
    """Mean tokens per question, by the reader's tokenizer; ``forwarded`` sums over all models."""

    prompt: float
    completion: float
    forwarded: float


class Summary(_Frozen):
    """``summary.json``: the summary of a cell's records (:func:`bench.results.summary.summarize`)."""

    summary_version: int
    cell_id: str = ""
    records_sha256: str = ""
    """SHA-256 of the records file; if it does not match, the summary is stale."""
    n: int
    """Questions."""
    n_documents: int
    n_failed: int
    n_truncated: int
    n_unscored: int = 0
    """Questions without a reference answer; they are in no score."""
    metrics: dict[str, Interval]
    """Metric -> interval, 0..1; empty where no question has a reference answer."""
    retrieval: dict[str, Interval] = {}
    """Measure of the contexts -> interval, 0..1; measures that no question has are left out."""
    query_flops: Interval
    """FLOPs per question."""
    index_flops: float
    """FLOPs per document set, shared by its questions."""
    flop_convention: str
    tokens: TokenMeans
    context_items: float
    """Mean passages or nodes per question; a passage of several documents counts once for each of them."""
    wall_s: float
    """Mean seconds per question, including time spent waiting for the model."""
    flags: dict[str, int]
    """Event -> questions."""
    errors: dict[str, int]
    """Kind of error -> questions."""
    checksum: str = ""
    """Hash of what no clock changes, which an edited summary does not have; empty: an earlier version's."""

    def sealed(self) -> Summary:
        """The summary with its checksum."""
        unsealed = {"checksum", "records_sha256", "wall_s"}
        fields = {name: value for name, value in self.to_json().items() if name not in unsealed}
        return self.model_copy(update={"checksum": stable_hash(fields)})

    @property
    def tflops(self) -> float:
        """Mean TFLOPs per question."""
        return self.query_flops.mean / TFLOP

    @property
    def query_tflops(self) -> Interval:
        """TFLOPs per question."""
        return self.query_flops.scaled(1 / TFLOP)

    @property
    def index_tflops(self) -> float:
        """Mean TFLOPs per document set."""
        return self.index_flops / TFLOP

    @property
    def all_failed(self) -> bool:
        """Whether no question was answered."""
        return self.n > 0 and self.n_failed == self.n

    @property
    def n_scored(self) -> int:
        """Questions that the scores are means over."""
        return self.n - self.n_unscored

    def interval(self, metric: str) -> Interval | None:
        """The interval of a metric or of a measure of the contexts, 0..1; None where nothing was measured.

        Raises KeyError for a metric that the data set does not have.
        """
        if metric in RETRIEVAL_MEASURES:
            return self.retrieval.get(metric)
        return self.metrics[metric] if self.n_scored else None

    def percent(self, metric: str) -> Interval:
        """The interval of a metric, 0..100. Raises KeyError for a metric that the data set does not have."""
        return self.metrics[metric].scaled(100.0)


class CellDescription(_Frozen):
    """``cell.json``: the identity of a cell in full, labels, and where its numbers come from.

    ``cell_id``, ``method`` and ``dataset`` are required; all other fields have defaults, so that a
    description written by hand is valid too.
    """

    cell_id: str = Field(min_length=1)
    method: str = Field(min_length=1)
    method_version: str = ""
    config: dict[str, JsonValue] = {}
    """All options with their values, defaults included."""
    non_defaults: tuple[str, ...] = ()
    """The options whose value is not the default."""
    replayed: tuple[str, ...] = ()
    """The options that the method replays: cells that differ only in these are points of one curve."""
    choices: dict[str, JsonValue] = {}
    """Option -> resolved value, as tables print it next to the method's models and prompt."""
    dataset: str = Field(min_length=1)
    data_source: str = ""
    """``sample``, ``hub`` or ``path``."""
    data_label: str = ""
    """As printed: ``qasper (sample)``."""
    data_revision: str = ""
    examples: str = ""
    n_examples: int = 0
    models: dict[str, dict[str, JsonValue]] = {}
    """Role -> model identity (name, source, revision or weight hash, dtype)."""
    geometry: dict[str, int] = {}
    prompts: str = ""
    max_new_tokens: int = 0
    seed: int = 0
    training: str = ""
    inner: tuple[str, ...] = ()
    """Name and version of every method inside this one, outermost first."""
    model: str = ""
    """The reader as the user named it."""
    model_label: str = ""
    model_small: bool = False
    """Whether the reader is one of the small models trained by this project."""
    unfit_models: tuple[str, ...] = ()
    """Small models of the cell that cannot read its documents, which their generator did not write."""
    data_path: str = ""
    """Where data of ``data_source`` path were, absolute; a hint for finding them again."""
    dtype: str = ""
    limit: int | None = None
    flop_convention: str = ""
    metrics: tuple[str, ...] = ()
    """The data set's metrics, the main one first."""
    created_at: str = ""
    """ISO 8601."""
    git_commit: str | None = None
    versions: dict[str, str] = {}
    """Package -> version."""
    python: str = ""
    platform: str = ""

    @property
    def data(self) -> str:
        """The data as printed: ``qasper (sample)``."""
        return self.data_label or self.dataset


ModelT = TypeVar("ModelT", Summary, CellDescription)


def read_summary(folder: Path) -> Summary:
    """The ``summary.json`` of a cell's folder; raises BenchError naming the file and the field at fault."""
    return _read(folder / SUMMARY_FILE, Summary)


def read_description(folder: Path) -> CellDescription:
    """The ``cell.json`` of a cell's folder; raises BenchError naming the file and the field at fault."""
    return _read(folder / CELL_FILE, CellDescription)


_REPAIR = "Run the cell's command again: it rewrites the file without repeating any recorded question."


def _read(path: Path, kind: type[ModelT]) -> ModelT:
    try:
        return kind.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(map(str, fault["loc"]))
        raise BenchError(
            f"{path}: {f'field {field!r}: ' if field else ''}{fault['msg']}. {_REPAIR}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BenchError(f"{path} cannot be read ({error}). {_REPAIR}") from None
