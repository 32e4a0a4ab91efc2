"""The models of one run by role, each loaded once per process and shared by all roles that name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bench.errors import ConfigError
from bench.models.conversation import LanguageModel
from bench.models.embedder import Embedder
from bench.models.language_model import CausalLanguageModel
from bench.models.loader import (
    fetch,
    load_causal,
    load_cross_encoder,
    load_encoder,
    load_stop_configs,
    load_tokenizer,
)
from bench.models.pair_scorer import PairScorer
from bench.models.presets import Pooling
from bench.models.served.client import IN_FLIGHT, ServerClient
from bench.models.served.language_model import ServedLanguageModel
from bench.models.spec import ModelSpec

_loaded: dict[tuple[object, ...], Any] = {}
LoadedT = TypeVar("LoadedT")


def _key(spec: ModelSpec) -> tuple[object, ...]:
    return (spec.name, spec.source, repr(spec.identity()), spec.actual_device, spec.server)


def _once(spec: ModelSpec, how: object, make: Callable[[], LoadedT]) -> LoadedT:
    """What ``make`` gives, made on first use and cached for the rest of the process; how: part of the key."""
    key = (*_key(spec), how)
    if key not in _loaded:
        _loaded[key] = make()
    loaded: LoadedT = _loaded[key]
    return loaded


def load_language_model(spec: ModelSpec) -> CausalLanguageModel:
    """The causal model of a spec, loaded once per process; raises ModelUnavailableError, ConfigError."""

    def make() -> CausalLanguageModel:
        tokenizer, model = load_tokenizer(spec), load_causal(spec)
        return CausalLanguageModel(spec.facts, tokenizer, model)

    return _once(spec, "reads", make)


def load_embedder(spec: ModelSpec, pooling: Pooling | None = None) -> Embedder:
    """The encoder of a spec, loaded once per process.

    pooling: as in :func:`bench.models.loader.load_encoder`. Raises ModelUnavailableError, ConfigError.
    """

    def make() -> Embedder:
        return Embedder(spec.name, load_encoder(spec, pooling), spec.architecture)

    return _once(spec, ("embeds", pooling), make)


def load_pair_scorer(spec: ModelSpec) -> PairScorer:
    """The cross-encoder of a spec, loaded once per process; raises ModelUnavailableError, ConfigError."""
    return _once(spec, "scores", lambda: PairScorer(spec.name, load_cross_encoder(spec), spec.architecture))


def connect_language_model(spec: ModelSpec, in_flight: int = IN_FLIGHT) -> ServedLanguageModel:
    """The served model of a spec, made once per process.

    in_flight: most requests at a time. Raises ModelUnavailableError, ConfigError, ServerError.
    """
    server = spec.server
    assert server is not None

    def make() -> ServedLanguageModel:
        client = ServerClient(server.address, in_flight)
        configs = load_stop_configs(spec)
        return ServedLanguageModel(spec.facts, load_tokenizer(spec), configs, client, server.info)

    return _once(spec, ("reads", in_flight), make)


def forget_all() -> None:
    """Let every loaded model drop what it has kept of texts: embeddings, keys and values."""
    for model in _loaded.values():
        if isinstance(model, CausalLanguageModel | Embedder):
            model.forget()


class LoadedModels:
    """The models of a run: files are checked at once, models loaded on first use."""

    def __init__(self, roles: Mapping[str, ModelSpec], in_flight: int = IN_FLIGHT) -> None:
        """roles: role -> model; in_flight: most requests at a time to a served one.

        Raises ModelUnavailableError when a model's files are unavailable, before any question runs, and
        ConfigError if two different models share a name, since their costs would be mixed up.
        """
        named: dict[str, ModelSpec] = {}
        for role, spec in roles.items():
            other = named.setdefault(spec.name, spec)
            if _key(other) != _key(spec):
                raise ConfigError(
                    f"role {role!r}: two different models are called {spec.name!r}; rename one of the"
                    " folders, or use the same dtype and device for both."
                )
        for spec in named.values():
            if spec.server is None:
                fetch(spec)
        self.specs: Mapping[str, ModelSpec] = dict(roles)
        """Role -> model."""
        self._in_flight = in_flight

    def lm(self, role: str = "reader") -> LanguageModel:
        """The causal model in this role; raises ConfigError for an unknown role or another kind of model."""
        spec = self._spec(role)
        if spec.server:
            return connect_language_model(spec, self._in_flight)
        return load_language_model(spec)

    def embedder(self, role: str = "embedder", *, pooling: Pooling | None = None) -> Embedder:
        """The text encoder in this role.

        Raises ConfigError for an unknown role, another kind of model, or a model with another pooling.
        """
        return load_embedder(self._spec(role), pooling)

    def pair_scorer(self, role: str = "scorer") -> PairScorer:
        """The cross-encoder in this role; raises ConfigError for an unknown role or another kind of model."""
        return load_pair_scorer(self._spec(role))

    def _spec(self, role: str) -> ModelSpec:
        if role not in self.specs:
            raise ConfigError(
                f"no model for role {role!r}; this run has {', '.join(sorted(self.specs))}. A method names"
                " its roles in roles()."
            )
        return self.specs[role]
