"""What a table's questions cost in dollars, and for how many of them an index pays for itself.

A model's calls with n new tokens on m cached ones, and g generated tokens, cost ``input * Σn``,
``cached_input * Σm`` and ``output * Σg``. Decoding forwards what was generated and counts in g alone; so does
the first token of an answer or a probe, whose logits come from the prompt. Records from before Σm was counted
have Σn·(m+n), which gives Σm of a single call and a range of several: see :func:`cached_tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.flops.meter import Meter, Usage
from bench.metrics.statistics import Interval
from bench.models.prices import PriceCard
from bench.results.finished import FinishedCell
from bench.results.records import Record, index_costs
from bench.tables.caption import about_prices, about_reader, caption, provisional, without_values
from bench.tables.cells import TableCell, TableData
from bench.tables.formats import DASH, TextTable, from_to, plain_table, three_digits

QUESTIONS = (1, 2, 4, 8)
"""Default numbers of questions that share a document's index (PECAN, Table A4)."""
_GENERATING = ("prefill", "probe", "decode")
"""Phases of which each logit row is a generated token; others only read, such as ``embed``, ``compress``."""
_PER_1000 = 1e3
"""Of micro-dollars to dollars for 1,000 questions."""


@dataclass(frozen=True)
class CellPrice:
    """Least and most micro-dollars, shape (2,), equal where the records have the cached tokens."""

    question: NDArray[np.float64]
    """Mean of a question, without its index."""
    index: NDArray[np.float64]
    """Mean of a document set's index."""
    repeated: NDArray[np.float64]
    """Of a question whose every prompt token is cached."""

    def shared(self, questions: int) -> NDArray[np.float64]:
        """Of a question and its share of an index for so many."""
        return self.question + self.index / questions


def cell_price(cell: FinishedCell, card: PriceCard) -> CellPrice:
    """What a cell's questions and indexes cost; an index counts once for each document set.

    Raises ConfigError for a model without a price, and BenchError for records that cannot be read.
    """
    records: list[Record] = list(cell.read_records())
    longest = max(cell.description.geometry.values(), default=0)
    asked = [Meter.from_json(record.flops.query_by_model) for record in records]
    indexes = (Meter.from_json(index.index_by_model) for index in index_costs(records))

    def mean(meters: Iterable[Meter], *, again: bool = False) -> NDArray[np.float64]:
        return np.asarray(np.mean([dollars(m.usage, card, longest, again=again) for m in meters], axis=0))

    return CellPrice(mean(asked), mean(indexes), mean(asked, again=True))


def cached_tokens(use: Usage, longest: int) -> NDArray[np.float64]:
    """Least and most Σm of a model's calls, shape (2,), equal where it is known; longest: see ``dollars``.

    Of c calls with n >= 1 each, the largest has at most l = Σn - c + 1, and Σn² is between (Σn)²/c and
    l² + c - 1; so Σn·m is known to a range, and Σm is Σn·m / l or more, and Σn·m or less.
    """
    if use.cached is not None or not use.new_tokens:
        return np.full(2, float(use.cached or 0))
    calls, largest = max(1, use.calls), max(1, use.new_tokens - use.calls + 1)
    least = max(0.0, (use.attended - largest**2 - (calls - 1)) / largest)
    most = min(use.attended - use.new_tokens**2 / calls, calls * longest - use.new_tokens)
    return np.array([least, max(least, most) if calls > 1 else least])


def dollars(
    usage: Mapping[tuple[str, str], Usage], card: PriceCard, longest: int, *, again: bool = False
) -> NDArray[np.float64]:
    """Least and most micro-dollars of a ledger, shape (2,); longest: most tokens of a context.

    again: if all that it reads were cached. Models of which no token was counted, such as a method's own
    network, cost nothing.
    """
    total = np.zeros(2)
    for model in dict.fromkeys(model for model, _ in usage):
        phases = {phase: use for (name, phase), use in usage.items() if name == model}
        if not any(use.new_tokens or use.cached for use in phases.values()):
            continue
        price, read = card.of(model), Usage()
        for phase, use in phases.items():
            if phase != "decode":
                read.add(use)  # a call with a probe is one, though its text counts as prefill
        total += price.output * sum(use.logit_rows for phase, use in phases.items() if phase in _GENERATING)
        total += (price.cached_input if again else price.input) * read.new_tokens
        total += price.cached_input * cached_tokens(read, longest)
    return total


def price_table(table: TableData, card: PriceCard, questions: Sequence[int] = QUESTIONS) -> TextTable:
    """One line per data set and row: dollars of questions and index, and when they are below full's."""
    names = ("question", "index", *(f"{n} q." for n in questions), "cheaper than full context", "n")
    prices = prices_of(table, card)

    def values(cell: TableCell) -> list[str]:
        price, full = (prices.get((row, cell.dataset)) for row in (cell.row.id, "full_context"))
        if price is None or cell.summary is None:
            return [DASH] * len(names)
        amounts = (price.question, price.index, *map(price.shared, questions))
        pays = DASH if full is None or price is full else _pays(price, full)
        return [*map(_amount, amounts), pays, str(cell.summary.n)]

    ranges = any(np.ptp(price.shared(1)) > 0 for price in prices.values())
    priced, lacking = about_prices(str(card.date), card.source, ranges=ranges), without_values(table)
    return plain_table(
        f"{table.definition.id}_price",
        f"{table.title}: in dollars",
        ("Data and method", *names),
        table.lines(values),
        (*caption(table, amortised=None), *priced),
        lacking,
        (*provisional(table), *about_reader(table), *priced, *lacking),
    )


def prices_of(table: TableData, card: PriceCard) -> dict[tuple[str, str], CellPrice]:
    """(row id, data set) -> the prices of a finished cell."""
    return {key: cell_price(cell.finished, card) for key, cell in table.cells.items() if cell.finished}


def dollars_per_1000(table: TableData, card: PriceCard, questions: int) -> dict[tuple[str, str], Interval]:
    """(row id, data set) -> dollars for 1,000 questions with the index; the mean is the middle of a range."""
    shared = {key: price.shared(questions) / _PER_1000 for key, price in prices_of(table, card).items()}
    return {key: Interval(mean=float(of.mean()), low=of[0], high=of[1]) for key, of in shared.items()}


def _pays(price: CellPrice, full: CellPrice) -> str:
    """For how many questions per document the row costs less than full context with a cached prompt."""
    ends = zip(price.index, price.question, full.question, full.repeated, strict=True)
    return " or ".join(dict.fromkeys(_cheaper(*map(float, end)) for end in ends))


def _cheaper(index: float, question: float, first: float, repeated: float) -> str:
    """For which q ``index + q * question < first + (q - 1) * repeated``; all in the same unit."""
    lead, saved = round(first - repeated - index, 6), round(repeated - question, 6)
    if saved > 0 or (saved == 0 and lead > 0):
        return f"from {max(1, math.floor(-lead / saved) + 1) if saved else 1:,} q."
    most = math.ceil(lead / -saved) - 1 if saved else 0
    return f"up to {most:,} q." if most > 0 else "never"


def _amount(micro: NDArray[np.float64]) -> str:
    low, high = micro / _PER_1000
    return from_to(three_digits(float(low)), three_digits(float(high)))
