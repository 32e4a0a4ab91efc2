"""Text inside HTML: texts of documents and models are escaped, so that a page never executes them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources

from bench.files.printable import printable
from bench.schema import JsonValue


def escaped(text: str) -> str:
    """The text for an element's content or a quoted attribute."""
    return html.escape(printable(text))


def filled(template: str, **values: object) -> str:
    """A Jinja2 template with its values; every text is escaped unless the template says ``|safe``."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def text(value: object) -> object:
        return Markup(escaped(value)) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        autoescape=True, finalize=text, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(template).render(values)


def embedded_json(value: JsonValue) -> str:
    """JSON in ASCII that cannot end its enclosing script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source_hash(source: str) -> str:
    """The hash of a style or script, as a content security policy lists it."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def own_file(package: str, name: str) -> str:
    """The content of a file that lies in a package: a template, a style or a script."""
    return resources.files(package).joinpath(name).read_text("utf-8")
