"""The models of one run by role, each loaded once per process and shared by all roles that name it."""

from __future__ import annotations

from collections.abc import Mapping

from bench.errors import ConfigError
from bench.models.api import Embedder, LanguageModel
from bench.models.embedder import SentenceEncoder
from bench.models.language_model import CausalLanguageModel
from bench.models.loader import architecture_of, fetch, load_causal, load_encoder, load_tokenizer
from bench.models.presets import Pooling
from bench.models.spec import ModelSpec

_loaded: dict[tuple[object, ...], CausalLanguageModel | SentenceEncoder] = {}


def _key(spec: ModelSpec) -> tuple[object, ...]:
    return (spec.name, spec.source, spec.actual_dtype, spec.actual_device, spec.attention)


def load_language_model(spec: ModelSpec) -> CausalLanguageModel:
    """The causal model of a spec, loaded on first use and cached for the rest of the process.

    Raises ModelUnavailableError, ConfigError.
    """
    key = _key(spec)
    cached = _loaded.get(key)
    if isinstance(cached, CausalLanguageModel):
        return cached
    tokenizer = load_tokenizer(spec)
    model = load_causal(spec)
    loaded = CausalLanguageModel(
        spec.name,
        model,
        tokenizer,
        geometry=spec.geometry,
        architecture=architecture_of(model),
        chat_style=spec.chat,
    )
    _loaded[key] = loaded
    return loaded


def load_embedder(spec: ModelSpec, pooling: Pooling | None = None) -> SentenceEncoder:
    """The encoder of a spec, loaded on first use and cached for the rest of the process.

    pooling: as in :func:`bench.models.loader.load_encoder`. Raises ModelUnavailableError, ConfigError.
    """
    key = (*_key(spec), pooling)
    cached = _loaded.get(key)
    if isinstance(cached, SentenceEncoder):
        return cached
    model = load_encoder(spec, pooling)
    loaded = SentenceEncoder(spec.name, model, architecture_of(model[0].auto_model))
    _loaded[key] = loaded
    return loaded


def unload_all() -> None:
    """Drop every loaded model, so that its memory can be freed."""
    _loaded.clear()


class LoadedModels:
    """A :class:`bench.models.api.ModelSet`: files are checked at once, models loaded on first use."""

    def __init__(self, roles: Mapping[str, ModelSpec]) -> None:
        """roles: role -> model.

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
            fetch(spec)
        self._roles = dict(roles)

    @property
    def specs(self) -> Mapping[str, ModelSpec]:
        """Role -> model."""
        return self._roles

    def lm(self, role: str = "reader") -> LanguageModel:
        """The causal model in this role; raises ConfigError for an unknown role or another kind of model."""
        return load_language_model(self._spec(role))

    def embedder(self, role: str = "embedder", *, pooling: Pooling | None = None) -> Embedder:
        """The text encoder in this role.

        Raises ConfigError for an unknown role, another kind of model, or a model with another pooling.
        """
        return load_embedder(self._spec(role), pooling)

    def _spec(self, role: str) -> ModelSpec:
        if role not in self._roles:
            raise ConfigError(
                f"no model for role {role!r}; this run has {', '.join(sorted(self._roles))}. A method names"
                " its roles in models()."
            )
        return self._roles[role]
