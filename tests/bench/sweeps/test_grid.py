from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.show import command as show
from bench.cli.sweep import command
from bench.conformance import assert_same
from bench.errors import BenchError, ConfigError
from bench.files.atomic import write_json
from bench.method.registry import load_method
from bench.models.model_set import LoadedModels
from bench.results.index_store import IndexStore
from bench.run.cell import CellRequest
from bench.run.cell_folder import describe
from bench.run.session import Session
from bench.sweeps.cost import survey
from bench.sweeps.grid import from_flags, parse_grid, plan_experiment, plan_sweep
from performance.scale import synthetic_records
from tests.bench.faults.runs import records_of
from tests.stand_ins import run_cells


def test_ranges_include_both_ends_and_lists_are_json_or_text() -> None:
    grid = parse_grid(["t_p=1:4", "t_c=0.3,0.98", "k=2:8:3", "order=rank,document", "on=true"])
    numbers = {"t_p": [1, 2, 3, 4], "t_c": [0.3, 0.98], "k": [2, 5, 8]}
    assert grid == {**numbers, "order": ["rank", "document"], "on": [True]}


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["k"], "expected option=values"),
        (["k="], "expected option=values"),
        (["k=1,,2"], "an empty value"),
        (["k=5:1"], "5:1 is empty"),
        (["k=1:3:0"], "is empty"),
        (["k=1,2,1"], "a value is given twice"),
        (["k=1", "k=2"], "given twice"),
    ],
)
def test_a_grid_that_is_none_is_refused(axes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_grid(axes)


def test_a_point_is_named_as_one_types_it() -> None:
    points = plan_sweep(CellRequest("pecan", "hotpotqa", limit=1), {"t_c": [None, 0.5]})
    assert [point.name for point in points] == ["t_c=null", "t_c=0.5"]


def test_cells_that_differ_in_replayed_options_only_share_a_run() -> None:
    groups = plan_experiment(flags(["bm25"], [], ["k=1,3", "b=0.5,0.75"]))
    names = [[point.name for point in group] for group in groups]
    assert names == [["k=1,b=0.5", "k=3,b=0.5"], ["k=1,b=0.75", "k=3,b=0.75"]]


def test_an_option_is_fixed_or_varied_and_checked_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="k: fixed and varied"):
        plan_sweep(CellRequest("bm25", "hotpotqa", options={"k": 2}), {"k": [1]})
    with pytest.raises(ConfigError, match="Method 'bm25': k=0"):
        plan_sweep(CellRequest("bm25", "hotpotqa"), {"k": [1, 0]})
    for option, method in (("k", "bm25"), ("n_nodes", "pecan")):
        with pytest.raises(ConfigError, match=f"{option}=auto:METHOD is for bench run and table"):
            plan_sweep(CellRequest(method, "hotpotqa"), {option: ["auto:pecan"]})


def rows(path: Path) -> list[dict[str, Any]]:
    records = records_of(path)
    for row in records:  # of the moment: another run may have forwarded its beginning already
        del row["tokens"]["computed"]
    return records


