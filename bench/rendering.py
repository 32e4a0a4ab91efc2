"""A table of cells as text, ours beside the published values: a pure function of the cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from bench.flops import CONVENTION_NOTES, Convention
from bench.matching import reference_method
from bench.models.presets import PRESETS
from bench.plain_tables import csv_text
from bench.published import Published
from bench.retrieval_quality import RETRIEVAL_MEASURES
from bench.schema import JsonValue
from bench.table_formats import Rendered, Section, TextTable
from bench.tables import TableCell, TableData

METRIC_LABELS = {
    "f1": "F1",
    "rouge_l": "ROUGE-L",
    "bleu_4": "BLEU-4",
    "exact_match": "EM",
    "rouge_1": "R-1",
    "rouge_2": "R-2",
    "rouge_l_f1_stem": "R-L",
    "tflops": "TFLOPs",
    **RETRIEVAL_MEASURES,
}

DASH = "–"
MINUS = "−"

PublishedValues = Mapping[tuple[str, str, str], Published]
"""(row id, data set, metric or ``tflops``) -> published value."""


def sections(table: TableData, published: PublishedValues) -> list[Section]:
    """The table's cells as text, one section per data set."""
    return [
        Section(_data_label(cells, dataset), tuple(tuple(_line(table, published, cell)) for cell in cells))
        for dataset, cells in _by_dataset(table)
    ]


def render(table: TableData, published: PublishedValues) -> Rendered:
    """The table in all formats, ours beside the published values."""
    text = TextTable(
        id=table.definition.id,
        title=table.definition.title,
        columns=tuple(columns(table, published)),
        sections=tuple(sections(table, published)),
        caption=tuple(caption(table, published)),
        notes=tuple(footnotes(table)),
        spans=_spans(table, published),
    )
    return Rendered(text.markdown(), text.latex(), _csv(table, published), text.html())


def three_digits(value: float) -> str:
    """A cost with three significant digits and no exponent: 92.5, 0.0123, 1830."""
    return "0" if value == 0 else f"{Decimal(f'{value:#.3g}'):f}"


def _interval(cell: TableCell, metric: str) -> Mapping[str, JsonValue] | None:
    """The interval of a metric or of a measure of the contexts; None where the cell has none."""
    if cell.summary is None:
        return None
    if metric in RETRIEVAL_MEASURES:
        measured: Mapping[str, Mapping[str, JsonValue]] = cell.summary.get("retrieval", {})
        return measured.get(metric)
    interval: Mapping[str, JsonValue] = cell.summary["metrics"][metric]
    return interval


def _score(cell: TableCell, metric: str) -> str:
    value = _interval(cell, metric)
    if value is None:
        return DASH
    if value["low"] is None:
        return f"{100 * value['mean']:.1f}"
    return f"{100 * value['mean']:.1f} [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"


def _tflops(cell: TableCell) -> float | None:
    return None if cell.summary is None else float(cell.summary["query_flops"]["mean"]) / 1e12


def _ratio(table: TableData, cell: TableCell) -> float | None:
    """TFLOPs relative to the reference row on the same data set."""
    reference = table.cells.get((table.definition.ratio_to or "", cell.dataset))
    ours, theirs = _tflops(cell), None if reference is None else _tflops(reference)
    return None if ours is None or not theirs else ours / theirs


def _has_ratio(table: TableData) -> bool:
    return any(row.id == table.definition.ratio_to for row in table.definition.rows)


def columns(table: TableData, published: PublishedValues) -> list[str]:
    """The headings: the method, its scores and cost, then those published values of which some are known."""
    labels = [METRIC_LABELS.get(metric, metric) for metric in table.definition.metrics]
    reference = [row.label for row in table.definition.rows if row.id == table.definition.ratio_to]
    printed = [METRIC_LABELS.get(metric, metric) for metric in _known(table, published)]
    return [
        *("Method", *labels, "TFLOPs", *(f"× {label}" for label in reference), "n"),
        *(f"{label} publ." for label in printed),
    ]


def _printed(table: TableData) -> list[str]:
    """What the papers print a value for: the metrics, never the measures of the contexts, and the cost."""
    return [m for m in (*table.definition.metrics, "tflops") if m not in RETRIEVAL_MEASURES]


