"""``--set key=value``: strings from the command line into a method's validated config."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from bench.errors import ConfigError
from bench.method.contract import MethodConfig
from bench.schema import JsonValue


def parse_assignments(pairs: Sequence[str]) -> dict[str, JsonValue]:
    """``["k=5", "order=document"]`` -> ``{"k": 5, "order": "document"}``.

    A value that reads as JSON is taken as such, anything else as a string.
    Raises ConfigError for a pair without ``=`` or an option given twice.
    """
    values: dict[str, JsonValue] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {pair!r}: expected key=value, for example --set k=7.")
        if key in values:
            raise ConfigError(f"--set {key} is given twice ({values[key]!r} and {text!r}); give it once.")
        values[key] = _read(text)
    return values


def as_typed(value: JsonValue) -> str:
    """The value as one types it, which :func:`parse_assignments` takes for the same."""
    return value if isinstance(value, str) and _read(value) == value else json.dumps(value)


def _read(text: str) -> JsonValue:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also a number of too many digits, or nested too deeply
        return text


def parse_method(text: str) -> tuple[str, dict[str, JsonValue]]:
    """``bm25:k=5,order=document`` -> the method's name and its options, as :func:`parse_assignments`."""
    method, _, assignments = text.partition(":")
    return method, parse_assignments(re.split(r",(?=\s*\w+\s*=)", assignments)) if assignments else {}


def build_config(
    config_type: type[MethodConfig], values: Mapping[str, JsonValue], method: str
) -> MethodConfig:
    """The validated config; raises ConfigError naming the option, what was given and what is allowed."""
    fields = config_type.model_fields
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            options = ", ".join(sorted(fields)) or "none"
            hint = f"Its options: {options}. What they do: bench list methods {method}"
            raise ConfigError(f"Method {method!r} has no option {key!r}.{guess} {hint}")
    try:
        return config_type.model_validate(dict(values))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        messages: dict[str, list[str]] = {}
        for fault in faults:
            # Of an option with alternatives, each has a fault, with its kind in the place.
            whole = fault["loc"] and fault["input"] is values.get(str(fault["loc"][0]))
            place = ".".join(map(str, fault["loc"][:1] if whole else fault["loc"]))
            given = "" if fault["type"] == "missing" else f"={fault['input']!r}"
            place = f"{place}{given}: " if place else ""
            messages.setdefault(place, []).append(fault["msg"].removeprefix("Value error, "))
        lines = [f"{place}{', or '.join(told)}" for place, told in messages.items()]
        described = "; ".join(
            f"{name}: {field.description}"
            for name, field in fields.items()
            if field.description and any(fault["loc"][:1] == (name,) for fault in faults)
        )
        raise ConfigError(
            f"Method {method!r}: " + "; ".join(lines) + (f". ({described})" if described else "."),
        ) from None
