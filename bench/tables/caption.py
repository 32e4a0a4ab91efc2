"""The sentences of a table's caption and footnotes; all of them are written here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from bench.flops.formulas import CONVENTION_NOTES, Convention
from bench.metrics import label_of
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.models.presets import presets
from bench.results.models import CellDescription
from bench.run.equal_cost import PASSAGES, waiting_option
from bench.run.fitness import caution
from bench.tables.cells import TableCell, TableData
from bench.tables.cost_parts import MIN_SHARE, AllCosts, CellCosts
from bench.tables.formats import DASH, MINUS, from_to, in_brackets
from bench.tables.order import OrderAgreement
from bench.tables.published import PublishedValues
from bench.tables.ties import Ties

_NOTHING = "No cell has been run; without --render-only the command runs them."
_EVENTS = "docs/records.md, Flags"
_FAILED, _TRUNCATED = "failed and scored 0:", "truncated context:"
_SCORES = "Scores are percent, with 95 % intervals that resample documents."
_UNSCORED = "without a reference answer and not scored:"

Value = TypeVar("Value", bound=Hashable)


def known_metrics(table: TableData, published: PublishedValues) -> list[str]:
    """The metrics, the cost and the ratio with a published value in some cell."""
    metrics = [m for m in (*table.definition.metrics, "tflops", "ratio") if m not in RETRIEVAL_MEASURES]
    return [m for m in metrics if any((*place, m) in published for place in table.cells)]


def compared(table: TableData, published: PublishedValues) -> bool:
    """Whether some cell is shown with its difference from a published value."""
    known = known_metrics(table, published)
    return any(
        cell.comparable and any((*place, metric) in published for metric in known)
        for place, cell in table.cells.items()
    )


def caption(
    table: TableData, published: PublishedValues | None = None, *, amortised: bool | None = False
) -> list[str]:
    """Sentences that explain the numbers: models, data, lengths, conventions, sources.

    published: the papers' values, if the table shows them. amortised: the costs include the index, not only
    the question; None: there are neither scores nor FLOPs.
    """
    definition, described = table.definition, _described(table)
    sentences = [f"{table.title}. Layout and published values: {definition.source}.", *provisional(table)]
    if not described:
        return [*sentences, _NOTHING]
    lengths = _each(
        f"chunks of {d.geometry['chunk_tokens']} tokens, window {d.geometry['window']:,}, input limit "
        f"{d.geometry['input_limit']:,}"
        for d in described
    )
    commits = _each(d.git_commit for d in described if d.git_commit)
    names = sorted({cast("Convention", d.flop_convention) for d in described})
    conventions = [f"{name}: {CONVENTION_NOTES[name]}" for name in names]
    cost = "Cost is in TFLOPs" if amortised else "TFLOPs are query-dependent, mean per question"
    return [
        *sentences,
        *about_reader(table),
        *_about_models(table, described),
        f"Data: {', '.join(_each(d.data for d in described))}.",
        f"Geometry: {', '.join(lengths)}.",
        f"Prompt: {_prompts(table)}.",
        f"Seed: {', '.join(map(str, _each(d.seed for d in described)))}.",
        *_options(table),
        *((_SCORES,) if amortised is False else ()),
        *(() if amortised is None else (f"{cost}, convention {'; '.join(conventions)}.",)),
        *_about_published(table, published),
        *(_ABOUT_METRICS[metric] for metric in definition.metrics if metric in _ABOUT_METRICS),
        *definition.notes,
        *([f"Commit: {', '.join(commits)}."] if commits else []),
    ]


def brief(table: TableData, published: PublishedValues | None = None) -> list[str]:
    """The sentences that the numbers cannot be read without: for a terminal, which has the rest in a file."""
    if not _described(table):
        return [_NOTHING, *without_values(table)]
    return [
        *provisional(table),
        *about_reader(table),
        "Scores are percent, with 95 % intervals; TFLOPs are per question.",
        *_about_published(table, published)[:1],
        *without_values(table),
        *_counted_events(table, (_UNSCORED, _FAILED, _TRUNCATED)),
    ]


def provisional(table: TableData) -> list[str]:
    """What may still change in a table whose questions have not all been asked."""
    if not table.so_far:
        return []
    matched = _each(cell.row.label for cell in table.cells.values() if waiting_option(cell.row.set))
    rows = f", and so may the number of passages or nodes of {', '.join(matched)}" if matched else ""
    return [f"Not all questions have been asked: every number may still change{rows}."]


def footnotes(table: TableData) -> list[str]:
    """Missing rows, failures, truncations and counted events, one line per row."""
    summaries = [cell.summary for cell in table.cells.values() if cell.summary is not None]
    absent = [
        text
        for text, count in (
            ("no question failed", sum(summary.n_failed for summary in summaries)),
            ("no context was truncated", sum(summary.n_truncated for summary in summaries)),
        )
        if summaries and not count
    ]
    bare: dict[str, list[str]] = {}
    for cell in table.cells.values():
        for value in (cell.interval(metric) for metric in table.definition.metrics):
            if value is not None and value.low is None:
                bare.setdefault(value.reason, []).append(cell.dataset)
    flagged = any(summary.flags for summary in summaries)
    return [
        *without_values(table),
        *([f"{' and '.join(absent).capitalize()}."] if absent else []),
        *_counted_events(table),
        *(f"Without an interval: {', '.join(_each(names))}: {reason}." for reason, names in bare.items()),
        *([f"The counted events are explained in {_EVENTS}."] if flagged else []),
    ]


def without_values(table: TableData) -> list[str]:
    """The rows without a cell, one line per reason and its data sets."""
    every = table.definition.datasets
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in table.definition.rows:
        reasons: dict[str, list[str]] = {}
        for cell in (table.cells[row.id, dataset] for dataset in every):
            if cell.finished is None:
                reasons.setdefault(cell.missing, []).append(cell.dataset)
        for reason, names in reasons.items():
            grouped.setdefault((reason, tuple(names)), []).append(row.label)
    sentences = []
    for (reason, datasets), labels in grouped.items():
        where = "" if datasets == every else f" on {', '.join(datasets)}"
        sentences.append(f"Without values{where}: {', '.join(labels)}: {reason.rstrip('.')}.")
    return sentences


def about_reader(table: TableData) -> list[str]:
    """Which model answered, and what its scores can show if it is a small stand-in."""
    described = _described(table)
    if not described:
        return []
    labels = _each(f"{d.model_label} ({d.dtype})" for d in described)
    sentences = [f"Reader: {', '.join(labels)}."]
    if any(d.model_small for d in described):
        sentences.append(
            "Small stand-ins trained by this project show that the suite works; their scores compare "
            "methods with each other, never with published values (other models, full data)."
            if len(labels) > 1
            else "It is a small stand-in trained by this project: its scores show that the suite works and "
            "compare methods with each other, never with published values (other models, full data)."
        )
    if unfit := _each(name for d in described for name in d.unfit_models):
        sentences.append(f"WARNING: {caution(unfit)}")
    return sentences


def _described(table: TableData) -> list[CellDescription]:
    """The descriptions of the finished cells."""
    return [cell.description for cell in table.cells.values() if cell.description is not None]


def _about_models(table: TableData, described: Sequence[CellDescription]) -> Iterator[str]:
    """Roles, cautions, and the models besides the readers, small stand-ins separately."""
    requested = {d.model for d in described}
    roles = [
        f"{role}: {model}"
        for reader, others in table.definition.models.items()
        if reader in requested
        for role, model in {"large": reader, **others}.items()
    ]
    if roles:
        yield f"In the names of the rows, {', '.join(roles)}."
    readers = {str(d.models["reader"]["name"]) for d in described}
    models = {str(model["name"]) for d in described for model in d.models.values()}
    yield from (presets()[n].caution for n in sorted(models & presets().keys()) if presets()[n].caution)
    small = [name for name in sorted(models - readers) if name in presets() and presets()[name].small]
    if others := [name for name in sorted(models - readers) if name not in small]:
        yield f"Other models: {', '.join(others)}."
    if small:
        yield f"Other small stand-ins: {', '.join(small)}."


def _prompts(table: TableData) -> str:
    """The readers' prompts, and the rows whose method has its own."""
    chosen = [
        (cell.row.label, None if own and "prompt" not in its.non_defaults else its.config.get("prompt"))
        for cell in table.cells.values()
        if (its := cell.description) is not None
        for own in [its.choices.get("wording") == "paper"]
    ]
    prompts = _each(str(prompt) for _, prompt in chosen if prompt is not None)
    own = _each(label for label, prompt in chosen if prompt is None)
    if not prompts:
        return "the method's own"
    pronoun = "its" if len(own) == 1 else "their"
    return ", ".join(prompts) + (f" ({', '.join(own)}: {pronoun} own)" if own else "")


