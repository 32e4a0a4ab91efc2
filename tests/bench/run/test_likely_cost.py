"""Which k is tried first for ``k=auto:METHOD``, and that what is found is what measuring alone finds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.models.language_model import CausalLanguageModel
from bench.results.records import Record
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.equal_cost import match_k, matched_cell, measured_costs
from bench.run.hooks import IndexProgress, RunHooks
from bench.run.likely_cost import likely_cells
from bench.run.session import Session
from tests.bench.models.builders import save_causal


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_causal(tmp_path_factory.mktemp("models") / "small-llama", max_position_embeddings=4096))


def waiting(reader: str, method: str, reference: str) -> CellRequest:
    return CellRequest(method, "hotpotqa", reader, options={"k": f"auto:{reference}"}, limit=3)


@pytest.fixture
def session(reader: str, tmp_path: Path) -> Session:
    """With the finished cell of BM25, which reads five passages."""
    new_session = Session(tmp_path)
    new_session.run(plan_cell(CellRequest("bm25", "hotpotqa", reader, limit=3)))
    return new_session


def test_the_neighbours_are_found_without_reading_and_run_together(
    reader: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = waiting(reader, "tfidf", "bm25")
    asked: list[str] = []
    generate = CausalLanguageModel.generate

    async def counted(self: CausalLanguageModel, prompt: str, *arguments: object) -> object:
        asked.append(prompt)
        return await generate(self, prompt, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CausalLanguageModel, "generate", counted)
    low, high = likely_cells(request, session)
    assert not asked
    assert high.identity.config["k"] == low.identity.config["k"] + 1
    session.run_together([(low, None), (high, None)])
    target = session.run(plan_cell(CellRequest("bm25", "hotpotqa", reader, limit=3))).summary.query_flops.mean
    costs = measured_costs(request, session.results)
    assert costs[low.identity.config["k"]] < target <= costs[high.identity.config["k"]]

    measured: list[int] = []

    def cost_of(cell: Cell) -> float:
        measured.append(cell.identity.config["k"])
        return session.run(cell).summary.query_flops.mean

    matched = matched_cell(request, session.results)  # nothing is run
    assert matched is not None and matched.identity in (low.identity, high.identity)
    assert not likely_cells(request, session)
    alone = match_k(request, target, session.results / "elsewhere", cost_of)
    assert alone is not None and matched.identity == alone.identity and measured


def test_where_everything_costs_less_one_more_k_shows_it(reader: str, session: Session) -> None:
    """A dear reference: full context of the same questions, read with a longer prompt."""
    request = waiting(reader, "tfidf", "full_context")
    session.run(plan_cell(CellRequest("full_context", "hotpotqa", reader, limit=3)))
    cells = likely_cells(request, session)
    assert len(cells) == 2
    session.run_together([(cell, None) for cell in cells])
    matched = matched_cell(request, session.results)
    assert matched is not None and matched.identity in [cell.identity for cell in cells]


def test_a_cost_below_any_passage_needs_one_passage(reader: str, session: Session) -> None:
    session.run(plan_cell(CellRequest("closed_book", "hotpotqa", reader, limit=3)))
    (cell,) = likely_cells(waiting(reader, "tfidf", "closed_book"), session)
    assert cell.identity.config["k"] == 1


def test_nothing_is_likely_before_the_reference_has_run_or_for_another_option(
    reader: str, session: Session
) -> None:
    assert not likely_cells(waiting(reader, "tfidf", "dragon"), session)
    assert not likely_cells(CellRequest("tfidf", "hotpotqa", reader, options={"k": 4}, limit=3), session)


def test_indexes_built_before_the_first_answer_are_shown(reader: str, session: Session) -> None:
    """RAPTOR's trees of 48 documents by a reader of 1.5 billion parameters took 20 minutes, in silence."""
    shown: list[str] = []
    seen: list[IndexProgress] = []

    class Watching(RunHooks):
        def on_start(self, cells: Sequence[Cell], done: Sequence[Mapping[str, Record]]) -> None:
            shown.append(cells[0].name)

        def on_index(self, progress: IndexProgress) -> None:
            seen.append(progress)

        def on_stop(self) -> None:
            shown.append("")

    session.hooks = (Watching(),)
    assert likely_cells(waiting(reader, "tfidf", "bm25"), session)
    assert shown == ["tfidf k=auto:bm25 on hotpotqa (sample), small-llama", ""]
    assert [seen[0].built, seen[-1].built] == [0, 3] and seen[-1].missing == 3


@pytest.mark.parametrize("method", ["ircot", "iter_retgen"])
def test_methods_whose_k_shares_no_run_are_measured_k_by_k(
    method: str, reader: str, session: Session
) -> None:
    """Two k were run as one, and the second was recorded with the answers of the first."""
    assert not likely_cells(waiting(reader, method, "bm25"), session)


def break_ranking(monkeypatch: pytest.MonkeyPatch, reader: str, fault: Exception | None) -> None:
    """TF-IDF's ranking raises the fault; without one it never ends."""

    async def broken(*_: object) -> object:
        if fault is None:
            await asyncio.sleep(60)
            raise AssertionError("not ended")
        raise fault

    monkeypatch.setattr(type(plan_cell(CellRequest("tfidf", "hotpotqa", reader)).method), "rank", broken)


def test_where_no_question_can_be_ranked_nothing_is_likely_and_the_reason_is_said(
    reader: str, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is left to the run, which records it."""
    break_ranking(monkeypatch, reader, RuntimeError("no ranking today"))
    assert not likely_cells(waiting(reader, "tfidf", "bm25"), session)
    assert "3 of 3 questions could not be ranked, such as: RuntimeError: no ranking today" in caplog.text


def test_a_fault_of_the_setup_is_not_taken_for_a_question_that_cannot_be_ranked(
    reader: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_ranking(monkeypatch, reader, BenchError("the server is gone"))
    with pytest.raises(BenchError, match="the server is gone"):
        likely_cells(waiting(reader, "tfidf", "bm25"), session)


def test_a_ranking_that_never_ends_is_given_up_at_the_time_limit(
    reader: str, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_ranking(monkeypatch, reader, None)
    session.timeout_s = 0.2
    assert not likely_cells(waiting(reader, "tfidf", "bm25"), session)
    assert "TimeLimitError: no ranking within 0.2 s" in caplog.text
