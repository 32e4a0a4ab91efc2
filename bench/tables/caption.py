"""The sentences of a table's caption and footnotes; all of them are written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.flops.formulas import CONVENTION_NOTES
from bench.metrics import METRIC_LABELS
from bench.metrics.statistics import Interval
from bench.run.fitness import caution
from bench.tables.cost_parts import Part, Shares
from bench.tables.formats import DASH, MINUS
from bench.tables.notes import CostNotes, DataNotes, Event, ReaderNotes, TableNotes
from bench.tables.order import OrderAgreement

_NOTHING = "No cell has been run; without --render-only the command runs them."
_EVENTS = "docs/records.md, Flags"


def caption(notes: TableNotes, *, amortised: bool = False) -> list[str]:
    """Sentences that explain the numbers: models, data, lengths, conventions, sources.

    amortised: the costs include the index, not only the question.
    """
    sentences = [f"{notes.title}. Layout and published values: {notes.source}."]
    if notes.reader is None:
        return [*sentences, _NOTHING]
    lengths = ", ".join(
        f"chunks of {g.chunk_tokens} tokens, window {g.window:,}, input limit {g.input_limit:,}"
        for g in notes.geometry
    )
    seeds = ", ".join(map(str, notes.data.seeds))
    return [
        *sentences,
        *about_reader(notes),
        *_about_models(notes.reader),
        f"Data: {', '.join(notes.data.labels)}.",
        f"Geometry: {lengths}.",
        f"Prompt: {_prompts(notes.data)}.",
        f"Seed: {seeds}.",
        *_options(notes.data),
        "Scores are percent, with 95 % intervals that resample documents.",
        _about_costs(notes.costs, amortised=amortised),
        *_about_published(notes.costs),
        *_about_metrics(notes.costs.metrics),
        *notes.particular,
        *([f"Commit: {', '.join(notes.data.commits)}."] if notes.data.commits else []),
    ]


def brief(notes: TableNotes) -> list[str]:
    """The sentences that the numbers cannot be read without: for a terminal, which has the rest in a file."""
    if notes.reader is None:
        return [_NOTHING, *without_values(notes)]
    return [
        *about_reader(notes),
        "Scores are percent, with 95 % intervals; TFLOPs are per question.",
        *_about_published(notes.costs)[:1],
        *without_values(notes),
        *_events(event for event in notes.events if event.kind in ("failed", "truncated")),
    ]


def about_reader(notes: TableNotes) -> list[str]:
    """Which model answered, and what its scores can show if it is a small stand-in."""
    if notes.reader is None:
        return []
    sentences = [f"Reader: {', '.join(notes.reader.labels)}."]
    if notes.reader.small:
        sentences.append(
            "Small stand-ins trained by this project show that the suite works; their scores compare "
            "methods with each other, never with published values (other models, full data)."
            if len(notes.reader.labels) > 1
            else "It is a small stand-in trained by this project: its scores show that the suite works and "
            "compare methods with each other, never with published values (other models, full data)."
        )
    if notes.reader.unfit:
        sentences.append(f"WARNING: {caution(notes.reader.unfit)}")
    return sentences


def _about_models(reader: ReaderNotes) -> list[str]:
    """Roles, cautions, and the models besides the readers, small stand-ins separately."""
    roles = ", ".join(f"{role}: {model}" for role, model in reader.roles)
    return [
        *([f"In the names of the rows, {roles}."] if roles else []),
        *reader.cautions,
        *([f"Other models: {', '.join(reader.others)}."] if reader.others else []),
        *([f"Other small stand-ins: {', '.join(reader.small_others)}."] if reader.small_others else []),
    ]


def _prompts(data: DataNotes) -> str:
    """The readers' prompts, and the rows whose method has its own."""
    if not data.prompts:
        return "the method's own"
    pronoun = "its" if len(data.own_prompts) == 1 else "their"
    own = f" ({', '.join(data.own_prompts)}: {pronoun} own)" if data.own_prompts else ""
    return ", ".join(data.prompts) + own


def _options(data: DataNotes) -> list[str]:
    """Options that affect the numbers, with the rows that they apply to."""
    options = "; ".join(f"{choice} ({', '.join(rows)})" for choice, rows in data.options)
    return [f"Options: {options}."] if options else []


def _about_costs(costs: CostNotes, *, amortised: bool) -> str:
    conventions = "; ".join(f"{name}: {CONVENTION_NOTES[name]}" for name in costs.conventions)
    cost = "Cost is in TFLOPs" if amortised else "TFLOPs are query-dependent, mean per question"
    return f"{cost}, convention {conventions}."


def _about_published(costs: CostNotes) -> list[str]:
    """How to read the published values, if the table shows any."""
    if costs.published_elsewhere is None:
        return []
    if not costs.published:
        if not costs.published_elsewhere:
            return ["The papers print none of these values."]
        command = f"bench table {costs.published_elsewhere} --columns published"
        return [f"The papers print values for other data sets only: {command}."]
    if not costs.compared:
        return ["Publ.: the papers' value; reader or data here are stand-ins, so no difference is shown."]
    of_costs = "; of TFLOPs, in percent of it" if "tflops" in costs.published else ""
    return [f"Publ.: the papers' value and, in brackets, ours minus it{of_costs}."]


