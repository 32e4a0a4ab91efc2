"""YAML 1.2 files into pydantic models; every error names the file, the line and the key."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import Node

from bench.errors import DataError, UnknownNameError
from bench.schema import JsonValue

MAX_BYTES = 1 << 20
"""Size limit of a YAML file."""
MAX_DEPTH = 50
"""Levels of a YAML file."""


class Definition(BaseModel):
    """Base of the definitions in a folder, one file each, whose ``id`` is the file's name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str


ModelT = TypeVar("ModelT", bound=BaseModel)
DefinitionT = TypeVar("DefinitionT", bound=Definition)


def load_definition(kind: str, name: str, folder: Path, model: type[DefinitionT]) -> DefinitionT:
    """The definition ``name`` in a folder, also by make's name for it, which says the kind: ``gor-table1``.

    kind: ``table`` or ``figure``. Raises UnknownNameError or DataError.
    """
    paths = {path.stem: path for path in folder.glob("*.yaml")}
    name = re.sub(rf"^(\w+)-{kind[:3]}\w*?(\d+)$", r"\1\2", name)
    if name not in paths:
        raise UnknownNameError(kind, name, paths, hint=f"See: bench list {kind}s")
    return read_definition(paths[name], model)


def read_definition(path: Path, model: type[DefinitionT]) -> DefinitionT:
    """The definition in a YAML file; raises DataError naming file:line and key, and for another id."""
    definition = read_yaml(path, model)
    if definition.id != path.stem:
        raise DataError(f"{path}: id is {definition.id!r}; expected the file's name, {path.stem!r}.")
    return definition


def read_yaml(path: Path, model: type[ModelT], what: str = "definition") -> ModelT:
    """The content of a YAML file as a ``model``.

    what: kind of file, for messages. Raises DataError naming file:line and key for invalid values, and for
    YAML that plain data do not need: aliases (they can expand exponentially), tags, duplicate keys, dates,
    non-finite numbers.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: larger than {MAX_BYTES:,} bytes; this is not a {what}.")
        text = path.read_text("utf-8")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}. Expected a YAML file.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; save the {what} as UTF-8.") from None
    reader = YAML(typ="rt", pure=True)
    reader.Composer = _Composer
    try:
        tree = reader.load(text)
        values = _plain(tree, path, 1)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise DataError(f"{path}:{line}: {error.problem or error.context}; repair the {what}.") from None
    except (YAMLError, ValueError, TypeError) as error:  # ValueError: such as the 99th of a month
        raise DataError(f"{path}:1: {error}; repair the {what}.") from None
    if not isinstance(values, dict):
        kind = "nothing" if values is None else f"a {type(values).__name__}"
        raise DataError(f"{path}:1: a {what} is a mapping of keys to values; found {kind}.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [_fault(path, model, tree, dict(fault)) for fault in error.errors(include_url=False)]
        raise DataError("\n".join(faults)) from None


class _Composer(Composer):
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            raise ComposerError(None, None, "aliases (*name) are not allowed", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise ComposerError(None, None, "tags (!name) are not allowed", event.start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ComposerError(None, None, "nested too deeply", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _plain(value: Any, path: Path, line: int) -> JsonValue:
    """The value without the YAML library's own types; raises DataError for one that JSON does not have."""
    match value:
        case dict():
            if strange := [key for key in value if not isinstance(key, str)]:
                raise DataError(f"{path}:{line}: the key {strange[0]!r} is not text; put it in quotes.")
            return {str(key): _plain(below, path, _line(value, [key], line)) for key, below in value.items()}
        case list():
            return [_plain(below, path, _line(value, [at], line)) for at, below in enumerate(value)]
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case float():
            raise DataError(f"{path}:{line}: {value} is not a finite number.")
    raise DataError(f"{path}:{line}: a value of type {type(value).__name__}; expected plain text in quotes.")


def _line(tree: Any, where: Sequence[str | int], line: int = 1) -> int:
    """Line (from 1) of the deepest part of ``where`` that the tree has; ``line``: of the tree itself."""
    for part in where:
        try:
            place = tree.lc.item(part) if isinstance(part, int) else tree.lc.key(part)
            line, tree = place[0] + 1, tree[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return line


def _fault(path: Path, model: type[BaseModel], tree: Any, fault: dict[str, Any]) -> str:
    """One validation fault as ``file:line: key: problem``; without a key if it is of the whole file."""
    where = [part for part in fault["loc"] if part != "[key]"]
    match fault["type"]:
        case "missing":
            problem = "is missing; add it"
        case "extra_forbidden":
            schema = model.model_json_schema()
            parts = [schema, *schema.get("$defs", {}).values()]
            known = {name for part in parts for name in part.get("properties", ())}
            near = difflib.get_close_matches(str(where[-1]), sorted(known), n=1, cutoff=0.5)
            problem = "is not a known key." + (f" Did you mean {near[0]!r}?" if near else "")
        case "value_error":
            problem = str(fault["ctx"]["error"])
        case _:
            value = repr(fault["input"])
            problem = f"{fault['msg']}; found {value if len(value) <= 60 else value[:57] + '...'}"
    return ": ".join(filter(None, (f"{path}:{_line(tree, where)}", ".".join(map(str, where)), problem)))
