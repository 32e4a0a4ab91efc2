"""The report as one HTML page; its content security policy allows only its own style and script.

Texts of documents, models and methods are escaped in the tables, and embedded as JSON that the script shows
only through ``textContent``.
"""

from __future__ import annotations

import base64
from importlib import resources

from bench.report.content import Report
from bench.tables.formats import DASH, three_digits
from bench.tables.html_text import embedded_json, filled, source_hash


def report_page(report: Report) -> str:
    """The page; a pure function of the report."""
    style, script = _own("page.css"), _own("page.js")
    metrics = {run.metric for run in report.runs}
    return filled(
        _own("page.html.jinja"),
        report=report,
        policy=f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        base64=lambda content: base64.b64encode(content).decode(),
        dash=DASH,
        number=three_digits,
        metric=metrics.pop() if len(metrics) == 1 else "",
        records=embedded_json(report.browser.data),
    )


def _own(name: str) -> str:
    """The content of a file next to this module."""
    return resources.files("bench.report").joinpath(name).read_text("utf-8")
