"""A table's cost column from token statistics alone: no weights, no data, no records.

``paper_tables/costs/TABLE.yaml`` says what each row's question reads; lengths come from there and from
the cards, the formula is :mod:`bench.flops.formulas`' convention ``paper``. Published costs are compared with
the result but never enter it. So this checks our accounting against the papers', on any laptop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from bench.data.cards import Card, load_card
from bench.errors import ConfigError, DataError, UnknownNameError
from bench.files.paths import TABLES
from bench.files.yaml import read_yaml
from bench.flops.architecture import Architecture
from bench.flops.formulas import CONVENTION_NOTES, forward_usage, priced, texts_usage
from bench.flops.meter import Usage
from bench.models.presets import PAPER_INPUT_LIMIT
from bench.models.spec import resolve
from bench.tables.definition import Row, TableDefinition
from bench.tables.formats import DASH, MINUS, Rendered, Section, TextTable, three_digits
from bench.tables.plain import csv_text
from bench.tables.published import published

FOLDER = TABLES / "costs"
TOLERANCE = 0.05
"""Relative difference up to which a row counts as agreeing with the paper."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Length(_Part):
    """A length in tokens, one for all data sets or one for each, with its source."""

    value: int | dict[str, int]
    source: str

    def of(self, dataset: str) -> int:
        """The length on that data set; raises DataError if there is none."""
        if isinstance(self.value, int):
            return self.value
        if dataset not in self.value:
            raise DataError(
                f"no length for data set {dataset!r} among {', '.join(self.value)} ({self.source})"
            )
        return self.value[dataset]


class _Reading(_Part):
    note: str = ""
    """Assumptions behind the row's cost besides the lengths, or why it cannot be derived."""


class WholeDocument(_Reading):
    """The whole document, up to the papers' limit."""

    reads: Literal["document"]


class BestPassages(_Reading):
    """The row's ``k`` chunks with separators, at most the document; ``encoder``: embeds the question."""

    reads: Literal["passages"]
    encoder: str | None = None


class BestNodes(_Reading):
    """The row's ``k`` nodes of a tree, each of ``node_tokens``, up to ``limit`` tokens."""

    reads: Literal["nodes"]
    limit: int = Field(gt=0)


class Compressed(_Reading):
    """A share of the document; the document and then the kept part go through ``compressor``."""

    reads: Literal["compressed"]
    compressor: str
    fitted_rate: dict[str, Annotated[float, Field(gt=0, le=1)]]
    """Data set -> share that is kept, fitted to the published cost and not derived."""
    kept_passes: float = Field(gt=0)
    """Passes of the kept part through the compressor, after one pass of the document."""
    attended: int = Field(gt=0)
    """Tokens that each of the compressor's tokens attends to."""


class Unknown(_Reading):
    """Not derivable from published statistics; ``note`` names the missing one."""

    reads: Literal["unknown"]


Reading: TypeAlias = Annotated[
    WholeDocument | BestPassages | BestNodes | Compressed | Unknown, Field(discriminator="reads")
]


class Spread(_Part):
    """The distribution of a data set's document lengths around their mean."""

    shares: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """Lengths over their mean, each for equally many documents. Empty: a lognormal distribution from the
    card's shortest, longest and number of documents."""
    source: str


class CostStatistics(_Part):
    """The statistics from which the costs of a table's rows are derived."""

    table: str
    reader: str
    """The model whose costs the paper prints."""
    chosen_with_costs: str
    """Our choices that were made with the published costs in view, so that agreement is no evidence."""
    spread: dict[str, Spread]
    """Data set -> spread of lengths; without one, all documents are assumed to have the mean length."""
    chunk_tokens: Length
    node_tokens: Length
    prompt_tokens: Length
    """Template and wording around context and question."""
    question_tokens: Length
    answer_tokens: Length
    rows: dict[str, Reading]


class NotDerivableError(ConfigError):
    """A cost for which a statistic is missing; the message says which."""


@dataclass(frozen=True)
class Derived:
    """The mean cost of a question."""

    tokens: int
    """Mean tokens through the reader, prompt and answer, rounded."""
    flops: int
    """Mean FLOPs of all models, convention ``paper``."""


