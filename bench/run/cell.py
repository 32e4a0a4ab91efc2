"""A cell of a table before it runs: everything resolved and checked, no model loaded yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.data import LoadedData, load as load_data
from bench.data.cards import Card
from bench.data.own import NOT_PATHS, card_for
from bench.errors import ConfigError
from bench.files.hashing import stable_hash
from bench.files.paths import written_path
from bench.method import prompts
from bench.method.contract import Method
from bench.method.options import build_config
from bench.method.registry import load_method
from bench.models.served.address import without_url
from bench.models.spec import ModelSpec, resolve
from bench.packages import READER, require
from bench.results.curves import as_text, cut
from bench.run.fitness import unfit_models
from bench.run.identity import CellIdentity
from bench.run.training_plan import TRAINING_PART, TrainingPlan, plan_training, with_source
from bench.schema import Example, JsonValue, Question


@dataclass(frozen=True)
class CellRequest:
    """The arguments of ``bench run``; without a method, what all cells of a table, figure or sweep share."""

    method: str = ""
    dataset: str = ""
    """Empty where ``data`` is a path: what the data there call themselves."""
    model: str = "tiny"
    """The reader: preset, hub id, folder or served model."""
    data: str = "sample"
    """``sample``, ``hub`` or a path."""
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    limit: int | None = None
    """Only this many questions of each data set, from the start; None: all."""
    seed: int = 0
    dtype: str | None = None
    """None: chosen by device."""
    model_named: bool = True
    """Whether the user named the model; the default reader does not run on text that it cannot read."""

    def of(
        self,
        method: str,
        dataset: str,
        options: Mapping[str, JsonValue] | None = None,
        *,
        model: str | None = None,
    ) -> CellRequest:
        """A method on a data set in this setting; model: overrides its reader."""
        return replace(self, method=method, dataset=dataset, options=options or {}, model=model or self.model)


@dataclass(frozen=True)
class Cell:
    """A resolved request: method, data and models exist and fit together."""

    request: CellRequest
    method: Method[Any]
    card: Card
    data: LoadedData
    reader: ModelSpec
    roles: Mapping[str, ModelSpec]
    """Every role of the method with its model, ``reader`` included."""
    identity: CellIdentity
    training: TrainingPlan | None = None
    """What the method is trained on before the first question; None: no training."""
    unfit: tuple[str, ...] = ()
    """Small models that cannot read these documents (:mod:`bench.run.fitness`)."""
    out: Path | None = None
    """Its folder, where that is not its place below the results folder."""

    @property
    def name(self) -> str:
        """Method with the options that it was given, data and reader, as one line of a command's progress."""
        options = (f" {key}={cut(as_text(value), 20)}" for key, value in self.request.options.items())
        return f"{self.request.method}{''.join(options)} on {self.data.label}, {self.reader.label}"

    @property
    def title(self) -> str:
        """Method, data and model, for the lines that close a run."""
        small = ", a small stand-in" if self.reader.small else ""
        return f"{self.request.method} on {self.data.label} with {self.reader.label}{small}"

    @property
    def index_name(self) -> str:
        """Directory of its indexes; methods that build the same index share it."""
        return self.method.index_name or self.method.name

    def require_packages(self) -> None:
        """Raise MissingPackageError where its method or a model in this process could not run here."""
        packages = self.method.packages()
        require(f"The method {self.method.name}", *packages, brought_by=packages)
        if any(spec.server is None for spec in self.roles.values()):
            require("A model in this process", *READER)

    def folder(self, results: Path) -> Path:
        """The cell's folder; ``results``: the results folder."""
        return self.out or results / "cells" / self.identity.folder

    def question(self, example: Example) -> Question:
        """The question that the method gets for one example."""
        return Question(
            text=example.question,
            documents=example.documents,
            max_new_tokens=self.card.max_new_tokens,
            task=example.task,
            dataset=example.dataset,
            longbench_prompt=self.card.longbench_prompt or "",
            evidence=example.evidence,
            paper_values=_paper_values(self.card),
            retrieval_query=self.card.retrieval_query_of(example),
        )

    def training_key_parts(self) -> dict[str, JsonValue]:
        """What the training depends on besides the documents; only for a cell with a training plan."""
        assert self.training is not None
        training = self.training.training
        return {
            "method": self.identity.method,
            "version": self.identity.method_version,
            "index": self.index_key_parts(),
            "training": _without_urls(training.options),
            "models": {role: dict(self.identity.models[role]) for role in sorted(training.roles)},
        }

    def index_key_parts(self) -> dict[str, JsonValue]:
        """Everything that an index of this cell depends on besides the documents."""
        return {
            "method": self.index_name,
            "version": self.method.index_version or self.identity.method_version,
            "options": _without_urls(self.method.index_options()),
            "models": {
                name: dict(self.identity.models[name])
                for name, role in sorted(self.method.roles().items())
                if role.index
            },
            "seed": self.request.seed,
        }


def _load(dataset: str, data: str, limit: int | None, training: bool = False) -> LoadedData:
    return _load_once(dataset, data, limit, training, _stamp(data))


@lru_cache(maxsize=8)
def _load_once(
    dataset: str, data: str, limit: int | None, training: bool, stamp: tuple[object, ...]
) -> LoadedData:
    return load_data(card_for(dataset, data), data, limit, training=training)