def _options(table: TableData) -> list[str]:
    """Options that affect the numbers, with the rows that they apply to."""
    options: dict[str, dict[str, None]] = {}
    for cell in table.cells.values():
        for option, value in cell.description.choices.items() if cell.description else ():
            options.setdefault(f"{option}={value}", {})[cell.row.label] = None
    return listed("Options", [f"{choice} ({', '.join(rows)})" for choice, rows in options.items()])


def _about_published(table: TableData, published: PublishedValues | None) -> list[str]:
    """How to read the published values, if the table shows any."""
    if published is None:
        return []
    known = known_metrics(table, published)
    if not known and not table.definition.sample:
        return ["The papers print none of these values."]
    if not known:
        command = f"bench table {table.definition.id} --columns published"
        return [f"The papers print values for other data sets only: {command}."]
    if not compared(table, published):
        return ["Publ.: the papers' value; reader or data here are stand-ins, so no difference is shown."]
    of_costs = "; of TFLOPs, in percent of it" if "tflops" in known else ""
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


def _counted_events(table: TableData, only: Collection[str] = ()) -> list[str]:
    """What happened to some questions, one line per row; only: the events to name, by default all."""
    sentences = []
    for row in table.definition.rows:
        counted: dict[str, list[str]] = {}
        for dataset in table.definition.datasets:
            for event, where in _events(table.cells[row.id, dataset], table.definition.metrics):
                if not only or event in only:
                    counted.setdefault(event, []).append(where)
        if counted:
            parts = [f"{event} {', '.join(places)}" for event, places in counted.items()]
            sentences.append(f"{row.label}: {'; '.join(parts)}.")
    return sentences


