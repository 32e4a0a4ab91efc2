"""The report as one HTML page; its content security policy allows only its own style and script.

Texts of documents, models and methods are escaped in the tables, and embedded as JSON that the script shows
only through ``textContent``.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

from bench.files.printable import printable
from bench.metrics import METRIC_LABELS, label_of
from bench.report.cells import options_text
from bench.report.content import Report
from bench.tables.formats import DASH, percent, three_digits


def report_page(report: Report) -> str:
    """The page; a pure function of the report."""
    style, script = own_file("page.css"), own_file("page.js")
    labels = {label_of(named.metric) for _, named in report.runs}
    template = environment().get_template("page.html.jinja")
    return template.render(
        report=report,
        policy=f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        base64=lambda content: base64.b64encode(content).decode(),
        dash=DASH,
        number=three_digits,
        metric=labels.pop() if len(labels) == 1 else "",
        labels=METRIC_LABELS,
        percent=percent,
        options=options_text,
    )


def environment() -> Environment:
    """Jinja2 with this package's templates, whose values are escaped unless they say ``|safe``.

    ``|tojson`` makes ASCII that cannot end its enclosing script element.
    """
    made = Environment(
        loader=PackageLoader("bench.report", ""),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def source_hash(source: str) -> str:
    """The hash of a style or script, as a content security policy lists it."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


def own_file(name: str) -> str:
    """The content of a style or script of this package."""
    return resources.files("bench.report").joinpath(name).read_text("utf-8")
