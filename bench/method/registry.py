"""Methods by name, from the entry-point group ``bench.methods``, of this and any other package.

Listing reads package metadata only; a method's module is imported when the method is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from bench.errors import BenchError, UnknownNameError
from bench.method.contract import Method, MethodConfig

GROUP = "bench.methods"


class BrokenPluginError(BenchError):
    """A registered method whose module or class cannot be used; names the distribution that ships it."""


@dataclass(frozen=True)
class Registered:
    """A method as declared in package metadata, not yet imported."""

    name: str
    distribution: str
    """Distribution and version, such as ``longdoc-bench 0.1.0``."""
    entry_point: EntryPoint

    def load(self) -> type[Method[Any]]:
        """The method's class.

        Raises BrokenPluginError if the import fails or the entry point is not a whole Method of this name.
        """
        whose = f"Method {self.name!r} ({self.entry_point.value}, from {self.distribution})"
        try:
            loaded = self.entry_point.load()
        except Exception as error:  # whatever a third party's module raises at import
            raise BrokenPluginError(
                f"{whose} cannot be imported: {type(error).__name__}: {error}. "
                f"Repair or uninstall {self.distribution}."
            ) from error
        if not (isinstance(loaded, type) and issubclass(loaded, Method)):
            raise BrokenPluginError(
                f"{whose} is {loaded!r}; expected a subclass of bench.method.contract.Method."
            )
        texts = ("name", "version", "summary", "paper")
        lacking = [text for text in texts if not isinstance(getattr(loaded, text, None), str)]
        has_config = isinstance(c := getattr(loaded, "Config", None), type) and issubclass(c, MethodConfig)
        lacking += [*([] if has_config else ["Config"]), *sorted(loaded.__abstractmethods__)]
        if lacking:
            raise BrokenPluginError(
                f"{whose} does not define {', '.join(lacking)}: a method has a MethodConfig as "
                f"Config, answer, and as text {', '.join(texts)}."
            )
        if loaded.name != self.name:
            raise BrokenPluginError(f"{whose} calls itself {loaded.name!r}; the two must agree.")
        return loaded


def registered_methods() -> Mapping[str, Registered]:
    """Every registered method by name, sorted; imports none of them.

    Raises BrokenPluginError when two distributions register different code under one name.
    """
    return _registered(entry_points, tuple(sys.path))


@lru_cache(maxsize=4)
def _registered(find: Callable[..., Iterable[EntryPoint]], path: tuple[str, ...]) -> Mapping[str, Registered]:
    """The methods that ``find`` lists on import path ``path``; cached, as a sweep calls it very often."""
    methods: dict[str, Registered] = {}
    for point in sorted(find(group=GROUP), key=lambda p: p.name):
        dist = point.dist
        entry = Registered(point.name, f"{dist.name} {dist.version}" if dist else "an unknown package", point)
        other = methods.get(point.name)
        if other is not None and other.entry_point.value != point.value:
            raise BrokenPluginError(
                f"Two packages register a method {point.name!r}: {other.distribution} "
                f"({other.entry_point.value}) and {entry.distribution} ({point.value}). Uninstall one."
            )
        methods[point.name] = entry
    return MappingProxyType(methods)


def load_method(name: str) -> type[Method[Any]]:
    """The class of the named method; raises UnknownNameError or BrokenPluginError."""
    methods = registered_methods()
    if name not in methods:
        raise UnknownNameError("method", name, methods, hint="See: bench list methods")
    return methods[name].load()