_ABOUT_METRICS = {
    "bleu_4": "BLEU-4 is one value for all questions together (corpus level, no smoothing): 0 as long as no "
    "four words in a row are right anywhere, as with answers of one or two words.",
    "evidence_recall": "Recall: share of the labelled evidence in the context, that is, of supporting "
    f"documents with a passage in the context, or of the characters of labelled passages; {DASH} without "
    "labels, and for contexts with summaries or compressed text.",
    "mrr": f"MRR: 1 over the rank of the first passage with evidence; {DASH} also for contexts that are no "
    "ranking.",
    "ndcg": "nDCG: at the number of passages read, binary gains, each place of the evidence counted once.",
    "answer_in_context": "Answer in context: the context contains a normalised reference; questions "
    "answered by yes, no or unanswerable are left out.",
}


def _about_metrics(metrics: Sequence[str]) -> list[str]:
    """The meaning of metrics and measures whose name does not explain it."""
    return [_ABOUT_METRICS[metric] for metric in metrics if metric in _ABOUT_METRICS]


def without_values(notes: TableNotes) -> list[str]:
    """The rows without a cell, one line per reason and its data sets."""
    sentences = []
    for rows in notes.missing:
        where = "" if rows.everywhere else f" on {', '.join(rows.datasets)}"
        sentences.append(f"Without values{where}: {', '.join(rows.rows)}: {rows.reason.rstrip('.')}.")
    return sentences


def footnotes(notes: TableNotes) -> list[str]:
    """Missing rows, failures, truncations and counted events, one line per row."""
    absent = [
        {"failed": "no question failed", "truncated": "no context was truncated"}[kind]
        for kind in notes.absent
    ]
    return [
        *without_values(notes),
        *([f"{' and '.join(absent).capitalize()}."] if absent else []),
        *_events(notes.events),
        *(
            f"Without an interval: {', '.join(datasets)}: {reason}."
            for reason, datasets in notes.without_interval
        ),
        *([f"The counted events are explained in {_EVENTS}."] if notes.flagged else []),
    ]


def _events(events: Iterable[Event]) -> list[str]:
    """One line per row; an event on several data sets is named once."""
    rows: dict[str, dict[str, list[str]]] = {}
    labels: dict[str, str] = {}
    for event in events:
        labels[event.row] = event.label
        rows.setdefault(event.row, {}).setdefault(_event(event), []).append(_where(event))
    sentences = []
    for row, counted in rows.items():
        parts = [f"{event} {', '.join(where)}" for event, where in counted.items()]
        sentences.append(f"{labels[row]}: {'; '.join(parts)}.")
    return sentences


def _event(event: Event) -> str:
    match event.kind:
        case "failed":
            return "failed and scored 0:"
        case "truncated":
            return "truncated context:"
        case "flag":
            return f"{event.name}:"
        case "undefined":
            return f"{METRIC_LABELS[event.name]} is defined for"
        case "matched":
            return f"k with the same cost as {event.name}:"
        case "as_many":
            return f"nodes read, the average of {event.name}:"


def _where(event: Event) -> str:
    if event.kind in ("matched", "as_many"):
        return f"{event.count} ({event.dataset})"
    errors = ", ".join(f"{name} {count}" for name, count in event.errors)
    return f"{event.count} of {event.questions} ({event.dataset}{f': {errors}' if errors else ''})"


_SHARES: Mapping[Part, str] = {
    "probes": "Of a question's TFLOPs, probes, which the papers count as free",
    "others": "Of a question's TFLOPs, models other than the reader",
    "index_others": "Of the index's TFLOPs, models other than the reader",
}


def about_shares(shares: Iterable[Shares]) -> list[str]:
    """One sentence per part of the costs, with its rows and its range over the data sets."""
    sentences = []
    for part in shares:
        rows = []
        for label, least, most in part.rows:
            low, high = round(100 * least), round(100 * most)
            rows.append(f"{label} {high} %" if low == high else f"{label} {low} to {high} %")
        sentences.append(f"{_SHARES[part.part]}: {', '.join(rows)}.")
    return sentences


def about_cost_parts() -> list[str]:
    """The columns of a cost's parts."""
    return [
        "Reader: the model that answers, probes included; other models: encoders, a compressor, another "
        "builder. Without probes: as the papers count. Index: once per document set, "
        "mean over them."
    ]


