from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.sweep import command
from bench.conformance import assert_same
from bench.errors import BenchError, ConfigError
from bench.files.atomic import write_json
from bench.method.registry import load_method
from bench.results.index_store import IndexStore
from bench.run.cell import CellRequest, Setting
from bench.run.cell_folder import describe
from bench.run.runner import run_cells
from bench.schema import JsonValue
from bench.sweeps.cost import GroupCost, Timing, duration, measure, survey, with_timing
from bench.sweeps.grid import (
    GridCell,
    folders_below,
    from_flags,
    parse_grid,
    plan_experiment,
    plan_sweep,
    shared_runs,
)
from performance.scale import synthetic_records


def test_ranges_include_both_ends_and_lists_are_json_or_text() -> None:
    grid = parse_grid(["t_p=1:8", "t_c=0.3,0.5,0.98", "k=2:8:3", "order=rank,document", "on=true"])
    assert grid == {
        "t_p": [1, 2, 3, 4, 5, 6, 7, 8],
        "t_c": [0.3, 0.5, 0.98],
        "k": [2, 5, 8],
        "order": ["rank", "document"],
        "on": [True],
    }


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
        (["k=1:200", "b=1:200"], "has 40,000 points; at most 10,000"),
    ],
)
def test_a_grid_that_is_none_is_refused(axes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_grid(axes)


def test_cells_that_differ_in_replayed_options_only_share_a_run() -> None:
    base = CellRequest("bm25", "hotpotqa", limit=2)
    cells = plan_sweep(base, {"k": [1, 3], "b": [0.5, 0.75]})
    assert [point.name for point in cells] == ["k=1,b=0.5", "k=1,b=0.75", "k=3,b=0.5", "k=3,b=0.75"]
    assert [[point.name for point in group] for group in shared_runs(cells)] == [
        ["k=1,b=0.5", "k=3,b=0.5"],
        ["k=1,b=0.75", "k=3,b=0.75"],
    ]


def test_an_option_is_fixed_or_varied_and_checked_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="k: given with --set and with --grid"):
        plan_sweep(CellRequest("bm25", "hotpotqa", options={"k": 2}), {"k": [1]})
    with pytest.raises(ConfigError, match="Method 'bm25': k=0"):
        plan_sweep(CellRequest("bm25", "hotpotqa"), {"k": [1, 0]})


def rows(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (path / "records.jsonl").read_text("utf-8").splitlines()]
    for row in records:  # of the moment: another run may have forwarded its beginning already
        del row["wall_s"], row["tokens"]["computed"]
    return records


def run_grid(method: str, grid: dict[str, list[JsonValue]], limit: int, folder: Path) -> None:
    """Runs the grid in one sweep and point by point; records are equal but for the rounding of scores."""
    from bench.models.model_set import LoadedModels

    base = CellRequest(method, "hotpotqa", limit=limit)
    cells = plan_sweep(base, grid)
    indexes = IndexStore(folder / "indexes")
    for group in shared_runs(cells):
        places = [(point.cell, folder / "sweep" / point.name) for point in group]
        run_cells(places, indexes, lambda cell=group[0].cell: LoadedModels(cell.roles))  # type: ignore[misc]
    for point in cells:
        alone = folder / "alone" / point.name
        run_cells([(point.cell, alone)], indexes, lambda cell=point.cell: LoadedModels(cell.roles))  # type: ignore[misc]
        assert_same(rows(folder / "sweep" / point.name), rows(alone), point.name)


def test_a_sweep_over_k_equals_separate_runs(tmp_path: Path) -> None:
    run_grid("bm25", {"k": [1, 2, 5, 50]}, 4, tmp_path)


def test_a_sweep_over_stop_rules_equals_separate_runs(tmp_path: Path) -> None:
    run_grid("pecan", {"t_p": [1, 2, 4], "t_c": [0.05, 0.5, 0.9]}, 3, tmp_path)


