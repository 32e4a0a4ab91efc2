"""The report as one HTML page: its own style and script, named by their hashes, and nothing else may run.

What documents, models and methods wrote is in the page twice at most: escaped in the tables, and as JSON that
the script shows through ``textContent`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources

from bench.html_text import embedded_json, escaped, source_hash
from bench.report.collecting import FigurePart, Report, TablePart

TITLE = "longdoc-bench report"


def report_page(report: Report) -> str:
    """The page; a pure function of the report."""
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    facts = "".join(f"<dt>{escaped(label)}</dt><dd>{escaped(text)}</dd>" for label, text in report.facts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{TITLE}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{TITLE}</h1>\n"
        '<nav aria-label="Parts of the page"><a href="#tables">Tables</a> <a href="#figures">Figures</a> '
        '<a href="#questions">Questions</a> <a href="#cells">Cells</a></nav>\n'
        f"<dl>{facts}</dl>\n{_listed(report.notes, 'notes')}</header>\n<main>\n"
        + _tables(report.tables)
        + _figures(report.figures)
        + _BROWSER
        + _cells(report)
        + "</main>\n"
        f'<script type="application/json" id="records">{embedded_json(report.browser.data)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _own(name: str) -> str:
    """A file beside this module."""
    return resources.files("bench.report").joinpath(name).read_text("utf-8")


def _listed(texts: Sequence[str], kind: str) -> str:
    if not texts:
        return ""
    return f'<ul class="{kind}">' + "".join(f"<li>{escaped(text)}</li>" for text in texts) + "</ul>\n"


def _tables(tables: Sequence[TablePart]) -> str:
    parts = ['<section id="tables">\n<h2>Tables</h2>\n']
    if not tables:
        parts.append("<p>No cell of a table has been run with this reader and data.</p>\n")
    for table in tables:
        parts.append(
            f'<article id="{escaped(table.id)}">\n<h3>{escaped(table.title)}</h3>\n'
            f'<p class="small">{escaped(table.id)}: {escaped(table.source)}</p>\n'
        )
        for section in table.sections:
            parts.append(
                _grid(f"{table.title}, {section.heading}", section.heading, table.columns, section.rows)
            )
        parts.append(
            f'<p class="small">{escaped(table.caption)}</p>\n{_listed(table.notes, "small")}</article>\n'
        )
    return "".join(parts) + "</section>\n"


def _grid(label: str, heading: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself where the page is too narrow for it."""
    shown = f"<caption>{escaped(heading)}</caption>" if heading else ""
    top = "".join(f'<th scope="col"{_printed(text)}>{escaped(text)}</th>' for text in head)
    body = "".join(
        f'<tr><th scope="row">{escaped(row[0])}</th>'
        + "".join(
            f"<td{_printed(name)}>{escaped(text)}</td>" for name, text in zip(head[1:], row[1:], strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(label)}">'
        f"<table>{shown}<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def _printed(column: str) -> str:
    """The mark of a column that a paper printed."""
    return ' class="published"' if column.endswith("publ.") else ""


def _figures(figures: Sequence[FigurePart]) -> str:
    parts = ['<section id="figures">\n<h2>Figures</h2>\n']
    for figure in figures:
        parts.append(f"<figure>\n<h3>{escaped(figure.title)}</h3>\n<p>{escaped(figure.about)}</p>\n")
        if figure.missing:
            parts.append(f'<p class="missing">{escaped(figure.missing)}</p>\n')
        else:
            values = _grid(f"Values of: {figure.title}", "", figure.header, figure.rows)
            parts.append(
                f'<div class="scroll plot" tabindex="0" role="region" aria-label="{escaped(figure.title)}">'
                f"{figure.svg}</div>\n<details><summary>The values drawn</summary>{values}</details>\n"
            )
        parts.append("</figure>\n")
    return "".join(parts) + "</section>\n"


def _cells(report: Report) -> str:
    head = ("Cell", "Data", "Reader", "n", "Score", "TFLOPs", "Failed", "Truncated", "Options")
    rows = [
        (
            *(cell.name, cell.data, cell.model, str(cell.n), cell.score, cell.tflops),
            *(str(cell.failed), str(cell.truncated), cell.options),
        )
        for cell in report.cells
    ]
    return (
        '<section id="cells">\n<h2>Cells</h2>\n<p>Every finished cell of the results folder: a method with '
        "its options, on a data set, with a reader. Scores are percent, with 95 % intervals that resample "
        f"documents; TFLOPs are mean per question, the index apart.</p>\n{_grid('All cells', '', head, rows)}"
        "</section>\n"
    )


_BROWSER = """<section id="questions">
<h2>Questions</h2>
<p>Choose data and methods; a question shows what each method answered, what it had read, and what that cost.
In the list, the up and down keys go from question to question.</p>
<noscript><p class="missing">The questions need the script in this page.</p></noscript>
<form id="filters" autocomplete="off">
<div class="fields">
<label>Data <select id="data"></select></label>
<label>Metric <select id="metric"></select></label>
<label class="wide">Text in question or answers <input id="text" type="search"></label>
<div class="pair">
<label>Score from <input id="low" type="number" min="0" max="100" step="1" placeholder="0"></label>
<label>to <input id="high" type="number" min="0" max="100" step="1" placeholder="100"></label>
</div>
<label>Order <select id="order"><option value="data">of the data</option>
<option value="low">lowest first</option><option value="spread">methods differ most</option></select></label>
</div>
<div class="fields"><label class="check"><input id="failed" type="checkbox"> failed</label>
<label class="check"><input id="flagged" type="checkbox"> flagged</label>
<label class="check"><input id="differ" type="checkbox"> methods differ</label>
<button id="reset" type="reset">Show all</button></div>
<fieldset><legend>Methods</legend><div id="methods"></div></fieldset>
</form>
<p id="count" role="status"></p>
<div id="browser">
<div id="list" class="scroll" tabindex="-1" role="region" aria-label="Questions"></div>
<div id="detail" role="region" aria-label="Question">
<div id="steps"><button id="previous" type="button">Previous</button>
<button id="next" type="button">Next</button> <a href="#list">To the list</a></div>
<div id="question"></div>
</div>
</div>
</section>
"""