@pytest.fixture(scope="module")
def stop_rules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Cells of PECAN run together in ``sweep`` and one by one in ``alone``; and their names."""
    folder = tmp_path_factory.mktemp("results")
    (points,) = plan_experiment(flags(["pecan"], [], ["t_p=1,4", "t_c=0.05,0.9"], limit=2))
    indexes = IndexStore(folder / "indexes")
    alone = [(folder / "alone", [point]) for point in points]
    for place, group in [(folder / "sweep", points), *alone]:
        places = [(point.cell, place / point.name) for point in group]
        run_cells(places, indexes, lambda roles=group[0].cell.roles: LoadedModels(roles))
    return folder, [point.name for point in points]


def test_a_sweep_over_stop_rules_equals_separate_runs(stop_rules: tuple[Path, list[str]]) -> None:
    """But for the rounding of scores."""
    folder, names = stop_rules
    for name in names:
        assert_same(rows(folder / "sweep" / name), rows(folder / "alone" / name), name)


def test_a_record_of_a_search_holds_its_path_and_its_price(stop_rules: tuple[Path, list[str]]) -> None:
    folder, names = stop_rules
    for record in (record for name in names for record in records_of(folder / "alone" / name)):
        steps = record["trace"]["steps"]
        assert record["error"] is None and record["trace"]["stop"] in ("patience", "exhausted", "window")
        assert sum(len(step["nodes"]) for step in steps) == len(record["context"])
        assert all(0 <= step["p_yes"] <= 1 for step in steps)
        assert record["flops"]["query_by_model"]["tiny"]["probe"]["calls"] == len(steps)
        assert record["tokens"]["forwarded"] > record["tokens"]["prompt"]
    shown = CliRunner().invoke(show, [str(folder / "alone" / names[0]), "1"], catch_exceptions=False).output
    assert "stop: " in shown and "p_yes" in shown and "similarity" in shown


def flags(methods: list[str], assignments: Any = (), axes: Any = (), limit: int = 1) -> Any:
    setting = CellRequest(limit=limit)
    return from_flags(setting, methods, ["hotpotqa"], ["tiny"], assignments, axes)


def test_an_option_goes_to_every_method_that_has_it_or_to_the_one_named() -> None:
    fixed, axes = ["order=rank", "bm25.order=document"], ["t_p=1:2", "k=1,3", "bm25.k=7"]
    experiment = flags(["pecan:t_c=0.5", "bm25:b=0.5,order=rank", "dragon"], fixed, axes)
    pecan, bm25, dragon = experiment.methods
    assert (pecan.options, pecan.grid) == ({"t_c": 0.5}, {"t_p": [1, 2]})
    assert (bm25.options, bm25.grid) == ({"b": 0.5, "order": "document"}, {"k": [7]})
    assert (dragon.options, dragon.grid) == ({"order": "rank"}, {"k": [1, 3]})
    assert experiment.title == "pecan, bm25, dragon with tiny: t_p=1,2 k=7,1,3"
    titled = flags(["pecan"], [], ["t_p=1:8", "t_c=0.3,0.5,0.9"]).title
    assert titled == "pecan with tiny: t_p=1:8 t_c=0.3,0.5,0.9"


@pytest.mark.parametrize(
    ("methods", "assignments", "axes", "message"),
    [
        (["bm25", "dragon"], [], ["t_p=1"], "axis t_p: none of the methods has this option"),
        (["bm25", "dragon"], ["raptor.k=1"], [], "--set raptor.k: 'raptor' is none of the methods"),
        (["bm25", "bm25:k=3"], [], [], "--method bm25 is given twice"),
        (["bm25", "dragon"], ["k=3"], ["bm25.k=1"], "k: fixed and varied"),
        (["bm25"], [], [], "a sweep needs a grid, such as: t_p=1:8"),
        (["bm52"], [], ["k=1"], "Unknown method 'bm52'. Did you mean 'bm25'?"),
        (["bm25"], [], ["kk=1"], "Method 'bm25' has no option 'kk'. Did you mean 'k'?"),
        (["bm25"], [], ["k=1,1.0"], "bm25 k=1.0 on hotpotqa with tiny is the same cell as bm25 k=1"),
        (["bm25"], [], ["k=1:9999", "b=0.1,0.2"], "The sweep has 19,998 cells; at most 10,000"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_anything_runs(
    methods: list[str], assignments: list[str], axes: list[str], message: str
) -> None:
    with pytest.raises(BenchError) as error:
        plan_experiment(flags(methods, assignments, axes))
    assert message in str(error.value)


def test_methods_times_data_times_models_are_planned_and_never_share_a_run_wrongly() -> None:
    several: Any = {"datasets": ("hotpotqa", "qasper"), "models": ("tiny", "tiny-s")}
    groups = plan_experiment(replace(flags(["bm25", "dragon"], [], ["k=1,3"]), **several))
    assert [len(group) for group in groups] == [2] * 8
    assert len({g.cell.identity.cell_id for group in groups for g in group}) == 16
    for group in groups:
        assert len({(g.cell.card.name, g.cell.reader.name, g.cell.request.method) for g in group}) == 1


# --- the command ----------------------------------------------------------------------------------


def sweep(*arguments: str | Path) -> Any:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


BM25 = ["--method", "bm25", "--dataset", "hotpotqa", "--limit", "6", "k=1,3", "--no-track"]


def left(result: Any, method: str = "bm25") -> list[str]:
    """What a sweep says of a group: cells, finished, to ask, to index, TFLOPs left."""
    rows = [line.split() for line in result.output.splitlines() if line.startswith(method)]
    return next(row[-5:] for row in rows if row[-5:][0].isdigit())


def test_a_sweep_asks_a_question_once_a_dry_run_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25, asked = load_method("bm25"), []
    replay = bm25.replay

    async def counting(self: Any, index: Any, question: Any, models: Any, configs: Any) -> Any:
        asked.append(question.text)
        return await replay(self, index, question, models, configs)

    monkeypatch.setattr(bm25, "replay", counting)
    dry = sweep(*BM25, "--results", tmp_path, "--dry-run")
    assert dry.exit_code == 0 and "Nothing was run" in dry.output
    assert left(dry) == ["2", "0", "6", "6", "?"]
    assert not asked and not list(tmp_path.rglob("*.jsonl"))
    done = sweep(*BM25, "--results", tmp_path)
    assert done.exit_code == 0, done.output
    assert len(asked) == len(set(asked)) == 6
    assert "2 of 2 cells finished" in done.output and "     2/2 k=3 " in done.output
    again = sweep(*BM25, "--results", tmp_path)
    assert again.exit_code == 0 and len(asked) == 6
    assert left(again) == ["2", "2", "0", "0", "0"]


def test_what_cannot_be_run_is_reported_and_the_rest_is_run(tmp_path: Path) -> None:
    (bad, _) = (point.cell for point in plan_sweep(CellRequest("bm25", "hotpotqa", limit=1), {"b": [0.5, 1]}))
    write_json(bad.folder(tmp_path) / "cell.json", {**describe(bad).to_json(), "cell_id": "another"})
    result = sweep(*BM25[:4], "--limit", "1", "--no-track", "b=0.5,1", "--results", tmp_path)
    assert "holds the records of another cell" in str(result.exception)
    assert "1 of 2 cells finished" in result.output


def test_an_index_that_groups_share_is_counted_once(tmp_path: Path) -> None:
    groups = plan_experiment(flags(["raptor"], [], ["k=1,3", "mode=ct,tt"]))
    costs = survey(groups, Session(tmp_path, compute=False))
    assert [(cost.to_ask, cost.to_index, cost.flops) for cost in costs] == [(1, 1, None), (1, 0, None)]


def test_records_of_other_cells_and_questions_count_for_nothing_in_the_cost(tmp_path: Path) -> None:
    """A folder that held another cell's records once said that nothing was left to ask."""
    (point,) = plan_sweep(CellRequest("bm25", "hotpotqa", limit=2), {"k": [3]})
    folder = point.cell.folder(tmp_path)
    records = list(synthetic_records(point.cell.data.examples))
    records[1] = records[1].model_copy(update={"error": "lost"})
    foreign = records[0].model_copy(update={"example_id": "of another data set"})
    folder.mkdir(parents=True)
    lines = [record.to_line() for record in (records[1], records[0], foreign, records[0])]
    (folder / "records.jsonl").write_text("".join(lines) + lines[0][:50])

    def to_ask(retry_failed: bool = False) -> tuple[int, float | None]:
        (cost,) = survey([[point]], Session(tmp_path, retry_failed=retry_failed, compute=False))
        return cost.to_ask, cost.flops

    index = records[0].flops.index
    assert to_ask() == (0, 0.0 + index)
    assert to_ask(retry_failed=True) == (1, records[0].flops.query + float(index))
    write_json(folder / "cell.json", {**describe(point.cell).to_json(), "cell_id": "another"})
    assert to_ask() == (2, None)


def test_what_a_question_costs_is_estimated_by_the_cell_that_reads_most(tmp_path: Path) -> None:
    """A question is asked once for all cells, so that the largest k pays for the others."""
    group = plan_sweep(CellRequest("bm25", "hotpotqa", limit=2), {"k": [1, 3, 5]})
    (record, *_) = synthetic_records(group[0].cell.data.examples)
    for point, flops in zip(group, (10, 50, 30), strict=True):
        costs = record.flops.model_copy(update={"query": flops, "index": 0})
        folder = point.cell.folder(tmp_path)
        folder.mkdir(parents=True)
        (folder / "records.jsonl").write_text(record.model_copy(update={"flops": costs}).to_line())
    (cost,) = survey([group], Session(tmp_path, compute=False))
    assert (cost.to_ask, cost.flops) == (1, 50)


def test_as_many_cells_as_allowed_are_planned_one_more_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.sweeps.grid.MAX_CELLS", 4)
    assert sum(map(len, plan_experiment(flags(["bm25", "dragon"], [], ["k=1,2"])))) == 4
    with pytest.raises(ConfigError, match="6 cells; at most 4"):
        plan_experiment(flags(["bm25", "dragon"], [], ["k=1,2,3"]))