def flags(methods: list[str], assignments: list[str] = [], axes: list[str] = []) -> Any:  # noqa: B006 - read only
    setting = Setting(limit=1)
    return from_flags(methods, ["hotpotqa"], ["tiny"], assignments, axes, setting)


def test_an_option_goes_to_every_method_that_has_it_or_to_the_one_named() -> None:
    experiment = flags(
        ["pecan", "bm25", "dragon"], ["order=rank", "bm25.order=document"], ["t_p=1:2", "k=1,3", "bm25.k=7"]
    )
    pecan, bm25, dragon = experiment.methods
    assert (pecan.options, pecan.grid) == ({}, {"t_p": [1, 2]})
    assert (bm25.options, bm25.grid) == ({"order": "document"}, {"k": [7]})
    assert (dragon.options, dragon.grid) == ({"order": "rank"}, {"k": [1, 3]})
    assert experiment.title == "pecan, bm25, dragon with tiny: t_p=1,2 k=7,1,3"
    assert (
        flags(["pecan"], [], ["t_p=1:8", "t_c=0.3,0.5,0.9"]).title
        == "pecan with tiny: t_p=1:8 t_c=0.3,0.5,0.9"
    )


@pytest.mark.parametrize(
    ("methods", "assignments", "axes", "message"),
    [
        (
            ["bm25", "dragon"],
            [],
            ["t_p=1"],
            "--grid t_p: none of the methods has this option. Their options: bm25:",
        ),
        (
            ["bm25", "dragon"],
            ["raptor.k=1"],
            [],
            "--set raptor.k: 'raptor' is none of the methods bm25, dragon",
        ),
        (["bm25", "bm25"], [], [], "--method bm25 is given twice"),
        (["bm25", "dragon"], ["k=3"], ["bm25.k=1"], "k: given with --set and with --grid"),
        (["bm52"], [], [], "Unknown method 'bm52'. Did you mean 'bm25'?"),
        (["bm25"], [], ["kk=1"], "Method 'bm25' has no option 'kk'. Did you mean 'k'?"),
        (
            ["bm25"],
            [],
            ["k=1,1.0"],
            "bm25 k=1.0 on hotpotqa with tiny is the same cell as bm25 k=1; give it once",
        ),
        (["bm25"], [], ["k=1:9999", "b=0.1,0.2"], "--grid has 19,998 points; at most 10,000"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_anything_runs(
    methods: list[str], assignments: list[str], axes: list[str], message: str
) -> None:
    with pytest.raises(BenchError) as error:
        plan_experiment(flags(methods, assignments, axes))
    assert message in str(error.value)


def test_methods_times_data_times_models_are_planned_and_never_share_a_run_wrongly() -> None:
    experiment = replace(
        flags(["bm25", "dragon"], [], ["k=1,3"]), datasets=("hotpotqa", "qasper"), models=("tiny", "tiny-s")
    )
    groups = plan_experiment(experiment)
    assert [len(group) for group in groups] == [2] * 8
    assert len({g.cell.identity.cell_id for group in groups for g in group}) == 16
    for group in groups:
        assert len({(g.cell.card.name, g.cell.reader.name, g.cell.request.method) for g in group}) == 1


# --- the command ----------------------------------------------------------------------------------


def sweep(*arguments: str | Path) -> Any:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


BM25 = ["--method", "bm25", "--dataset", "hotpotqa", "--limit", "6", "--grid", "k=1,3", "--no-track"]


def count_forwards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that bm25 was asked, as they come."""
    bm25 = load_method("bm25")
    asked: list[str] = []
    before = bm25.replay

    async def counting(self: Any, index: Any, question: Any, models: Any, configs: Any) -> Any:
        asked.append(question.text)
        return await before(self, index, question, models, configs)

    monkeypatch.setattr(bm25, "replay", counting)
    return asked


def test_a_dry_run_asks_the_probe_alone_and_the_sweep_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_forwards(monkeypatch)
    dry = sweep(*BM25, "--results", tmp_path, "--dry-run", "--probe", 2)
    assert dry.exit_code == 0, dry.output
    row = next(line for line in dry.output.splitlines() if line.startswith("bm25  "))
    assert row.split()[:9] == ["bm25", "hotpotqa", "(sample)", "tiny", "2", "0", "6", "3", "3"]
    assert "?" not in row  # FLOPs and time are known now
    assert "2 questions of each line were asked as a probe; nothing else was run" in dry.output
    assert len(asked) == 3  # one to load the model, two to time it
    kept = [len(path.read_text().splitlines()) for path in tmp_path.rglob("records.jsonl")]
    assert kept == [3, 3]
    assert not list(tmp_path.rglob("summary.json"))  # nothing passes for finished

    done = sweep(*BM25, "--results", tmp_path, "--probe", 1)
    assert done.exit_code == 0, done.output
    assert len(asked) == len(set(asked)) == 6  # no question twice
    assert "2 of 2 cells finished" in done.output and "     2/2 k=3 " in done.output

    again = sweep(*BM25, "--results", tmp_path)
    assert again.exit_code == 0 and len(asked) == 6
    assert next(line for line in again.output.splitlines() if line.startswith("bm25  ")).split()[4:9] == [
        "2", "2", "6", "0", "0",
    ]  # fmt: skip


def test_a_dry_run_runs_nothing_unless_a_probe_is_asked_for(tmp_path: Path) -> None:
    dry = sweep(*BM25, "--results", tmp_path, "--dry-run")
    assert dry.exit_code == 0 and "Nothing was run" in dry.output
    assert not list(tmp_path.rglob("*.jsonl"))


def test_probed_records_equal_those_of_a_run_without_a_probe(tmp_path: Path) -> None:
    assert sweep(*BM25, "--results", tmp_path / "probed", "--probe", 2).exit_code == 0
    assert sweep(*BM25, "--results", tmp_path / "plain", "--probe", 0).exit_code == 0
    cells = sorted(path.parent.name for path in (tmp_path / "plain").rglob("records.jsonl"))
    assert len(cells) == 2
    for cell in cells:
        assert_same(rows(tmp_path / "probed/cells" / cell), rows(tmp_path / "plain/cells" / cell), cell)


def test_a_file_is_swept_and_flags_beside_it_are_refused_or_go_before_it(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("name: two ks\nmethods: bm25\ndatasets: hotpotqa\nlimit: 6\ngrid: {k: [1, 3]}\n")
    result = sweep(path, "--limit", 2, "--dry-run", "--probe", 0, "--results", tmp_path, "--no-track")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("two ks: 2 cells\n")
    row = next(line for line in result.output.splitlines() if line.startswith("bm25  "))
    assert row.split() == ["bm25", "hotpotqa", "(sample)", "tiny", "2", "0", "2", "2", "2", "?", "?"]
    both = sweep(path, "--method", "bm25")
    assert "move --method, --dataset, --set and --grid into it" in str(both.exception)
    assert list(tmp_path.iterdir()) == [path]


def test_a_sweep_of_nothing_says_what_it_needs() -> None:
    assert "a sweep needs --method, or one YAML file" in str(sweep().exception)
    assert "a sweep needs --dataset" in str(sweep("--method", "bm25").exception)
    assert "a sweep needs a grid" in str(sweep("--method", "bm25", "--dataset", "qasper").exception)


@pytest.mark.parametrize("probe", [[], ["--probe", "0"]], ids=["probed", "not probed"])
def test_what_cannot_be_run_is_reported_and_the_rest_is_run(tmp_path: Path, probe: list[str]) -> None:
    arguments = ["--method", "bm25", "--dataset", "hotpotqa", "--no-track", *probe]
    out = tmp_path / "out"
    first = sweep(*arguments, "--limit", 1, "--grid", "b=0.5,0.75", "--results", tmp_path, "--out", out)
    assert first.exit_code == 0 and sorted(p.name for p in out.iterdir()) == ["b=0.5", "b=0.75"]
    arguments += ["--limit", "2", "--set", "k=2"]
    second = sweep(*arguments, "--grid", "b=0.5,0.8", "--results", tmp_path, "--out", out)
    assert "holds the records of another cell" in str(second.exception)
    assert "1 of 2 cells finished" in second.output and (out / "b=0.8" / "summary.json").is_file()
    row = next(line for line in second.output.splitlines() if line.startswith("bm25 k=2 b=0.5  "))
    assert row.split()[-1] == "?"


def test_a_probe_that_fails_says_why_although_nothing_is_run_after_it(tmp_path: Path) -> None:
    arguments = ["--method", "bm25", "--dataset", "hotpotqa", "--no-track"]
    arguments += ["--results", str(tmp_path), "--out", str(tmp_path / "out"), "--grid", "b=0.5,0.75"]
    assert sweep(*arguments, "--limit", 1).exit_code == 0
    dry = sweep(*arguments, "--limit", 2, "--set", "k=2", "--dry-run", "--probe", 3)
    assert dry.exit_code == 0 and dry.output.count("holds the records of another cell") == 2
    assert "?: its questions could not be asked" in dry.output


def two_entries(folder: Path, orders: str) -> Path:
    path = folder / "sweep.yaml"
    entries = [
        f"  - {{method: bm25, set: {{order: {order}}}, grid: {{k: [1, 3]}}}}" for order in orders.split()
    ]
    path.write_text("\n".join(["methods:", *entries, "datasets: hotpotqa", "limit: 1"]))
    return path


def test_entries_that_differ_in_fixed_options_get_folders_of_their_own(tmp_path: Path) -> None:
    arguments = ["--no-track", "--probe", "0", "--results", tmp_path, "--out", tmp_path / "out"]
    result = sweep(two_entries(tmp_path, "rank document"), *arguments)
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "order=document,k=1", "order=document,k=3", "order=rank,k=1", "order=rank,k=3",
    ]  # fmt: skip
    orders = {
        path.parent.name: json.loads(path.read_text())["config"]["order"]
        for path in (tmp_path / "out").rglob("cell.json")
    }
    assert all(name.startswith(f"order={order},") for name, order in orders.items()) and len(orders) == 4


def test_cells_that_no_name_tells_apart_are_refused(tmp_path: Path) -> None:
    one, other = plan_sweep(CellRequest("bm25", "hotpotqa", limit=1), {"k": [1, 3]})
    alike = [[replace(one, point={"k": "a/b"}), replace(other, point={"k": "a_b"})]]
    with pytest.raises(ConfigError, match="bm25 k=a/b on .* and bm25 k=a_b on .* both lie in .*out/k=a_b"):
        folders_below(tmp_path / "out", alike)


def test_durations_read_as_people_say_them() -> None:
    assert [duration(s) for s in (None, 0.4, 89, 91, 7000, 7500)] == [
        "?",
        "0 s",
        "89 s",
        "2 min",
        "117 min",
        "2 h 5 min",
    ]


def test_an_index_that_groups_share_is_counted_once_and_learning_methods_are_not_estimated(
    tmp_path: Path,
) -> None:
    groups = plan_experiment(flags(["raptor"], [], ["k=1,3", "mode=ct,tt"]))
    costs = survey(groups, lambda point: point.cell.folder(tmp_path), IndexStore(tmp_path / "indexes"))
    assert [(cost.to_ask, cost.to_index) for cost in costs] == [(1, 1), (1, 0)]
    assert costs[0].flops is None
    known = replace(costs[0], query_flops=3e12, index_flops=5e12)
    assert known.flops == 8e12
    assert with_timing(known, Timing(query_s=3.0, index_s=None)).seconds == 3.0 + 5.0  # by its FLOPs
    assert with_timing(known, Timing(query_s=3.0, index_s=1.0)).seconds == 4.0
    learner = replace(costs[0].cells[0].cell, training=object())  # type: ignore[arg-type]  # any plan
    learning = replace(known, cells=(replace(costs[0].cells[0], cell=learner),))
    assert (learning.flops, with_timing(learning, Timing(1.0, 1.0)).seconds) == (None, None)

    def never(cost: GroupCost, count: int) -> Any:
        raise AssertionError("asked")

    assert measure(learning, never, 3, warm=False) is None


def test_records_of_other_cells_and_questions_count_for_nothing_in_the_cost(tmp_path: Path) -> None:
    """A sweep whose --out holds another cell once said that nothing was left to ask."""
    (point,) = plan_sweep(CellRequest("bm25", "hotpotqa", limit=2), {"k": [3]})
    folder, indexes = tmp_path / "cell", IndexStore(tmp_path / "indexes")
    records = list(synthetic_records(point.cell.data.examples))
    records[1] = records[1].model_copy(update={"error": "lost"})
    foreign = records[0].model_copy(update={"example_id": "of another data set"})
    folder.mkdir()
    lines = [record.to_line() for record in (records[1], records[0], foreign, records[0])]
    (folder / "records.jsonl").write_text("".join(lines) + lines[0][:50])

    def to_ask(retry_failed: bool = False) -> tuple[int, float | None]:
        (cost,) = survey([[point]], lambda _: folder, indexes, retry_failed)
        return cost.to_ask, cost.query_flops

    both = (records[0].flops.query + records[1].flops.query) / 2
    assert to_ask() == (0, both)
    assert to_ask(retry_failed=True) == (1, records[0].flops.query)
    write_json(folder / "cell.json", describe(point.cell).to_json())
    assert to_ask() == (0, both)
    write_json(folder / "cell.json", {**describe(point.cell).to_json(), "cell_id": "another"})
    assert to_ask() == (2, None)


def test_what_a_question_costs_is_estimated_by_the_cell_that_reads_most(tmp_path: Path) -> None:
    """A question is asked once for all cells, so that the largest k pays for the others."""
    group = plan_sweep(CellRequest("bm25", "hotpotqa", limit=2), {"k": [1, 3, 5]})
    (record, *_) = synthetic_records(group[0].cell.data.examples)
    for point, flops in zip(group, (10, 50, 30), strict=True):
        line = record.model_copy(update={"flops": record.flops.model_copy(update={"query": flops})}).to_line()
        (tmp_path / point.folder).mkdir()
        (tmp_path / point.folder / "records.jsonl").write_text(line)
    (cost,) = survey([group], lambda point: tmp_path / point.folder, IndexStore(tmp_path / "indexes"))
    assert (cost.to_ask, cost.query_flops) == (1, 50)


def test_as_many_cells_as_are_allowed_are_planned_and_one_more_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.sweeps.grid.MAX_CELLS", 4)
    assert len(shared_runs(plan_sweep(CellRequest("bm25", "hotpotqa", limit=1), {"k": [1, 2, 3, 4]}))) == 1
    groups = plan_experiment(flags(["bm25", "dragon"], [], ["k=1,2"]))
    assert sum(map(len, groups)) == 4
    with pytest.raises(ConfigError, match="6 cells; at most 4"):
        plan_experiment(flags(["bm25", "dragon"], [], ["k=1,2,3"]))


def test_an_option_value_with_a_path_in_it_stays_one_folder() -> None:
    (planned,) = plan_sweep(CellRequest("bm25", "hotpotqa", "tiny", limit=1), {"k": [3]})
    assert planned.folder == "k=3"
    assert GridCell({"embedder": "../../tmp/x"}, planned.cell).folder == "embedder=.._.._tmp_x"