def _known(table: TableData, published: PublishedValues) -> list[str]:
    """Of what the papers print, that for which a value of some cell could be read."""
    return [m for m in _printed(table) if any((*cell, m) in published for cell in table.cells)]


def _line(table: TableData, published: PublishedValues, cell: TableCell) -> list[str]:
    """One row on one data set, as text, in the order of :func:`columns`."""
    tflops, ratio = _tflops(cell), _ratio(table, cell)
    return [
        cell.row.label,
        *(_score(cell, metric) for metric in table.definition.metrics),
        DASH if tflops is None else three_digits(tflops),
        *([DASH if ratio is None else f"{ratio:.2f}"] if _has_ratio(table) else []),
        DASH if cell.summary is None else str(cell.summary["n"]),
        *(_beside(cell, metric, published) for metric in _known(table, published)),
    ]


def _beside(cell: TableCell, metric: str, published: PublishedValues) -> str:
    """The published value and, in brackets, ours against it."""
    printed = published.get((cell.row.id, cell.dataset, metric))
    if printed is None:
        return DASH
    ours = _values(cell, metric)[0]
    return f"{printed.value:g}" + ("" if ours is None else f" ({_against(ours, printed.value, metric)})")


def _against(ours: float, printed: float, metric: str) -> str:
    """Ours minus the printed value; of costs, which span orders of magnitude, in percent of it."""
    if metric == "tflops" and printed:
        share = 100 * (ours / printed - 1)
        return f"{_signed(share, 0 if abs(share) >= 10 else 1)} %"
    return _signed(ours - printed, 1)


def _signed(value: float, digits: int) -> str:
    """With a sign, but for what rounds to zero."""
    size = f"{abs(value):.{digits}f}"
    return size if not size.strip("0.") else f"{'+' if value > 0 else MINUS}{size}"


def _spans(table: TableData, published: PublishedValues) -> tuple[tuple[str, int], ...]:
    """What we measured, and what the papers print."""
    printed = len(_known(table, published))
    measured = len(columns(table, published)) - 1 - printed
    return (("measured", measured), ("published (ours against it)", printed)) if printed else ()


def _by_dataset(table: TableData) -> Iterable[tuple[str, list[TableCell]]]:
    for dataset in table.definition.datasets:
        yield dataset, [table.cells[row.id, dataset] for row in table.definition.rows]


def _data_label(cells: Sequence[TableCell], dataset: str) -> str:
    labels = {str(c.description["data_label"]) for c in cells if c.description is not None}
    return ", ".join(sorted(labels)) or dataset


def caption(table: TableData, published: PublishedValues | None = None) -> list[str]:
    """Sentences that say what the numbers are: models, data, lengths, conventions, sources.

    published: where these are shown, the caption says how, and which could not be read.
    """
    shown = [cell for cell in table.cells.values() if cell.description is not None]
    described = [cell.description for cell in shown if cell.description is not None]
    said = [f"{table.definition.title}. Layout and published values: {table.definition.source}."]
    if not described:
        return [*said, "No cell has been run."]
    readers = _each(f"{d['model_label']} ({d['dtype']})" for d in described)
    said.append(f"Reader: {readers}.")
    if any(d["model_small"] for d in described):
        said.append(
            "Small stand-ins trained by this project show that the suite works; their scores compare "
            "methods with each other, never with published values (other models, full data)."
            if "," in readers
            else "It is a small stand-in trained by this project: its scores show that the suite works and "
            "compare methods with each other, never with published values (other models, full data)."
        )
    said += _roles(table, {str(d["model"]) for d in described})
    said += _cautions({str(model["name"]) for d in described for model in d["models"].values()})
    said += _other_models(described)
    lengths = _each(
        f"chunks of {d['geometry']['chunk_tokens']} tokens, window {d['geometry']['window']:,}, "
        f"input limit {d['geometry']['input_limit']:,}"
        for d in described
    )
    conventions: list[Convention] = sorted({d["flop_convention"] for d in described})
    costs = "; ".join(f"{name}: {CONVENTION_NOTES[name]}" for name in conventions)
    said += [
        f"Data: {_each(str(d['data_label']) for d in described)}.",
        f"Geometry: {lengths}. Prompt: {_prompts(shown)}. Seed: {_each(str(d['seed']) for d in described)}.",
        f"Scores are percent, with 95 % intervals that resample documents. TFLOPs are query-dependent, "
        f"mean per question, convention {costs}.",
        *([] if published is None else _about_published(table, published)),
        *_about_bleu(table.definition.metrics),
        *_about_retrieval(table.definition.metrics),
        *table.definition.notes,
        f"Commit: {_each(str(d['git_commit']) for d in described)}.",
    ]
    return said


