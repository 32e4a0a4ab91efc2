from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.data.cards import load_card
from bench.models.spec import resolve
from bench.tables.definition import load_table
from performance.simulated_costs import SimulatedCell, derive, document_lengths, load_statistics, simulate

READER = "llama-3.1-8b"
N = 8_030_261_248  # parameters
QUADRATIC = 524_288  # 4 * 32 layers * 4096
Cells = Mapping[tuple[str, str], SimulatedCell]


def simulated() -> Cells:
    return {(c.row.id, c.dataset): c for c in simulate(load_table("table1"), READER)}


@pytest.fixture(scope="module")
def cells() -> Cells:
    return simulated()


def test_full_context_is_the_mean_over_documents_and_not_the_cost_of_the_mean_one(cells: Cells) -> None:
    statistics, card = load_statistics("table1"), load_card("hotpotqa")
    lengths = document_lengths(card, statistics)
    assert len(lengths) == 20 and abs(sum(lengths) / 20 - 1318) < 1
    # A prompt of p tokens at once, then 5 tokens on p, p + 1, ..., p + 4 cached ones.
    prompts = [n + 58 + 22 for n in lengths]
    by_hand = [2 * N * (p + 5) + QUADRATIC * (p**2 + 5 * p + 15) for p in prompts]
    flops = cells["full_context", "hotpotqa"].flops
    assert flops == round(sum(by_hand) / 20) > 23_561_256_263_680  # of 1,318 tokens


def test_compression_pays_for_every_pass() -> None:
    # MuSiQue at its mean: round(0.58 * 2267) = 1,315 are kept; 2,267 + round(5.4 * 1315) = 9,368 tokens go
    # through Phi-2 (2,779,683,840; 4 * 32 * 2560), each on 1,024; 1,315 and 58 + 20 reach the reader, which
    # answers with 5.
    statistics = load_statistics("table1").model_copy(update={"spread": {}})
    row = next(row for row in load_table("table1").rows if row.id == "longllmlingua")
    _, spent = derive(
        statistics.rows[row.id], row, load_card("musique"), statistics, resolve(READER).architecture
    )
    prompt = 1315 + 58 + 20
    reader = 2 * N * (prompt + 5) + QUADRATIC * (prompt**2 + 5 * prompt + 15)
    assert spent == reader + 2 * 2_779_683_840 * 9368 + 327_680 * 9368 * 1024


def test_which_rows_agree_within_five_percent(cells: Cells) -> None:
    compared = {key: cell.difference for key, cell in cells.items() if cell.difference is not None}
    off = {key for key, difference in compared.items() if abs(difference) > 0.05}
    assert len(compared) == 40
    raptor = {("raptor_ct_top5", dataset) for dataset in ("narrativeqa", "qasper", "musique")}
    assert off == {*raptor, ("dragon_top5", "qasper"), ("dragon_topx", "musique")}


def test_no_published_cost_is_an_input(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("performance.simulated_costs.published", lambda table: {})
    without = simulated()
    assert {k: c.flops for k, c in without.items()} == {k: c.flops for k, c in cells.items()}
    assert all(cell.published_tflops is None for cell in without.values())
