"""Text inside HTML: texts of documents and models are escaped, so that a page never executes them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources

from bench.schema import JsonValue

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """The text without control characters and lone surrogates; line ends and tabs stay."""
    return _UNPRINTABLE.sub("\ufffd", text)


def filled(name: str, **values: object) -> str:
    """A Jinja2 template of this package with its values, escaped unless it says ``|safe``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return (
        Environment(
            loader=PackageLoader("bench.report", ""),
            autoescape=True,
            finalize=lambda value: printable(value) if type(value) is str else value,
            undefined=StrictUndefined,
            keep_trailing_newline=True,
        )
        .get_template(name)
        .render(values)
    )


def embedded_json(value: JsonValue) -> str:
    """JSON in ASCII that cannot end its enclosing script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source_hash(source: str) -> str:
    """The hash of a style or script, as a content security policy lists it."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def own_file(name: str) -> str:
    """The content of a style or script of this package."""
    return resources.files("bench.report").joinpath(name).read_text("utf-8")