def _roles(table: TableData, readers: set[str]) -> list[str]:
    """Which model each role is that the rows are named by, where the table has such roles."""
    named = [
        f"{role}: {model}"
        for reader, roles in table.definition.models.items()
        if reader in readers
        for role, model in {"large": reader, **roles}.items()
    ]
    return [f"In the names of the rows, {', '.join(named)}."] if named else []


def _other_models(described: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    """The models beside the readers, those that are small stand-ins apart."""
    readers = {str(d["models"]["reader"]["name"]) for d in described}
    others = sorted({str(m["name"]) for d in described for m in d["models"].values()} - readers)
    small = [name for name in others if name in PRESETS and PRESETS[name].small]
    large = [name for name in others if name not in small]
    said = [f"Other models: {', '.join(large)}."] if large else []
    return said + ([f"Other small stand-ins of ours: {', '.join(small)}."] if small else [])


def _prompts(cells: Sequence[TableCell]) -> str:
    """The readers' prompts, and the rows whose method has its own."""
    chosen: list[str] = []
    own: list[str] = []
    for cell in cells:
        prompt = (cell.description or {})["config"].get("prompt")
        (own if prompt is None else chosen).append(cell.row.label if prompt is None else str(prompt))
    if not chosen:
        return "the method's own"
    theirs = "its own" if len(set(own)) == 1 else "their own"
    return _each(chosen) + (f" ({_each(own)}: {theirs})" if own else "")


def _cautions(models: set[str]) -> list[str]:
    """What the presets of these models ask every table to say about their scores."""
    return [PRESETS[name].caution for name in sorted(models & PRESETS.keys()) if PRESETS[name].caution]


def _about_published(table: TableData, published: PublishedValues) -> list[str]:
    """How the published values stand in the table, and of what none could be read."""
    known = _known(table, published)
    lacking = [METRIC_LABELS.get(metric, metric) for metric in _printed(table) if metric not in known]
    said = []
    if known:
        of_costs = "; of TFLOPs, in percent of it" if "tflops" in known else ""
        said.append(f"Publ.: the papers' value and, in brackets, ours minus it{of_costs}.")
    if lacking:
        what = " or ".join(lacking) if known else "value"
        said.append(f"No published {what} of these rows could be read at a source.")
    return said


def _about_bleu(metrics: Sequence[str]) -> list[str]:
    said = (
        "BLEU-4 is one value for all questions together (corpus level, no smoothing): 0 as long as no four "
        "words in a row are right anywhere, as with answers of one or two words."
    )
    return [said] if "bleu_4" in metrics else []


def _about_retrieval(metrics: Sequence[str]) -> list[str]:
    """What the measures of the contexts are, where a table shows them."""
    about = {
        "evidence_recall": "Recall: share of the labelled evidence in the context, that is, of supporting "
        f"documents from which a passage is given, or of the characters of labelled passages; {DASH} without "
        "labels, and for contexts with summaries or compressed text.",
        "answer_in_context": "Answer in context: a normalised reference stands in the context; questions "
        "answered by yes, no or unanswerable are left out.",
    }
    return [about[metric] for metric in metrics if metric in about]


def without_values(table: TableData) -> list[str]:
    """The rows that have no cell, a line for each reason and the data sets on which it holds."""
    notes: list[str] = []
    every = table.definition.datasets
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in table.definition.rows:
        reasons: dict[str, list[str]] = {}
        for dataset in every:
            cell = table.cells[row.id, dataset]
            if cell.summary is None:
                reasons.setdefault(cell.missing, []).append(dataset)
        for reason, lacking in reasons.items():
            found.setdefault((reason, tuple(lacking)), []).append(row.label)
    for (reason, where), labels in found.items():
        on = "" if where == every else f" on {', '.join(where)}"
        notes.append(f"Without values{on}: {', '.join(labels)}: {reason.rstrip('.')}.")
    return notes


def footnotes(table: TableData) -> list[str]:
    """What must not stay hidden: missing rows, failures, truncations, counted events; a line per row."""
    notes = without_values(table)
    summaries = [cell.summary for cell in table.cells.values() if cell.summary is not None]
    if summaries:
        absent = [
            text
            for key, text in (("n_failed", "no question failed"), ("n_truncated", "no context was truncated"))
            if not any(summary[key] for summary in summaries)
        ]
        notes += [f"{' and '.join(absent).capitalize()}."] if absent else []
    for row in table.definition.rows:
        found: dict[str, list[str]] = {}
        for dataset in table.definition.datasets:
            for event, where in _events(table, table.cells[row.id, dataset]):
                found.setdefault(event, []).append(where)
        counted = [f"{event} {', '.join(places)}" for event, places in found.items()]
        notes += [f"{row.label}: {'; '.join(counted)}."] if counted else []
    bare: dict[str, list[str]] = {}
    for cell in table.cells.values():
        for value in (_interval(cell, metric) for metric in table.definition.metrics):
            if value is not None and value["low"] is None:
                bare.setdefault(str(value["reason"]), []).append(cell.dataset)
    notes += [f"Without an interval: {_each(where)}: {why}." for why, where in bare.items()]
    if any(summary["flags"] for summary in summaries):
        notes.append(f"What is counted here is explained in {_EVENTS}.")
    return notes


_EVENTS = "docs/records.md, Flags"


def _events(table: TableData, cell: TableCell) -> Iterable[tuple[str, str]]:
    """What happened to a cell, and to how many questions on which data."""
    if cell.summary is None:
        return
    n = cell.summary["n"]
    if cell.summary["n_failed"]:
        kinds = ", ".join(f"{name} {count}" for name, count in cell.summary["errors"].items())
        yield "failed and scored 0:", f"{cell.summary['n_failed']} of {n} ({cell.dataset}: {kinds})"
    if cell.summary["n_truncated"]:
        yield "truncated context:", f"{cell.summary['n_truncated']} of {n} ({cell.dataset})"
    for flag, count in cell.summary["flags"].items():
        yield f"{flag}:", f"{count} of {n} ({cell.dataset})"
    for metric in [m for m in table.definition.metrics if m in RETRIEVAL_MEASURES]:
        value = _interval(cell, metric)
        if value is not None and value["n"] < n:
            yield f"{METRIC_LABELS[metric]} is defined for", f"{value['n']} of {n} ({cell.dataset})"
    reference = reference_method(cell.row.set.get("k"))
    if reference is not None and cell.description is not None:
        k = cell.description["config"]["k"]
        yield f"k that costs most nearly what {reference} costs:", f"{k} ({cell.dataset})"


def _each(values: Iterable[str]) -> str:
    """The values in their order, each once."""
    return ", ".join(dict.fromkeys(values))


def _csv(table: TableData, published: PublishedValues) -> str:
    """Long format: one line per row, data set and metric; scores 0..100, cost in TFLOPs."""
    lines: list[Sequence[object]] = [
        [
            *("table", "row", "label", "dataset", "data", "model", "metric", "value", "low", "high"),
            *("published", "difference", "n", "n_failed", "n_truncated", "cell_id", "missing"),
        ]
    ]
    for dataset, cells in _by_dataset(table):
        for cell in cells:
            for metric in (*table.definition.metrics, "tflops"):
                value, low, high = _values(cell, metric)
                printed = published.get((cell.row.id, dataset, metric))
                difference = None if value is None or printed is None else value - printed.value
                about = cell.description or {}
                summary = cell.summary or {}
                lines.append(
                    [
                        *(table.definition.id, cell.row.id, cell.row.label, dataset),
                        *(about.get("data_label", ""), about.get("model", ""), metric),
                        *(_number(x) for x in (value, low, high)),
                        *("" if printed is None else printed.value, _number(difference)),
                        *(summary.get(key, "") for key in ("n", "n_failed", "n_truncated")),
                        *(about.get("cell_id", ""), cell.missing),
                    ]
                )
    return csv_text(lines)


def _values(cell: TableCell, metric: str) -> tuple[float | None, float | None, float | None]:
    if cell.summary is None:
        return None, None, None
    interval = cell.summary["query_flops"] if metric == "tflops" else _interval(cell, metric)
    if interval is None:
        return None, None, None
    scale = 1e-12 if metric == "tflops" else 100.0
    mean, low, high = (None if interval[k] is None else scale * interval[k] for k in ("mean", "low", "high"))
    return mean, low, high


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