@dataclass(frozen=True)
class SimulatedCell:
    """One row on one data set: derived and published cost."""

    row: Row
    dataset: str
    derived: Derived | None
    published_tflops: float | None
    note: str
    """Assumptions behind ``derived``, or why there is none."""
    fitted: bool = False
    """Whether a parameter was fitted to the published cost."""

    @property
    def difference(self) -> float | None:
        """(Derived - published) / published; None if one of them is missing."""
        if self.derived is None or self.published_tflops is None:
            return None
        return self.derived.flops / 1e12 / self.published_tflops - 1

    @property
    def place(self) -> str:
        """Row and data set for a sentence, with the difference if known."""
        difference = self.difference
        return f"{self.row.label}, {self.dataset}" + (
            "" if difference is None else f" ({_percent(difference)})"
        )


def load_statistics(table: str, folder: Path = FOLDER) -> CostStatistics:
    """The statistics of a table; raises UnknownNameError for a table without them, DataError for bad ones."""
    paths = {path.stem: path for path in folder.glob("*.yaml")}
    if table not in paths:
        raise UnknownNameError("table with cost statistics", table, paths)
    path = paths[table]
    statistics = read_yaml(path, CostStatistics)
    if statistics.table != table:
        raise DataError(f"{path}: table is {statistics.table!r}; expected the file's name, {table!r}.")
    return statistics


def simulate(definition: TableDefinition, model: str, folder: Path = FOLDER) -> list[SimulatedCell]:
    """The table's cells with their derived cost, data set by data set.

    Published costs are included if ``model`` is the paper's reader. Needs only the model's config, and for
    a preset not even that. Raises UnknownNameError or DataError.
    """
    statistics = load_statistics(definition.id, folder)
    architecture = resolve(model).architecture
    printed = published(definition.id) if model == statistics.reader else {}
    cells = []
    for dataset in definition.datasets:
        card = load_card(dataset)
        for row in definition.rows:
            reading = statistics.rows.get(row.id) or Unknown(
                reads="unknown", note="the cost statistics do not include this row"
            )
            derived, note = None, reading.note
            try:
                derived = derive(reading, row, card, statistics, architecture)
            except NotDerivableError as error:
                note = str(error)
            cost = printed.get((row.id, dataset, "tflops"))
            cells.append(
                SimulatedCell(
                    row,
                    dataset,
                    derived,
                    None if cost is None else cost.value,
                    note,
                    fitted=isinstance(reading, Compressed),
                )
            )
    return cells


