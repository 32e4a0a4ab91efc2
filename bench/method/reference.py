"""A method and its options as text, from its ``Config``: ``bench list methods NAME`` and docs/methods.md."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from bench.method.contract import Method

FAMILIES = ("graphs and trees", "rankers", "around a ranker", "the whole text", "other")
"""Groups of methods in the order in which they are listed."""


@dataclass(frozen=True)
class Option:
    """One option of a method."""

    name: str
    values: str
    """What it may be, as ``on, off`` or ``whole number, 1 or more``."""
    default: str
    """Empty where the default depends on something else, which ``meaning`` says."""
    meaning: str
    """With the source of the default."""
    replayed: bool
    """Whether a sweep asks each question once for all its values."""


def options(method: type[Method[Any]]) -> list[Option]:
    """The method's options, in the order of its config."""
    return [
        Option(
            name=name,
            values=_values(field),
            default=_default(field),
            meaning=field.description or "",
            replayed=name in method.replayed,
        )
        for name, field in method.Config.model_fields.items()
    ]


def family_place(method: type[Method[Any]]) -> int:
    """The place of the method's group among :data:`FAMILIES`; unknown ones are last."""
    return FAMILIES.index(method.family if method.family in FAMILIES else FAMILIES[-1])


def described(method: type[Method[Any]], width: int = 100) -> str:
    """The method with its paper and options, as lines of at most ``width`` characters."""
    about = " ".join((inspect.getdoc(method.Config) or "").split())
    lines = [f"{method.name}: {method.summary}", f"paper: {method.paper}"]
    lines += [*textwrap.wrap(f"options: {about}", width), ""]
    described = options(method)
    for option in described:
        default = f"; default {option.default}" if option.default else ""
        once = "; a sweep asks once for all values" if option.replayed else ""
        lines.append(f"{option.name}  ({option.values}{default}{once})")
        lines += textwrap.wrap(option.meaning, width, initial_indent="    ", subsequent_indent="    ")
    if described:
        first = next((option for option in described if option.default), described[0])
        lines += ["", f"Set one with --set {first.name}={first.default or 'VALUE'}; --set may be repeated."]
    else:
        lines.append("It has no options.")
    return "\n".join(lines)


def markdown(methods: Iterable[type[Method[Any]]]) -> str:
    """A page on the methods, by family, each with its options and their defaults."""
    return "\n".join(_page(methods)) + "\n"


def _page(methods: Iterable[type[Method[Any]]]) -> Iterator[str]:
    yield "# Methods and their options"
    yield ""
    yield "`bench list methods NAME` says what each option means, which values it takes and where its"
    yield "default comes from; `--set KEY=VALUE` sets one. Here an option without a value has a default that"
    yield "depends on the model or the data; of those marked \\* a sweep asks each question once for all"
    yield "values. Some readers have other defaults (`bench model info READER`)."
    family = ""
    for method in sorted(methods, key=lambda one: (family_place(one), one.name)):
        if FAMILIES[family_place(method)] != family:
            family = FAMILIES[family_place(method)]
            yield from ("", f"## {family.capitalize()}")
        yield from ("", f"### {method.name}", "", f"{_sentence(method.summary)} {_sentence(method.paper)}")
        shown = [
            f"`{option.name}{option.default and f'={option.default}'}`" + ("\\*" if option.replayed else "")
            for option in options(method)
        ]
        if shown:
            yield from ("", *textwrap.wrap(", ".join(shown) + ".", 118, break_long_words=False))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required() or value in (None, ""):
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=list)


_KINDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true, false"}


def _values(field: FieldInfo) -> str:
    """What the annotation and its bounds allow."""
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not NoneType]
    text = " or ".join(dict.fromkeys(_kind(kind) for kind in kinds))
    bounds = list(filter(None, map(_bound, field.metadata)))
    return ", ".join([text, *bounds])


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if annotation in _KINDS or get_origin(annotation) in (Literal, dict, list, tuple):
        return (annotation,)
    return get_args(annotation) or (annotation,)


def _kind(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        alone, *metadata = get_args(kind)
        bounds = filter(None, (_bound(c) for field in metadata for c in getattr(field, "metadata", ())))
        return f"{_kind(alone)} ({', '.join(bounds)})"
    if get_origin(kind) is Literal:
        *others, last = map(str, get_args(kind))
        return f"{', '.join(others)} or {last}" if others else last
    return _KINDS.get(kind) or _KINDS.get(get_origin(kind)) or "mapping"


def _bound(constraint: object) -> str:
    match constraint:
        case Ge(ge):
            return f"{ge} or more"
        case Gt(gt):
            return f"more than {gt}"
        case Le(le):
            return f"{le} or less"
        case Lt(lt):
            return f"less than {lt}"
    return ""
