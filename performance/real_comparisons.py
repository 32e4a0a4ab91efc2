"""Every paired comparison of docs/real_reader, computed again from its table and its cells.

``python -m performance.real_comparisons`` rewrites ``docs/real_reader/comparisons.csv``: its first three
columns say what is compared with what, and a line added with these alone is filled in. A method of the table
has its row there; the variants of PECAN besides (``NAMES``) have cells, of which the largest on a data set is
meant: without the questions on which t_p was chosen. ``all`` takes every data set that has both. Two ways of
PECAN are compared on the questions whose graph cost both the same, to the last FLOP: on one graph.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from bench.errors import DataError
from bench.files.atomic import write_text
from bench.results.comparison import compare
from bench.results.finished import find_cells
from bench.results.models import read_description
from bench.results.records import Record, load_records
from bench.schema import JsonValue
from bench.tables.definition import load_table
from bench.tables.export import exported_table
from bench.tables.formats import csv_text
from performance.command import run_command

FOLDER = Path(__file__).parents[1] / "docs" / "real_reader"
FILE = FOLDER / "comparisons.csv"
COLUMNS = (
    *("dataset", "method", "against", "questions", "f1", "f1_of_other", "difference", "low", "high"),
    *("better", "equal", "worse", "p_permutation", "cost_ratio", "five_points_need"),
)
LABELS = {
    "PECAN, relative, t_p 2": "PECAN by the relative rule t_p 2",
    "Closed book (not in the paper)": "closed book",
}
"""Names of the table's rows that are others here."""

ONE_TURN: Mapping[str, JsonValue] = {"second_turn": "none", "relevance": "question", "attention": "on"}
ALONE: Mapping[str, JsonValue] = {"second_turn": "none", "attention": "off"}
TWO_TURNS: Mapping[str, JsonValue] = {"second_turn": "restated", "confidence": "over_nothing"}
PATIENCE: Mapping[str, Mapping[str, JsonValue]] = {
    **{f"t_p {n}": {"t_p": n, "t_c": 0.5} for n in (2, 4, 8)},
    "whole graph": {"t_c": 0.98},
}
NAMES: Mapping[str, Mapping[str, JsonValue]] = {
    f"{named} {until}": {**options, **PATIENCE[until]}
    for named, options in (
        ("PECAN in one turn", ONE_TURN),
        ("PECAN in one turn by similarity alone", ALONE),
        ("PECAN in two turns", TWO_TURNS),
    )
    for until in PATIENCE
} | {
    "PECAN's text by the relative rule t_p 2": {
        "answer_from": "chunks",
        "confidence": "over_nothing",
        "t_p": 2,
    }
}

Records = Mapping[tuple[str, str], Sequence[Record]]
"""(data set, name) -> the answers."""


def answers(folder: Path) -> Records:
    """What has been recorded of every name. Raises DataError for a folder without the table or its cells."""
    table = exported_table(load_table("table1_real"), folder)
    found = {
        (dataset, LABELS.get(cell.row.label, cell.row.label)): list(cell.finished.read_records())
        for (_, dataset), cell in table.cells.items()
        if cell.finished
    }
    for cell in find_cells(folder / "cells"):
        about = read_description(cell)
        records = list(load_records(cell)) if about.method == "pecan" else []
        for name, options in NAMES.items():
            if options.items() <= about.config.items() and len(records) > len(
                found.get((about.dataset, name), ())
            ):
                found[about.dataset, name] = records
    return found


def _of(recorded: Records, dataset: str, name: str) -> Iterator[Record]:
    """The answers of a name on a data set, without a question's text, which an export does not have."""
    for (found, called), records in recorded.items():
        if called.casefold() == name.casefold() and dataset in (found, "all"):
            yield from (record.model_copy(update={"question": ""}) for record in records)


def line(recorded: Records, dataset: str, method: str, against: str) -> list[str]:
    """A line of the file. Raises DataError for a name of which nothing is recorded there."""
    first, second = sides = [list(_of(recorded, dataset, name)) for name in (method, against)]
    for name, side in zip((method, against), sides, strict=True):
        if not side:
            known = ", ".join(
                dict.fromkeys(called for found, called in recorded if dataset in (found, "all"))
            )
            raise DataError(f"{name}: nothing recorded of it on {dataset}. What is: {known}.")
    if all(name.startswith("PECAN") for name in (method, against)):
        graphs = [{(r.example_id, r.flops.index) for r in side} for side in sides]
        first, second = (
            [r for r in side if (r.example_id, r.flops.index) in graphs[0] & graphs[1]] for side in sides
        )
    c = compare(first, second, "f1")
    d = c.difference
    assert d.low is not None and d.high is not None and c.flop_ratio is not None
    return [
        *(dataset, method, against, str(len(c.pairs))),
        *(f"{100 * value:.1f}" for value in (c.first, c.second, d.mean, d.low, d.high)),
        *map(str, (c.better, c.equal, c.worse)),
        _p(c.p_value),
        f"{c.flop_ratio.mean:.3g}",
        str(c.power.questions_for(0.05)) if c.power else "",
    ]


def _p(value: float) -> str:
    """Three digits below .10, else two."""
    text = f"{value:.3f}" if value < 0.0995 else f"{value:.2f}"
    return "<.001" if value < 0.001 else text.removeprefix("0")


@click.command()
def main() -> None:
    """Compute docs/real_reader/comparisons.csv again."""
    with FILE.open(encoding="utf-8", newline="") as file:
        asked = [[row[name] for name in COLUMNS[:3]] for row in csv.DictReader(file)]
    recorded = answers(FOLDER)
    write_text(FILE, csv_text([COLUMNS, *itertools.starmap(lambda *names: line(recorded, *names), asked)]))


if __name__ == "__main__":
    run_command(main, "python -m performance.real_comparisons")