def _stamp(data: str) -> tuple[object, ...]:
    """Name, size and time of change of the user's files: data that change between two runs are read again."""
    if data in NOT_PATHS:
        return ()
    path, stamps = written_path(data), list[tuple[str, int, int]]()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        with suppress(OSError):  # loading says what cannot be read
            status = file.stat()
            stamps.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def plan_cell(request: CellRequest) -> Cell:
    """The cell of a request, checked as far as possible without loading a model.

    Raises BenchError for an unknown name, an invalid option, unreadable data, or a model whose files are
    missing.
    """
    card = card_for(request.dataset, request.data)
    request = replace(request, dataset=card.name)
    return plan_on(request, card, _load(card.name, request.data, request.limit))


def plan_on(request: CellRequest, card: Card, data: LoadedData) -> Cell:
    """The cell of a request on data that are loaded; raises like :func:`plan_cell`."""
    method_type = load_method(request.method)
    reader = resolve(request.model, dtype=request.dtype)
    advised = recommended_options(reader, method_type, card)
    try:
        config = build_config(method_type.Config, {**advised, **request.options}, request.method)
    except ConfigError as error:
        build_config(method_type.Config, request.options, request.method)  # raises if they are at fault alone
        unasked = " ".join(f"{key}={advised[key]}" for key in advised if key not in request.options)
        raise ConfigError(f"{error} {unasked} comes with {reader.name}; --set goes before it.") from error
    method = method_type(config, reader.geometry, request.seed)
    if getattr(config, "prompt", "") == "longbench":
        prompts.require_template(card.longbench_prompt, card.name)
    roles = {
        name: resolve(role.model, dtype=request.dtype) if role.model else reader
        for name, role in method.roles().items()
    }
    _require_local(request.method, method, roles)
    for role, needed in method.roles().items():
        if needed.model and role.endswith(("embedder", "encoder", "scorer")) and roles[role].kind == "causal":
            raise ConfigError(f"{request.method}: {role} is {needed.model}, a causal model, not an encoder.")

    def load_training(source: str) -> LoadedData:
        data = _load(request.dataset, request.data if source == TRAINING_PART else source, None, True)
        asked = (replace(one, question=card.retrieval_query_of(one) or one.question) for one in data.examples)
        return replace(data, examples=tuple(asked))  # learned from as it is searched with

    training = plan_training(
        with_source(method.training(card.name), request.data, card), data, load_training, request.seed
    )
    identity = CellIdentity(
        method=request.method,
        method_version=method_type.version,
        config=_without_urls(config.model_dump(mode="json")),
        dataset=card.name,
        data_source=data.source,
        data_label=data.label,
        data_revision=data.revision,
        examples=stable_hash([example.id for example in data.examples]),
        n_examples=len(data.examples),
        models={role: spec.identity() for role, spec in roles.items()},
        geometry=asdict(reader.geometry),
        prompts=_prompt_hash(card),
        max_new_tokens=card.max_new_tokens,
        seed=request.seed,
        training=training.identity if training else "",
        inner=tuple(_inner_versions(method)),
    )
    unfit: tuple[str, ...] = ()
    if data.source != "sample":
        unfit = unfit_models(roles.values(), (example.documents for example in data.examples))
    return Cell(request, method, card, data, reader, roles, identity, training, unfit)


def shared_runs(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The cells in groups that one run per question serves: they differ in replayed options alone."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        identity = asdict(cell.identity)
        identity["config"] = {k: v for k, v in identity["config"].items() if k not in cell.method.replayed}
        groups.setdefault(stable_hash(identity), []).append(cell)
    return list(groups.values())


def _inner_versions(method: Method[Any]) -> Iterator[str]:
    """Name and version of every method inside this one, and inside those."""
    for inner in method.inner():
        yield f"{inner.name} {inner.version}"
        yield from _inner_versions(inner)


def _require_local(name: str, method: Method[Any], roles: Mapping[str, ModelSpec]) -> None:
    """Raise ConfigError for a role behind a server that needs what no server gives."""
    refused = {
        role: needed.ways_out
        for role, needed in method.roles().items()
        if needed.needs in ("tokens", "attention") and roles[role].server
    }
    if refused:
        served = ", ".join(f"{role} {roles[role].name}" for role in refused)
        reasons = " ".join(dict.fromkeys(refused.values()))
        raise ConfigError(f"{name}: {served} is behind a server. {reasons}")


def _without_urls(options: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The options, with the model alone where one is the address of a served model."""
    return {name: without_url(value) for name, value in options.items()}


def recommended_options(reader: ModelSpec, method: type[Method[Any]], card: Card) -> dict[str, JsonValue]:
    """What suits the reader of the method's options; LongBench's prompt only where the card has one."""
    return {
        option: value
        for option, value in reader.recommended_options.items()
        if option in method.Config.model_fields
        and (value != "longbench" or card.longbench_prompt is not None)
    }


def _prompt_hash(card: Card) -> str:
    return stable_hash(
        [
            prompts.question_prompt("{context}", "{question}"),
            prompts.ANSWER_INSTRUCTION,
            prompts.PASSAGE_SEPARATOR,
            card.longbench_prompt,
            _paper_values(card),
            *([prompts.SUMMARY_INSTRUCTION] if card.task == "summarization" else []),
            *([card.query] if card.query else []),
            *([["retrieval", card.retrieval_query]] if card.retrieval_query else []),
        ]
    )


def _paper_values(card: Card) -> dict[str, dict[str, JsonValue]]:
    """What the papers fix for this set, as defaults for a method's options."""
    return {paper: dict(values.options) for paper, values in card.papers.items()}
