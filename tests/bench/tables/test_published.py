import csv

import pytest

from bench.data.cards import load_card
from bench.errors import UnknownNameError
from bench.tables.definition import list_tables, load_table
from bench.tables.published import FOLDER, METRICS, places, published

_PAPERS = {"table": "PECAN, Table ", "garlic": "GARLIC, Table ", "gor": "Graph of Records, Table "}
_PRINTED = {
    **{"table1": 208, "table2": 20, "table3": 40, "tableA3": 12, "tableA4": 28},
    **{"garlic1": 260, "garlic2": 60, "garlic3": 24, "garlic6": 12},
    **{"gor1": 156, "gor2": 40, "gor3": 36, "gor4": 7, "gor5": 16, "gor6": 32, "gor7": 78, "gor8": 36},
}
"""Table -> values that its paper prints, as counted in the papers' texts."""


def _lines(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_table_has_its_file_and_every_file_its_table() -> None:
    of_papers = {table.published_as for table in list_tables() if table.printed}
    assert of_papers == {path.stem for path in FOLDER.glob("*.csv")}
    assert _PRINTED.keys() == {path.stem for path in FOLDER.glob("*.csv")}


def test_a_table_beside_another_s_values_has_its_rows_data_sets_and_metrics() -> None:
    tables = {table.id: table for table in list_tables()}
    for table in (table for table in tables.values() if table.printed):
        other = tables[table.published_as]
        assert {row.id for row in table.rows if row.in_paper} <= {row.id for row in other.rows}
        assert set(table.datasets) <= set(other.datasets)
        assert set(table.printed) <= set(other.printed)


@pytest.mark.parametrize("name", sorted(_PRINTED))
def test_file_and_definition_have_the_same_places_and_the_paper_fills_them(name: str) -> None:
    definition = load_table(name)
    file_places = [(line["row"], line["dataset"], line["metric"]) for line in _lines(name)]
    assert sorted(file_places) == sorted(places(definition))
    cells = published(name)
    assert {(line["table"], bool(line["source"])) for line in _lines(name) if line["value"]} == {(name, True)}
    assert len({*file_places}) == len(file_places) and {m for _, _, m in file_places} <= {*METRICS}
    assert len(cells) == _PRINTED[name]
    assert len(cells) == len(file_places) or name == "gor4"  # the paper times seven methods on one set
    number = name.removeprefix("table").removeprefix("garlic").removeprefix("gor")
    paper = _PAPERS[name.removesuffix(number)]
    assert {cell.source for cell in cells.values()} == {f"{paper}{number}"}
    assert definition.source.startswith(paper)
    for (_, _, metric), cell in cells.items():
        assert cell.value <= 100 or metric in ("tflops", "ratio", "tokens", "samples", "setting")


def test_garlic_prints_the_scores_of_pecan() -> None:
    garlic, pecan = published("garlic1"), published("table1")
    same = {"garlic": "pecan", "raptor_ct": "raptor_ct_top5"}
    shared = [place for place in garlic if place[2] != "bleu_4"]
    assert len(shared) == 208
    for row, dataset, metric in shared:
        assert garlic[row, dataset, metric].value == pecan[same.get(row, row), dataset, metric].value


def test_ratios_follow_from_the_costs_but_for_the_one_that_is_misprinted() -> None:
    table1 = published("table1")
    off = set()
    for row, dataset, metric in table1:
        if metric == "ratio":
            cost, own = (table1[name, dataset, "tflops"].value for name in (row, "pecan"))
            low, high = (cost - 0.05) / (own + 0.05), (cost + 0.05) / (own - 0.05)
            if not low - 0.005 <= table1[row, dataset, metric].value <= high + 0.005:
                off.add((row, dataset))
    assert off == {("dragon_top5", "qasper")}


def test_the_judged_pairs_sum_to_all_of_them() -> None:
    gor2 = published("gor2")
    for row, dataset, metric in gor2:
        if metric == "win_rate":
            both = gor2[row, dataset, metric].value + gor2[row, dataset, "against_win_rate"].value
            assert both == pytest.approx(100)


def test_cards_and_published_lengths_are_the_same() -> None:
    for table in ("tableA3", "garlic6"):
        for (row, dataset, _), cell in published(table).items():
            assert getattr(load_card(dataset).lengths, row) == cell.value


def test_an_unknown_table_gets_a_guess() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'table1'"):
        published("tabel1")