def about_order(agreements: Iterable[OrderAgreement]) -> list[str]:
    """One sentence each for score and cost, with tau per data set."""
    by_metric: dict[str, list[str]] = {}
    for agreement in agreements:
        place = f"{agreement.dataset} {_tau(agreement.tau)} ({agreement.rows} rows)"
        by_metric.setdefault(agreement.metric, []).append(place)
    return [
        f"Order of the rows by {METRIC_LABELS.get(metric, 'TFLOPs')} against the paper's, Kendall's tau "
        f"(1: the same, {MINUS}1: reversed) with 95 % intervals that resample documents: {'; '.join(places)}."
        for metric, places in by_metric.items()
    ]


def _tau(interval: Interval) -> str:
    shown = [interval.mean]
    if interval.low is not None and interval.high is not None:
        shown = [interval.mean, interval.low, interval.high]
    mean, *bounds = (f"{value:.2f}".replace("-", MINUS) for value in shown)
    return mean + (f" [{', '.join(bounds)}]" if bounds else "")


def about_settings(title: str, source: str, particular: Sequence[str]) -> list[str]:
    """The columns of training settings; source: of the published ones."""
    return [
        f"{title}: our defaults and, as publ., those of {source}. {DASH}: follows from another option.",
        *particular,
    ]


def about_printed(title: str, sources: Sequence[str], *, scores: bool) -> list[str]:
    """The sentences below the values that a paper prints; scores: whether there are scores among them."""
    units = (
        ["Scores are percent, TFLOPs those of a question, ratio over the paper's own method."]
        if scores
        else []
    )
    return [f"{title}: what {' and '.join(sources)} prints, and nothing of ours. {DASH}: no value.", *units]


def about_amortised(*, published: bool) -> str:
    """The columns of costs with a shared index; published: the table shows the paper's values."""
    return (
        "Index: once per document, mean over documents. Question: what each question adds. Total, n q.: "
        "both, per question, when n questions share a document. Pays from: questions per document from "
        "which index and questions together cost less than full context."
        + (" Publ.: in TFLOPs, as the paper prints it." if published else "")
    )


def about_times(questions: int, machines: Iterable[str], loads: Sequence[float]) -> str:
    """How the seconds of answers were measured.

    questions: timed per cell; machines: on which they were timed; loads: load averages of these.
    """
    return (
        f"Seconds: means of the first {questions} questions, failed ones left out, asked one at a time with "
        "models loaded. Ranking: embedding the question, finishing the index (a graph network or "
        "node2vec's walks over its nodes) and scoring every passage or node, without a language model, as "
        f"in the paper; {DASH} for methods that do not rank once per question. With reader: finishing the "
        "index, ranking and reading; slowest: the longest of them. Measured on: "
        f"{', '.join(sorted(machines)) or 'nothing yet'}."
        + (f" Load average of the machine: {min(loads)} to {max(loads)}." if loads else "")
    )


def not_timed(rows: Sequence[str]) -> list[str]:
    """The finished cells without a time."""
    return [f"Not timed, or no question could be answered: {'; '.join(rows)}."] if rows else []


def about_judgements(against: str, judge: str, *, small: bool, protocol: str) -> str:
    """The columns of judgements.

    against: the reference row; small: whether the judge is a stand-in; protocol: how it was asked.
    """
    stand_in = ", a small stand-in trained by this project that was never taught to judge" if small else ""
    if protocol == "paper":
        return (
            f"Wins: share of pairs whose overall winner is the row's answer, or {against}'s, among those "
            f"with one; judge: {judge}{stand_in}. Asked once for each pair, as in Graph of Records, App. "
            "D.3; which answer stands first is drawn for each question, as the paper does not say. Failed: "
            "replies without a JSON object that names the overall winner, left out of the shares, as the "
            "paper leaves out those without a valid evaluation. TFLOPs: of the judge, for the whole line."
        )
    return (
        f"Win / tie / loss of {against} against each row, in questions; judge: {judge}{stand_in}. Both "
        "orders of every pair are asked, and a win needs both; orders disagree and unparsable are over all "
        "four criteria, the former being part of the ties. TFLOPs: of the judge, for the whole line."
    )


def about_published_judgements(against: str) -> str:
    """The published shares in a table of judgements; against: the reference row."""
    return f"Publ.: share of pairs that the row, or {against}, wins overall, by DeepSeek-R1."


def not_judged(rows: Sequence[str]) -> list[str]:
    """The rows with missing verdicts."""
    return [f"Not judged, or only in part: {'; '.join(rows)}."] if rows else []


def about_lengths(reader: str, window: int, source: str, particular: Sequence[str]) -> list[str]:
    """The columns of lengths; source: of the published ones; particular: the definition's notes."""
    return [
        f"Tokens of {reader}, with titles and without prompts; every document set counts once. Over "
        f"window: longer than the {window:,} tokens at which {reader} is used here. "
        "Reference: mean length of each question's first reference. "
        "The sample sets are at quarter scale and not comparable with the full ones.",
        f"Published values: {source}.",
        *particular,
    ]


def not_measured(labels: Sequence[str]) -> list[str]:
    """The data whose documents were not measured."""
    return [f"Without values: {', '.join(labels)}: not measured yet."] if labels else []
