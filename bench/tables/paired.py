"""A table's rows against one of them, question by question: difference, significance, ratio of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.errors import ConfigError
from bench.metrics import label_of
from bench.results.comparison import Comparison, compare, holm
from bench.results.records import Record
from bench.tables.caption import brief, caption, without_values
from bench.tables.cells import TableCell, TableData
from bench.tables.definition import Row
from bench.tables.formats import DASH, TextTable, in_brackets, plain_table, signed

ALL = "all data sets"


def paired_table(table: TableData) -> TextTable:
    """One line per data set and row; first, if there are several, one per row over all data sets.

    A row is compared with the one that it names (``against``), else with the table's (``ratio_to``).
    Only data sets on which both rows have finished cells count, and of these the questions that both have.
    Raises ConfigError for a table without a row to compare with (``ratio_to``).
    """
    definition = table.definition
    reference = definition.reference
    if reference is None:
        raise ConfigError(f"{definition.id} names no row that others are compared with (ratio_to).")
    rows = [row for row in definition.rows if row is not reference]
    named = {row.id: row.label for row in definition.rows}
    against = {row.id: row.against or reference.id for row in rows}
    apart = set(against.values()) - {reference.id}
    if unknown := apart - named.keys():
        raise ConfigError(f"{definition.id} has no row {sorted(unknown)[0]} that others are compared with.")
    base = "the row named" if apart else reference.label
    sections = _comparisons(table, against, rows)
    metric = label_of(definition.metrics[0])
    labels = {row.id: row.label + (f", against {named[against[row.id]]}" if apart else "") for row in rows}
    lines = [
        (f"{section}: {labels[row_id]}", *_line(comparison, adjusted))
        for section, comparisons in sections.items()
        for (row_id, comparison), adjusted in zip(
            comparisons.items(), holm([c.p_value for c in comparisons.values()]), strict=True
        )
    ]
    columns = (
        *("Data and method", metric, "the other" if apart else base, "difference", "better, equal, worse"),
        *("p", "p (Holm)", "could show", "cost", "n"),
    )
    return plain_table(
        f"{definition.id}_paired",
        f"{table.title}: against {base}, question by question",
        columns,
        lines,
        (
            *caption(table),
            f"Differences are points of {metric} against {base} on the same questions, with 95 % "
            "intervals that resample documents; p is of a permutation test that swaps the two rows document "
            "by document, then corrected for the number of rows by Holm's method. Could show: the true "
            "difference that these questions would find 4 times in 5 at a level of .05, uncorrected; half of "
            f"it needs four times as many. Cost: TFLOPs of the questions over those of {base}.",
        ),
        without_values(table),
        brief(table),
    )


def _comparisons(
    table: TableData, against: Mapping[str, str], rows: Sequence[Row]
) -> dict[str, dict[str, Comparison]]:
    """Data as printed -> row id -> comparison with the row that it is against; first all, if several."""
    metric = table.definition.metrics[0]
    sections: dict[str, dict[str, Comparison]] = {ALL: {}}
    together: dict[str, tuple[list[Record], list[Record]]] = {row.id: ([], []) for row in rows}
    for dataset in table.definition.datasets:
        bases = {id_: table.cells[id_, dataset] for id_ in set(against.values())}
        read = {id_: _records(cell, dataset) for id_, cell in bases.items()}
        for row in rows:
            own, others = _records(table.cells[row.id, dataset], dataset), read[against[row.id]]
            if own and others:
                sections.setdefault(bases[against[row.id]].data, {})[row.id] = compare(own, others, metric)
                together[row.id][0].extend(own)
                together[row.id][1].extend(others)
    sections[ALL] = {id_: compare(*both, metric) for id_, both in together.items() if both[0]}
    if len(sections) == 2:  # one data set
        del sections[ALL]
    return sections


def _records(cell: TableCell, dataset: str) -> list[Record]:
    """The cell's records, with ids that no other data set has; none if it is not finished."""
    if cell.finished is None or not cell.finished.summary.n_scored:
        return []
    return [
        r.model_copy(update={"example_id": f"{dataset}/{r.example_id}"}) for r in cell.finished.read_records()
    ]


def _line(comparison: Comparison, adjusted: float) -> tuple[str, ...]:
    difference = comparison.difference
    return (
        f"{100 * comparison.first:.1f}",
        f"{100 * comparison.second:.1f}",
        f"{_points(difference.mean)}{in_brackets(difference, _points)}",
        f"{comparison.better}, {comparison.equal}, {comparison.worse}",
        _probability(comparison.p_value),
        _probability(adjusted),
        DASH if comparison.power is None else f"{100 * comparison.power.detectable:.1f}",
        f"{comparison.flop_ratio.mean:.2f}" if comparison.flop_ratio else DASH,
        str(len(comparison.pairs)),
    )


def _points(difference: float) -> str:
    return signed(100 * difference, 1)


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
