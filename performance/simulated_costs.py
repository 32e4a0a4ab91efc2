"""A table's cost column from token statistics alone: no weights, no data, no records.

    python -m performance.simulated_costs table1 --model llama-3.1-8b --rate 400

``paper_tables/costs/TABLE.yaml`` says what each row's question reads; lengths come from there and from
the cards, the formula is :mod:`bench.flops.formulas`' convention ``paper``. Published costs are compared with
the result but never enter it. So this checks our accounting against the papers', on any laptop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Literal

import click
from pydantic import BaseModel, ConfigDict

from bench.data.cards import Card, load_card
from bench.errors import DataError
from bench.files.paths import TABLES
from bench.files.yaml import Definition, load_definition
from bench.flops.architecture import Architecture
from bench.flops.formulas import CONVENTION_NOTES, forward_usage, priced, texts_usage
from bench.flops.meter import Usage
from bench.models.presets import PAPER_INPUT_LIMIT
from bench.models.spec import resolve
from bench.tables.definition import Row, TableDefinition, load_table
from bench.tables.formats import DASH, MINUS, Section, TextTable, three_digits
from bench.tables.published import published

TOLERANCE = 0.05
"""Relative difference up to which a row counts as agreeing with the paper."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Length(_Part):
    """A length in tokens, one for all data sets or one for each, with its source."""

    value: int | dict[str, int]
    source: str

    def of(self, dataset: str) -> int:
        """The length on that data set."""
        return self.value if isinstance(self.value, int) else self.value[dataset]


class Reading(_Part):
    """What a question of a row reads.

    document: the whole one, up to the papers' limit; passages: the row's ``k`` chunks with separators, at
    most the document; nodes: the row's ``k`` nodes of a tree, up to ``limit`` tokens; compressed: a share of
    the document, which goes through ``compressor`` before, and the kept part ``kept_passes`` times more.
    """

    reads: Literal["document", "passages", "nodes", "compressed", "unknown"]
    note: str = ""
    """Assumptions behind the row's cost besides the lengths, or why it cannot be derived."""
    encoder: str = ""
    """Of passages: embeds the question."""
    limit: int = 0
    compressor: str = ""
    fitted_rate: dict[str, float] = {}
    """Data set -> share that is kept, fitted to the published cost and not derived."""
    kept_passes: float = 0
    attended: int = 0
    """Tokens that each of the compressor's tokens attends to."""


class Spread(_Part):
    """The distribution of a data set's document lengths around their mean."""

    shares: tuple[float, ...] = ()
    """Lengths over their mean, each for equally many documents. Empty: a lognormal distribution from the
    card's shortest, longest and number of documents."""
    source: str


class CostStatistics(Definition):
    """The statistics from which the costs of a table's rows are derived."""

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


@dataclass(frozen=True)
class SimulatedCell:
    """One row on one data set; costs are means per question, of all models, convention ``paper``."""

    row: Row
    dataset: str
    tokens: int | None
    """Through the reader, prompt and answer; None: the cost cannot be derived."""
    flops: int
    published_tflops: float | None
    note: str

    @property
    def difference(self) -> float | None:
        """(Derived - published) / published; None if one of them is missing."""
        if self.tokens is None or self.published_tflops is None:
            return None
        return self.flops / 1e12 / self.published_tflops - 1


def load_statistics(table: str) -> CostStatistics:
    """The statistics of a table; raises UnknownNameError for a table without them, DataError for bad ones."""
    return load_definition("table with cost statistics", table, TABLES / "costs", CostStatistics)


def simulate(definition: TableDefinition, model: str) -> list[SimulatedCell]:
    """The table's cells with their derived cost, data set by data set; needs only the model's config.

    Published costs are included if ``model`` is the paper's reader.
    """
    statistics, reader = load_statistics(definition.id), resolve(model).architecture
    printed = published(definition.id) if model == statistics.reader else {}
    cells = []
    for dataset in definition.datasets:
        for row in definition.rows:
            reading = statistics.rows[row.id]
            means: tuple[int | None, int] = None, 0
            if reading.reads != "unknown":
                means = derive(reading, row, load_card(dataset), statistics, reader)
            cost = printed.get((row.id, dataset, "tflops"))
            cells.append(SimulatedCell(row, dataset, *means, cost.value if cost else None, reading.note))
    return cells


