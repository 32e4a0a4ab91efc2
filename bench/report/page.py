"""The report as one HTML page; its content security policy allows only its own style and script.

Texts of documents, models and methods are escaped in the tables, and embedded as JSON that the script shows
only through ``textContent``.
"""

from __future__ import annotations

import base64

from bench.metrics import METRIC_LABELS
from bench.report.cells import options_text
from bench.report.content import Report
from bench.report.html_text import embedded_json, filled, own_file, source_hash
from bench.report.overview import percent
from bench.tables.formats import DASH, three_digits


def report_page(report: Report) -> str:
    """The page; a pure function of the report."""
    style, script = own_file("page.css"), own_file("page.js")
    labels = {METRIC_LABELS.get(named.metric, named.metric) for _, named in report.runs}
    return filled(
        "page.html.jinja",
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
        records=embedded_json(report.browser.data),
    )