def derive(
    reading: Reading, row: Row, card: Card, statistics: CostStatistics, reader: Architecture
) -> Derived:
    """The mean cost of a question over the data set's lengths.

    Raises NotDerivableError naming the missing statistic.
    """
    if isinstance(reading, Unknown):
        raise NotDerivableError(reading.note)
    question = statistics.question_tokens.of(card.name)
    around = statistics.prompt_tokens.of(card.name) + question
    answer = statistics.answer_tokens.of(card.name)
    tokens, flops = [], []
    for document in document_lengths(card, statistics):
        usages: list[Usage] = []
        if isinstance(reading, WholeDocument):
            context = min(document, PAPER_INPUT_LIMIT - around - answer)
        elif isinstance(reading, BestPassages):
            context = _passages(_k(row, card), statistics.chunk_tokens.of(card.name), document)
            if reading.encoder is not None:
                query = [question + 2]  # [CLS] and [SEP]
                usages.append(texts_usage(_architecture(reading.encoder), query))
        elif isinstance(reading, BestNodes):
            each = statistics.node_tokens.of(card.name)
            nodes = min(_k(row, card), reading.limit // each)
            context = nodes * each + nodes - 1
        else:
            context = round(reading.fitted_rate[card.name] * document)
            through = document + round(reading.kept_passes * context)
            usage = Usage(calls=1, new_tokens=through, attended=through * reading.attended)
            usages.append(priced(_architecture(reading.compressor), usage))
        prompt = context + around
        tokens.append(prompt + answer)
        flops.append(answering_flops(reader, prompt, answer) + sum(usage.flops for usage in usages))
    return Derived(round(fmean(tokens)), round(fmean(flops)))


def document_lengths(card: Card, statistics: CostStatistics) -> list[int]:
    """Representative document lengths in tokens, equally weighted; their mean is the published one.

    Raises NotDerivableError if the card lacks the mean length or the statistics behind the spread.
    """
    lengths = card.lengths
    if lengths is None or lengths.mean_tokens is None:
        raise NotDerivableError("the mean length of the documents is not in the card")
    spread = statistics.spread.get(card.name)
    if spread is None:
        return [lengths.mean_tokens]
    shares = spread.shares
    if not shares:
        if lengths.documents is None or lengths.min_tokens is None or lengths.max_tokens is None:
            raise NotDerivableError("shortest, longest and number of documents are not all in the card")
        shares = _lognormal(lengths.documents, lengths.min_tokens, lengths.max_tokens)
    scale = lengths.mean_tokens / fmean(shares)
    return [round(scale * share) for share in shares]


def _lognormal(documents: int, shortest: int, longest: int) -> tuple[float, ...]:
    """Quantiles of the lognormal whose expected extremes among ``documents`` draws have this ratio."""
    normal = NormalDist()
    sigma = math.log(longest / shortest) / (2 * normal.inv_cdf(1 - 1 / (documents + 1)))
    return tuple(math.exp(sigma * normal.inv_cdf((at + 0.5) / 200)) for at in range(200))


def answering_flops(reader: Architecture, prompt: int, answer: int) -> int:
    """FLOPs of reading ``prompt`` tokens at once and ``answer`` tokens one by one, convention ``paper``."""
    steps = (forward_usage(reader, 1, prompt + i) for i in range(answer))
    return forward_usage(reader, prompt).flops + sum(usage.flops for usage in steps)


def _passages(k: int, chunk_tokens: int, document: int) -> int:
    """Tokens of k chunks with one-token separators; at most the document."""
    chunks = min(k, -(-document // chunk_tokens))
    return min(chunks * chunk_tokens, document) + chunks - 1


def _k(row: Row, card: Card) -> int:
    k = row.options(card).get("k")
    if not isinstance(k, int):
        raise NotDerivableError(f"the row has k = {k!r}; expected a number")
    return k


def _architecture(model: str) -> Architecture:
    return resolve(model).architecture


COLUMNS = ("Method", "tokens", "TFLOPs", "TFLOPs publ.", "difference")
CSV_COLUMNS = (
    *("table", "row", "label", "dataset", "model", "tokens", "tflops"),
    *("published", "relative_difference", "note"),
)  # fmt: skip


def table_name(definition: TableDefinition) -> str:
    """Name of the files of the table's simulated costs, without suffix."""
    return f"{definition.id}_simulated"


def render_simulated(
    definition: TableDefinition, model: str, folder: Path = FOLDER, rate: float | None = None
) -> Rendered:
    """Derived and published costs with their relative differences and explanations, in all formats.

    rate: FLOP/s that one GPU sustains; the caption then states the hours for all questions of the full sets.
    """
    statistics = load_statistics(definition.id, folder)
    cells = simulate(definition, model, folder)
    text = TextTable(
        id=table_name(definition),
        title=f"{definition.title}: cost from token statistics alone",
        columns=COLUMNS,
        sections=tuple(
            Section(dataset, tuple(_line(cell) for cell in cells if cell.dataset == dataset))
            for dataset in definition.datasets
        ),
        caption=(*_caption(statistics, model, cells), *_gpu_hours(cells, rate)),
        notes=tuple(_notes(cells)),
    )
    values = [
        (
            *(definition.id, cell.row.id, cell.row.label, cell.dataset, model),
            *(
                ("", "")
                if cell.derived is None
                else (cell.derived.tokens, f"{cell.derived.flops / 1e12:.6g}")
            ),
            "" if cell.published_tflops is None else f"{cell.published_tflops:.6g}",
            "" if cell.difference is None else f"{cell.difference:.6g}",
            cell.note,
        )
        for cell in cells
    ]
    return Rendered(text, csv_text([CSV_COLUMNS, *values]))


def _line(cell: SimulatedCell) -> tuple[str, ...]:
    """The values for ``COLUMNS``."""
    derived = (DASH, DASH)
    if cell.derived is not None:
        derived = (f"{cell.derived.tokens:,}", three_digits(cell.derived.flops / 1e12))
    difference = DASH if cell.difference is None else _percent(cell.difference)
    printed = DASH if cell.published_tflops is None else f"{cell.published_tflops:g}"
    return (cell.row.label, *derived, printed, difference)


def _percent(difference: float) -> str:
    size = f"{100 * abs(difference):.1f}"
    return f"{'' if not float(size) else '+' if difference > 0 else MINUS}{size} %"


def _caption(statistics: CostStatistics, model: str, cells: list[SimulatedCell]) -> Iterator[str]:
    yield (
        f"Cost of a question with {resolve(model).label}, derived from lengths alone, without weights, data "
        "or records. No published cost is an input, except for the rates that are marked as fitted. "
        f"{statistics.chosen_with_costs.rstrip()}"
    )
    cards = map(load_card, dict.fromkeys(cell.dataset for cell in cells))
    sources = dict.fromkeys(card.lengths.source for card in cards if card.lengths is not None)
    yield (
        "Tokens: of the reader, prompt and answer. TFLOPs: query-dependent, of all models, per question, "
        f"{CONVENTION_NOTES['paper']}. Documents: mean lengths of {'; '.join(sources)}."
    )
    for name, spread in statistics.spread.items():
        yield f"Spread of {name}: {spread.source.rstrip()}."
    lengths: Mapping[str, Length] = {
        "Chunks": statistics.chunk_tokens,
        "Nodes of a tree": statistics.node_tokens,
        "Template and wording": statistics.prompt_tokens,
        "Question": statistics.question_tokens,
        "Answer": statistics.answer_tokens,
    }
    for name, length in lengths.items():
        value = length.value
        tokens = str(value) if isinstance(value, int) else ", ".join(f"{k} {v}" for k, v in value.items())
        yield f"{name}: {tokens} tokens ({length.source})."
    yield (
        "The documents of a set count as one text, cut into full chunks: a ranker that keeps k chunks reads "
        "the whole of a document that has fewer."
    )
    if model != statistics.reader:
        yield f"The paper's costs are for {statistics.reader}; make the table with it to compare them."


def _gpu_hours(cells: list[SimulatedCell], rate: float | None) -> Iterator[str]:
    """GPU-hours for the questions of the full sets at that rate, row by row; nothing without a rate."""
    if rate is None:
        return
    hours: dict[str, float] = {}
    whole: dict[str, bool] = {}
    for cell in cells:
        questions = _questions(load_card(cell.dataset))
        known = cell.derived is not None and questions is not None
        whole[cell.row.label] = whole.get(cell.row.label, True) and known
        if cell.derived is not None and questions is not None:
            hours[cell.row.label] = (
                hours.get(cell.row.label, 0.0) + questions * cell.derived.flops / rate / 3600
            )
    rows = ", ".join(
        f"{label} {'' if whole[label] else '≥ '}{hours[label]:.2g}" if label in hours else f"{label} {DASH}"
        for label in whole
    )
    yield (
        f"GPU-hours of all questions of the full data sets at {rate / 1e12:g} TFLOP/s (--rate): "
        f"{rows}. Indexes are not counted; ≥: some data sets of the row could not be derived."
    )


def _questions(card: Card) -> int | None:
    listed = None if card.lengths is None else card.lengths.questions
    return listed or (card.hub.examples if card.hub is not None else None)


def _notes(cells: list[SimulatedCell]) -> Iterator[str]:
    """Which cells agree, why others do not, what is missing for the rest; grouped by reason."""
    compared = [cell for cell in cells if cell.difference is not None]
    agreeing = [cell for cell in compared if abs(cell.difference or 0) <= TOLERANCE]
    if compared:
        named = "; ".join(cell.place for cell in agreeing) or "none"
        fitted = sum(cell.fitted for cell in agreeing)
        yield (
            f"{len(agreeing)} of the {len(compared)} values that can be compared agree within "
            f"{100 * TOLERANCE:.0f} %, {fitted} of them fitted: {named}."
        )
    off = [cell for cell in compared if cell not in agreeing]
    yield from _grouped("Further off", off)
    yield from _grouped(
        "Derived with an assumption", [c for c in cells if c.derived and c.note and c not in off]
    )
    yield from _grouped("Not derived", [cell for cell in cells if cell.derived is None])


def _grouped(what: str, cells: list[SimulatedCell]) -> Iterator[str]:
    by_note: dict[str, list[SimulatedCell]] = {}
    for cell in cells:
        by_note.setdefault(cell.note or "no statistic explains it", []).append(cell)
    for note, same_note in by_note.items():
        by_row: dict[str, list[str]] = {}
        for cell in same_note:
            by_row.setdefault(cell.row.label, []).append(cell.place.removeprefix(f"{cell.row.label}, "))
        named = "; ".join(f"{label}, {', '.join(places)}" for label, places in by_row.items())
        yield f"{what}: {named}: {note}."