def derive(
    reading: Reading, row: Row, card: Card, statistics: CostStatistics, reader: Architecture
) -> tuple[int, int]:
    """Mean tokens and mean FLOPs of a question over the data set's lengths."""
    name = card.name
    k: Any = row.options(card).get("k")
    question, answer = statistics.question_tokens.of(name), statistics.answer_tokens.of(name)
    around = statistics.prompt_tokens.of(name) + question
    tokens, flops = [], []
    for document in document_lengths(card, statistics):
        usages: list[Usage] = []
        match reading.reads:
            case "passages":
                size = statistics.chunk_tokens.of(name)
                chunks = min(k, -(-document // size))
                context = min(chunks * size, document) + chunks - 1
                if reading.encoder:  # [CLS] and [SEP]
                    usages.append(texts_usage(resolve(reading.encoder).architecture, [question + 2]))
            case "nodes":
                size = statistics.node_tokens.of(name)
                nodes = min(k, reading.limit // size)
                context = nodes * size + nodes - 1
            case "compressed":
                context = round(reading.fitted_rate[name] * document)
                through = document + round(reading.kept_passes * context)
                usage = Usage(calls=1, new_tokens=through, attended=through * reading.attended)
                usages.append(priced(resolve(reading.compressor).architecture, usage))
            case _:
                context = min(document, PAPER_INPUT_LIMIT - around - answer)
        tokens.append(context + around + answer)
        usages.append(forward_usage(reader, context + around))
        usages += [forward_usage(reader, 1, context + around + i) for i in range(answer)]
        flops.append(sum(usage.flops for usage in usages))
    return round(fmean(tokens)), round(fmean(flops))


def document_lengths(card: Card, statistics: CostStatistics) -> list[int]:
    """Representative document lengths in tokens, equally weighted; their mean is the published one."""
    known, spread = card.lengths, statistics.spread.get(card.name)
    if known is None or known.mean_tokens is None:
        raise DataError(f"{card.name}: its card has no mean length of the documents.")
    shares: Sequence[float] = (1.0,) if spread is None else spread.shares
    if not shares and known.min_tokens and known.max_tokens and known.documents:
        # Quantiles of the lognormal whose expected extremes among so many draws have this ratio.
        normal, extremes = NormalDist(), math.log(known.max_tokens / known.min_tokens)
        sigma = extremes / (2 * normal.inv_cdf(1 - 1 / (known.documents + 1)))
        shares = [math.exp(sigma * normal.inv_cdf((at + 0.5) / 200)) for at in range(200)]
    return [round(known.mean_tokens / fmean(shares) * share) for share in shares]


def render_simulated(definition: TableDefinition, model: str, rate: float | None = None) -> TextTable:
    """Derived and published costs with their relative differences and explanations.

    rate: FLOP/s that one GPU sustains; the caption then states the hours for all questions of the full sets.
    """
    statistics, cells = load_statistics(definition.id), simulate(definition, model)
    columns = ("Method", "tokens", "TFLOPs", "TFLOPs publ.", "difference")
    lines = [(cell.dataset, _line(cell)) for cell in cells]
    return TextTable(
        id=f"{definition.id}_simulated",
        title=f"{definition.title}: cost from token statistics alone",
        columns=columns,
        sections=tuple(
            Section(dataset, tuple(line for name, line in lines if name == dataset))
            for dataset in definition.datasets
        ),
        caption=(
            f"Cost of a question with {resolve(model).label}, derived from lengths alone, without weights, "
            f"data or records. {statistics.chosen_with_costs.rstrip()}",
            "Tokens: of the reader, prompt and answer. TFLOPs: query-dependent, of all models, per question, "
            f"{CONVENTION_NOTES['paper']}. Published: for {statistics.reader}. Every length with its source: "
            f"paper_tables/costs/{definition.id}.yaml.",
            *([_gpu_hours(cells, rate)] if rate else []),
        ),
        notes=tuple(_notes(cells)),
    )


def _line(cell: SimulatedCell) -> tuple[str, ...]:
    derived = (DASH, DASH)
    if cell.tokens is not None:
        derived = (f"{cell.tokens:,}", three_digits(cell.flops / 1e12))
    printed = DASH if cell.published_tflops is None else f"{cell.published_tflops:g}"
    return (cell.row.label, *derived, printed, DASH if cell.difference is None else _percent(cell.difference))


def _percent(difference: float) -> str:
    size = f"{100 * abs(difference):.1f}"
    return f"{'' if not float(size) else '+' if difference > 0 else MINUS}{size} %"


def _gpu_hours(cells: Sequence[SimulatedCell], rate: float) -> str:
    """GPU-hours for the questions of the full sets, for the rows that are derived on all of them."""
    hours: dict[str, float] = {}
    for cell in cells:
        hub = load_card(cell.dataset).hub
        questions = (hub.examples if hub else None) or math.nan
        spent = math.nan if cell.tokens is None else questions * cell.flops / rate / 3600
        hours[cell.row.label] = hours.get(cell.row.label, 0.0) + spent
    rows = ", ".join(f"{label} {spent:.2g}" for label, spent in hours.items() if not math.isnan(spent))
    return f"GPU-hours of all questions of the full data sets at {rate / 1e12:g} TFLOP/s (--rate): {rows}."


def _notes(cells: Sequence[SimulatedCell]) -> Iterator[str]:
    """How many costs agree, and the remarks on rows, each once."""
    compared = [abs(cell.difference) for cell in cells if cell.difference is not None]
    if compared:
        agreeing = sum(difference <= TOLERANCE for difference in compared)
        yield f"{agreeing} of the {len(compared)} published costs are met within {100 * TOLERANCE:.0f} %."
    for note, cell in {cell.note: cell for cell in cells if cell.note}.items():
        yield f"{cell.row.label}{'' if cell.tokens else ', not derived'}: {note}."


@click.command()
@click.argument("table", default="table1")
@click.option("--model", default="llama-3.1-8b", show_default=True, help="preset, hub id or folder")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TFLOP/S",
    help="of one GPU, to print the GPU-hours of the full data sets",
)
def command(table: str, model: str, rate: float | None) -> None:
    """Print the costs of TABLE's rows derived from token statistics, beside the published ones."""
    click.echo(render_simulated(load_table(table), model, None if rate is None else rate * 1e12).markdown())


if __name__ == "__main__":
    command()
