"""Dollars in closed form, and the number of questions for which an index pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import ConfigError
from bench.models.prices import PriceCard, read_prices
from bench.results.records import Record
from bench.run.cell import CellRequest
from bench.run.session import Session
from bench.tables.cells import TableData
from bench.tables.definition import load_table
from bench.tables.make import TableRequest, plan_cells
from bench.tables.price import cell_price, dollars_per_1000, price_table
from tests import cells

FREE = {"input": 0.0, "cached_input": 0.0, "output": 0.0}
CARD = PriceCard.model_validate(
    {
        "date": "2026-01-31",
        "source": "a page",
        "prices": {"tiny": {"input": 2.0, "cached_input": 0.5, "output": 8.0}, "minilm": FREE},
    }
)


def use(calls: int, new: int, cached: int | None, rows: int = 1, attended: int = 0) -> dict[str, int]:
    known = {} if cached is None else {"cached": cached}
    return {"calls": calls, "new_tokens": new, "attended": attended, "logit_rows": rows, "flops": 1, **known}


ANSWER = {"prefill": use(1, 100, 0), "decode": use(4, 4, 410, 4)}
"""100 tokens of input and 5 of output: 240 micro-dollars, and 90 if all input is cached."""
SEARCH = {"prefill": use(1, 30, 50), "probe": use(2, 10, 60, 2), "decode": use(1, 1, 90)}
"""40 tokens, 110 cached ones, and 2 + 2 generated: 80 + 55 + 32."""


def record(number: int, query: dict[str, Any], index: dict[str, Any] | None = None) -> Record:
    by_model = {"query_by_model": query, "index_by_model": index or {}}
    return cells.record(number, flops=cells.flops(1, 0, **by_model))


def table(folder: Path, **rows: list[Record]) -> TableData:
    return cells.table_of_records(folder, rows)


@pytest.fixture
def priced(tmp_path: Path) -> TableData:
    encoder, tree = {"minilm": {"embed": use(1, 50, 0)}}, {"tiny": {"prefill": use(1, 100, 0, 0)}}
    return table(
        tmp_path,
        full_context=[record(0, {"tiny": ANSWER}), record(2, {"tiny": ANSWER})],
        # two questions share d0, one has d1: an index counts once for each document
        pecan=[record(n, {"tiny": SEARCH, **encoder}, {**tree, **encoder}) for n in (0, 1, 2)],
        tree=[record(0, {"tiny": {"decode": use(4, 4, 8, 4), "prefill": use(1, 20, 0)}}, tree)],
    )


def test_dollars_are_the_closed_form_of_the_tokens(priced: TableData) -> None:
    full, pecan, tree = (priced.cells[row, "qasper"].finished for row in ("full_context", "pecan", "tree"))
    price = cell_price(full, CARD)
    assert (price.question.tolist(), price.index.tolist()) == ([240, 240], [0, 0])
    assert price.repeated.tolist() == [90, 90]  # 100 cached tokens, 5 generated
    price = cell_price(pecan, CARD)
    assert (price.question.tolist(), price.index.tolist()) == ([167, 167], [200, 200])
    assert price.shared(4).tolist() == [217, 217]
    assert dollars_per_1000(priced, CARD, 4)["pecan", "qasper"].mean == pytest.approx(0.217)


def test_a_table_says_for_how_many_questions_an_index_is_cheaper(priced: TableData) -> None:
    made = price_table(priced, CARD, (1, 4))
    by_row = {row[0].rpartition(": ")[2]: dict(zip(made.columns, row, strict=True)) for row in made.rows}
    assert by_row["FULL_CONTEXT"]["cheaper than full context"] == "–"
    # 200 + 167 q is never less than 240 + 90 (q - 1)
    assert by_row["PECAN"]["cheaper than full context"] == "never"
    # 200 + 80 q < 240 + 90 (q - 1) from q = 6 (680 < 690); at 5 both are 600
    assert by_row["TREE"]["cheaper than full context"] == "from 6 q."
    assert list(by_row["PECAN"].values())[1:5] == ["0.167", "0.200", "0.367", "0.217"]
    text = made.markdown()
    assert "a page, 2026-01-31" in text and not any(word in text for word in ("Ranges", "TFLOPs", "percent"))


def test_without_an_index_the_first_questions_are_cheaper(tmp_path: Path) -> None:
    made = price_table(
        table(
            tmp_path,
            full_context=[record(0, {"tiny": ANSWER})],
            short=[record(0, {"tiny": {"prefill": use(1, 56, 0)}})],  # 120 q < 240 + 90 (q - 1) up to q = 4
            nothing=[record(0, {"minilm": {"embed": use(1, 5, 0)}})],
            equal=[record(0, {"tiny": {"prefill": use(1, 41, 0)}})],  # 90
        ),
        CARD,
    )
    pays = {row[0].rpartition(": ")[2]: row[-2] for row in made.rows}
    assert pays == {"FULL_CONTEXT": "–", "SHORT": "up to 4 q.", "NOTHING": "from 1 q.", "EQUAL": "from 1 q."}


def test_records_without_the_cached_tokens_give_a_range_that_holds_every_split(tmp_path: Path) -> None:
    """The bounds are against random calls of which only the sums that old records have are kept."""
    rng = np.random.default_rng(0)
    for case in range(50):
        new = rng.integers(1, 40, size=rng.integers(1, 6))
        held = rng.integers(0, 200, size=len(new))
        attended = int((new * (new + held)).sum())
        by_case = {
            name: [record(0, {"tiny": {"prefill": use(len(new), int(new.sum()), cached, 0, attended)}})]
            for name, cached in (("old", None), ("now", int(held.sum())))
        }
        (tmp_path / str(case)).mkdir()
        made = table(tmp_path / str(case), **by_case)
        old, now = (made.cells[row, "qasper"].finished for row in ("old", "now"))
        (low, high), (exact, same) = cell_price(old, CARD).question, cell_price(now, CARD).question
        assert exact == same and low <= exact + 1e-9 and exact - 1e-9 <= high
        if len(new) == 1:
            assert (low, high) == pytest.approx((exact, exact)), "a single call's are known"


def test_a_range_is_shown_and_said(tmp_path: Path) -> None:
    old = {"tiny": {"prefill": use(2, 20, None, 1, attended=500)}}
    made = price_table(table(tmp_path, pecan=[record(0, old)]), CARD)
    # 20 new and 1 generated: 48; held: (500 - 19² - 1²) / 19 tokens or more, 500 - 20² / 2 = 300 or fewer
    assert made.rows[0][1] == "0.0516 to 0.198" and "Ranges: these records" in " ".join(made.brief)


def test_a_model_without_a_price_is_an_error_before_any_question(tmp_path: Path) -> None:
    made = table(tmp_path, bm25=[record(0, {"other": ANSWER})])
    with pytest.raises(ConfigError, match="No price for 'other'"):
        price_table(made, CARD)
    own = tmp_path / "own.yaml"
    own.write_text(
        'date: "2026-01-31"\nsource: a page\nprices: {tiny: {input: 1, cached_input: 1, output: 1}}\n'
    )
    card = read_prices(own)
    request = TableRequest(load_table("table1"), CellRequest(), Session(tmp_path), view="price", prices=card)
    with pytest.raises(ConfigError, match="No price for 'minilm'"):
        plan_cells(request)


def test_a_network_of_a_methods_own_needs_no_price(tmp_path: Path) -> None:
    made = table(tmp_path, gor=[record(0, {"gor-gnn": {"score": use(1, 0, 0, 0)}})])
    assert price_table(made, CARD).rows[0][1] == "0"