def _events(cell: TableCell, metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(What happened, to how many questions of which data set) for a cell."""
    if cell.finished is None:
        return
    summary, of = cell.finished.summary, f"of {cell.finished.summary.n} ({cell.dataset}"
    if summary.n_unscored:
        yield _UNSCORED, f"{summary.n_unscored} {of})"
    if summary.n_failed:
        errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
        yield _FAILED, f"{summary.n_failed} {of}{f': {errors}' if errors else ''})"
    if summary.n_truncated:
        yield _TRUNCATED, f"{summary.n_truncated} {of})"
    for flag, count in summary.flags.items():
        yield f"{flag}:", f"{count} {of})"
    for metric in metrics:
        value = cell.interval(metric)
        if value is not None and value.n is not None and value.n < summary.n:
            yield f"{label_of(metric)} is defined for", f"{value.n} {of})"
    option = waiting_option(cell.row.set)
    if option is not None:
        other = str(cell.row.set[option]).removeprefix("auto:")
        what = "k with the same cost as" if option == PASSAGES else "nodes read, the average of"
        yield f"{what} {other}:", f"{cell.finished.description.config[option]} ({cell.dataset})"


def _each(values: Iterable[Value]) -> tuple[Value, ...]:
    """The distinct values in order."""
    return tuple(dict.fromkeys(values))


_SHARES: Mapping[str, Callable[[CellCosts], float]] = {
    "Of a question's TFLOPs, probes, which the papers count as free": (
        lambda of: of.question.share(of.question.probes)
    ),
    "Of a question's TFLOPs, models other than the reader": lambda of: of.question.share(of.question.others),
    "Of the index's TFLOPs, models other than the reader": lambda of: of.index.share(of.index.others),
}


def about_shares(table: TableData, costs: AllCosts) -> list[str]:
    """One sentence per part of the costs, with its rows and its range over the data sets."""
    sentences = []
    for part, share in _SHARES.items():
        rows = []
        for row in table.definition.rows:
            own = [share(cost) for (name, _), cost in costs.items() if name == row.id]
            if own and max(own) >= MIN_SHARE:
                ends = from_to(f"{100 * min(own):.0f}", f"{100 * max(own):.0f}")
                rows.append(f"{row.label} {ends} %")
        sentences += [f"{part}: {', '.join(rows)}."] if rows else []
    return sentences


COST_PARTS = (
    "Reader: the model that answers, probes included; other models: encoders, a compressor, another "
    "builder. Without probes: as the papers count. Index: once per document set, mean over them."
)
"""The columns of a cost's parts."""


def about_order(agreements: Iterable[OrderAgreement]) -> list[str]:
    """One sentence each for score and cost, with tau per data set."""
    by_metric: dict[str, list[str]] = {}
    for agreement in agreements:
        tau = agreement.tau
        shown = f"{tau.mean:.2f}{in_brackets(tau, '{:.2f}'.format)}".replace("-", MINUS)
        place = f"{agreement.dataset} {shown} ({agreement.rows} rows)"
        by_metric.setdefault(agreement.metric, []).append(place)
    return [
        f"Order of the rows by {label_of(metric)} against the paper's, Kendall's tau "
        f"(1: the same, {MINUS}1: reversed) with 95 % intervals that resample documents: {'; '.join(places)}."
        for metric, places in by_metric.items()
    ]


TOP = "*"
"""Mark of a score in the top group."""


def about_top(table: TableData, ties: Ties) -> list[str]:
    """What the mark says and where it is not given, if it is; what the questions could have shown."""
    compared_on = {dataset for (_, dataset), of in ties.items() if of.top}
    if not compared_on:
        return _about_power(table, ties)
    left_out = [dataset for dataset in table.definition.datasets if dataset not in compared_on]
    found = [cell for cell in table.cells.values() if cell.dataset in compared_on and cell.finished]
    others = _each(cell.row.label for cell in found if (cell.row.id, cell.dataset) not in ties)
    unmarked = f" No marks on {', '.join(left_out)}: no references, other questions by row, or few documents."
    apart = f" Asked other questions, so without a mark: {', '.join(others)}."
    return [
        f"{TOP}: {_first_metric(table)} is the highest, or not told from it by permutation tests on the same "
        "questions, documents swapped, at a level of .05 after Holm's correction for all pairs of rows."
        + (unmarked if left_out else "")
        + (apart if others else ""),
        *_about_power(table, ties),
    ]


def _about_power(table: TableData, ties: Ties) -> list[str]:
    """One sentence: which differences from the highest row the questions could have shown, by data set."""
    places = []
    for dataset in table.definition.datasets:
        powers = [of.power for (_, name), of in ties.items() if name == dataset and of.power is not None]
        if powers:
            least, most = (100 * of(power.detectable for power in powers) for of in (min, max))
            fewest, asked = (of(power.questions_for(0.05) for power in powers) for of in (min, max))
            shown, needed = from_to(f"{least:.1f}", f"{most:.1f}"), from_to(f"{fewest:,}", f"{asked:,}")
            places.append(f"{dataset} {shown} ({needed} questions for 5)")
    about = f"Points of {_first_metric(table)} below the best row that an uncorrected test finds 4 in 5 times"
    return listed(about, places)


def about_ranks(table: TableData, ties: Ties) -> list[str]:
    """One sentence with the ranks of the rows on every data set that has them."""
    places: dict[str, list[tuple[int, str]]] = {}
    for row in table.definition.rows:
        for dataset in table.definition.datasets:
            if (of := ties.get((row.id, dataset))) is not None:
                text = f"{row.label} {of.rank} [{of.low}, {of.high}]"
                places.setdefault(dataset, []).append((of.rank, text))
    of_sets = [
        f"{dataset}: {', '.join(text for _, text in sorted(ranks, key=lambda ranked: ranked[0]))}"
        for dataset, ranks in places.items()
    ]
    about = f"Ranks by {_first_metric(table)} with 95 % intervals that resample documents"
    return listed(about, of_sets)


def _first_metric(table: TableData) -> str:
    return label_of(table.definition.metrics[0])


def about_settings(title: str, source: str, particular: Sequence[str]) -> list[str]:
    """The columns of training settings; source: of the published ones."""
    return [f"{title}: our defaults and, as publ., those of {source}. {DASH}: no option.", *particular]


def about_printed(title: str, sources: Sequence[str], *, scores: bool) -> list[str]:
    """The sentences below the values that a paper prints; scores: whether there are scores among them."""
    sentences = [f"{title}: what {' and '.join(sources)} prints, and nothing of ours. {DASH}: no value."]
    if scores:
        sentences.append("Scores are percent, TFLOPs those of a question, ratio over the paper's own method.")
    return sentences


def about_amortised(*, published: bool) -> str:
    """The columns of costs with a shared index; published: the table shows the paper's values."""
    return (
        "Index: once per document, mean over documents. Question: what each question adds. Total, n q.: "
        "both, per question, when n questions share a document. Pays from: questions per document from "
        "which index and questions together cost less than full context."
        + (" Publ.: in TFLOPs, as the paper prints it." if published else "")
    )


def about_prices(date: str, source: str, *, ranges: bool) -> list[str]:
    """What the dollars are; ranges: whether some records do not have the cached tokens."""
    return [
        f"Dollars for 1,000 questions, by the prices of {source}, {date}: new tokens at the price of input, "
        "tokens that a call found in its cache at that of cached input, and generated ones, a probe's Yes or "
        "No among them, at that of output. Index: dollars for 1,000 document sets. n q.: with the index when "
        "n questions share it. Cheaper than full context: for how many questions per document index and "
        "questions cost less than full context whose whole prompt is cached after the first question.",
        *(
            [
                "Ranges: these records do not have the tokens in the cache, only what their calls attended "
                "to, which allows so few and so many."
            ]
            if ranges
            else []
        ),
    ]


def about_times(questions: int, machines: Iterable[str]) -> str:
    """How the seconds of answers were measured; questions: of a cell; machines: where they were timed."""
    return (
        f"Seconds: means of the first {questions} questions, failed ones left out, asked one at a time with "
        "models loaded. Ranking: embedding the question, finishing the index (a graph network or "
        "node2vec's walks over its nodes) and scoring every passage or node, without a language model, as "
        f"in the paper; {DASH} for methods that do not rank once per question. Measured on: "
        f"{', '.join(sorted(machines)) or 'nothing yet'}."
    )


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


def listed(about: str, parts: Sequence[str]) -> list[str]:
    """One sentence about all of these, such as ``Not timed: ...``; none without any."""
    return [f"{about}: {'; '.join(parts)}."] if parts else []
