from __future__ import annotations

import base64
import itertools
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from bench.cli.main import command as bench
from bench.files.atomic import write_json
from bench.files.hashing import stable_hash
from bench.results.finished import write_summary
from bench.results.records import CELL_FILE, RECORDS_FILE, SUMMARY_FILE, ContextRecord, Record, TokenCounts
from bench.tracking import hooks as hooks_module
from bench.tracking.content import DISPLAY_FILE, begun_cells, content_digest, note_sweep, sweep_digest
from bench.tracking.hooks import MlflowHooks
from bench.tracking.mirror import Mirror
from bench.tracking.store import choose_store, is_shown, local_store, public_uri, scrub
from bench.tracking.sync import StoreError, main as sync_command, sync
from tests import cells
from tests.servers import free_port

DEFAULTS = {"k": 5, "order": "rank", "chunk_tokens": None, "prompt": "pecan", "k1": 1.5}
LONG = "Ilse, and six other people with her"
SAID = {0: "Nobody", 0.25: LONG, 0.5: "Ilse, they say", 0.4: "Ilse did it alone", 1: "Ilse"}
"""F1 -> prediction."""


def record(number: int, f1: float, *, failed: bool = False) -> Record:
    return cells.record(
        number,
        document_ids=[f"d{number // 3}"],
        question=f"Who crossed the bridge on day {number}?",
        answers=["Ilse Brandt", "Ilse"],
        prediction=None if failed else SAID[f1],
        scores={"rouge_l": f1, "f1": f1},
        context=[ContextRecord(document=0, title="The bridge", start=0, end=40, score=2.5)],
        tokens=TokenCounts(prompt=400, completion=5, forwarded=405),
        flops=cells.flops(3 * 10**12),
        truncated=number == 0,
        flags=["empty_document"] if number == 1 else [],
        error="RuntimeError: out of memory" if failed else None,
    )


def finish(folder: Path, records: list[Record]) -> None:
    """Write the records and the summary that the runner writes."""
    (folder / RECORDS_FILE).write_text("".join(r.to_line() for r in records), encoding="utf-8")
    write_summary(folder, records, ["f1", "rouge_l"], "")


def make_cell(results: Path, *, dataset: str = "qasper", n: int = 6, failed: int = 0, **options: Any) -> Path:
    """A finished cell of bm25 as the runner leaves it."""
    config = {**DEFAULTS, **options}
    about = cells.description(
        cell_id=stable_hash([dataset, n, config]),
        config=config,
        dataset=dataset,
        data_label=f"{dataset} (sample)",
        n_examples=n,
        non_defaults=sorted(name for name, value in options.items() if value != DEFAULTS[name]),
        replayed=["k"],
        metrics=["f1", "rouge_l"],
        created_at="2026-01-02T03:04:05+00:00",
        versions={"torch": "2.13.0"},
        platform="Linux x86_64",
        git_commit="0123456789ab",
    )
    folder = results / "cells" / f"bm25--{dataset}--{about.cell_id}"
    folder.mkdir(parents=True)
    write_json(folder / CELL_FILE, about.to_json())
    finish(folder, [record(i, tuple(SAID)[i % 5], failed=i < failed) for i in range(n)])
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder whose store is made once; every test adds cells of its own data set."""
    return tmp_path_factory.mktemp("results")


def show(results: Path, *cells: Path, uri: str | None = None, sweep: str | None = None) -> list[str]:
    """What could not be shown of cells that the hooks of a session noted."""
    for cell in cells if sweep else ():
        note_sweep(cell, sweep)
    return list(sync(results, cells, uri=uri or local_store(results)))


def client(results: Path) -> Any:
    from mlflow import MlflowClient

    # MLflow keeps a database open, also one that was deleted: a name of its own for each file.
    inode = (results / "mlflow.db").stat().st_ino
    alias = results / f"read-{inode}.db"
    if not alias.exists():
        alias.hardlink_to(results / "mlflow.db")
    return MlflowClient(f"sqlite:///{alias}")


def runs_of(results: Path, dataset: str) -> list[Any]:
    mlflow_client = client(results)
    experiment = mlflow_client.get_experiment_by_name(f"longdoc-bench/{dataset}")
    return list(mlflow_client.search_runs([experiment.experiment_id]))


def view_of(results: Path, dataset: str, name: str) -> dict[str, Any]:
    """A saved view of the experiment, which the UI opens."""
    experiment = client(results).get_experiment_by_name(f"longdoc-bench/{dataset}")
    state = json.loads(experiment.tags[f"mlflow.sharedViewState.{name}"])["state"]
    return dict(json.loads(zlib.decompress(base64.b64decode(state.removeprefix("deflate;")))))


def table_of(run: Any) -> dict[str, Any]:
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    return dict(json.loads((folder / "questions.json").read_text()))


def test_a_cell_is_one_run_with_parameters_metrics_table_and_environment(results: Path) -> None:
    cell = make_cell(results, k=7)
    assert show(results, cell) == []
    (run,) = runs_of(results, "qasper")
    summary = json.loads((cell / SUMMARY_FILE).read_text())
    assert run.info.run_name == "bm25 k=7 · qasper (sample) · tiny"
    assert run.info.status == "FINISHED"
    assert run.info.start_time == 1767323045000  # created_at, not the time of mirroring
    params = {"method": "bm25", "data": "qasper (sample)", "config.k": "7", "config.chunk_tokens": "none"}
    assert {**params, "geometry.window": "2048", "model": "tiny"}.items() <= run.data.params.items()
    for bound in ("mean", "low", "high"):
        name = "f1" if bound == "mean" else f"f1_{bound}"
        assert run.data.metrics[name] == pytest.approx(summary["metrics"]["f1"][bound], rel=1e-5)
    counts = {"n": 6, "n_truncated": 1, "flags.empty_document": 1, "query_tflops": 3.0, "prompt_tokens": 400}
    assert counts.items() <= run.data.metrics.items()
    tags = {"mlflow.source.git.commit": "0123456789ab", "env.torch": "2.13.0", "env.platform": "Linux x86_64"}
    assert tags.items() <= run.data.tags.items()
    table = table_of(run)
    assert table["columns"][:5] == ["question", "prediction", "answers", "f1", "rouge_l"]
    assert len(table["data"]) == 6
    question = "Who crossed the bridge on day 2?"
    assert table["data"][2][:4] == [question, "Ilse, they say", "Ilse Brandt | Ilse", 0.5]
    (logged,) = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert logged == {"path": "questions.json", "type": "table"}
    artifacts = {a.path for a in client(results).list_artifacts(run.info.run_id)}
    assert artifacts == {"cell.json", "summary.json", "questions.json"}
    assert run.info.artifact_uri.startswith((results / "mlflow-artifacts" / "qasper").as_uri())
    assert view_of(results, "qasper", "bench")["selectedColumns"][:2] == ["metrics.`f1`", "metrics.`f1_low`"]
    columns = {column[9:-1] for column in view_of(results, "qasper", "bench")["selectedColumns"]}
    assert columns <= run.data.metrics.keys()  # none stays empty


def test_a_cell_that_failed_is_a_failed_run_and_says_why_in_the_table(results: Path) -> None:
    show(results, make_cell(results, dataset="failing", n=3, failed=3))
    show(results, make_cell(results, dataset="failing", n=4, failed=1))
    by_n = {run.data.metrics["n"]: run for run in runs_of(results, "failing")}
    assert (by_n[3].info.status, by_n[4].info.status) == ("FAILED", "FINISHED")
    assert by_n[4].data.metrics["errors.RuntimeError"] == 1
    first = dict(zip(table_of(by_n[4])["columns"], table_of(by_n[4])["data"][0], strict=True))
    assert first["prediction"] == "FAILED: RuntimeError: out of memory"


def test_an_unfinished_cell_is_a_running_run_with_the_metrics_so_far(results: Path) -> None:
    cell = make_cell(results, dataset="begun", n=6)
    whole = [record(i, 0.5) for i in range(6)]
    (cell / RECORDS_FILE).write_text(record(0, 0).to_line() + record(1, 1).to_line(), encoding="utf-8")
    (cell / SUMMARY_FILE).unlink()
    assert show(results, cell) == []
    (begun,) = runs_of(results, "begun")
    assert (begun.info.status, begun.data.metrics["f1"]) == ("RUNNING", 0.5)
    (cell / RECORDS_FILE).write_text("".join(r.to_line() for r in [record(0, 1.0), *whole[1:]]))
    show(results, cell)
    (later,) = runs_of(results, "begun")
    assert later.data.metrics["f1"] == pytest.approx(3.5 / 6)
    finish(cell, whole)
    show(results, cell)
    (finished,) = runs_of(results, "begun")
    assert (finished.info.status, finished.data.metrics["f1"]) == ("FINISHED", 0.5)


def test_names_and_values_that_mlflow_refuses_are_made_legal(results: Path) -> None:
    cell = make_cell(results, dataset="odd")
    content = json.loads((cell / CELL_FILE).read_text())
    content["config"] = {"a(b)=c?": "x" * 9_000, "surrogate": "\ud800", "nested": {"list": [1, 2]}}
    content["examples_listed"] = list(range(5_000))
    (cell / CELL_FILE).write_text(json.dumps(content))
    assert show(results, cell) == []
    (run,) = runs_of(results, "odd")
    assert len(run.data.params["config.a_b__c_"]) == 500
    assert run.data.params["config.a_b__c_"].endswith("…")
    assert run.data.params["config.surrogate"] == "?"
    assert run.data.params["config.nested.list"] == "[1, 2]"
    assert "examples_listed" not in run.data.params


def test_mirroring_again_changes_and_starts_nothing(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(results, dataset="again")
    show(results, cell)
    (before,) = runs_of(results, "again")
    assert show(results, cell) == []
    (after,) = runs_of(results, "again")
    assert after.to_dictionary() == before.to_dictionary()
    monkeypatch.setattr(subprocess, "Popen", None)
    run_hooks(results, [cell])


def test_a_changed_cell_is_written_again_and_keeps_the_users_notes(results: Path) -> None:
    cell = make_cell(results, dataset="changing")
    show(results, cell)
    (first,) = runs_of(results, "changing")
    client(results).set_tag(first.info.run_id, "verdict", "keep this one")
    finish(cell, [record(i, 0.25) for i in range(6)])  # lower: not merely the largest value is kept
    assert show(results, cell) == []
    (run,) = runs_of(results, "changing")
    assert run.data.metrics["f1"] == 0.25
    assert [row[3] for row in table_of(run)["data"]] == [0.25] * 6
    assert run.data.tags["verdict"] == "keep this one"


@pytest.mark.parametrize("how", ["cut_off", "deleted"])
def test_a_run_that_was_cut_off_or_deleted_in_the_ui_is_written_again(results: Path, how: str) -> None:
    cell = make_cell(results, dataset=how, n=2)
    show(results, cell)
    (before,) = runs_of(results, how)
    if how == "cut_off":
        client(results).delete_tag(before.info.run_id, "bench.content")  # the last thing that is written
    else:
        client(results).delete_run(before.info.run_id)
    assert not is_shown(local_store(results), content_digest(cell))
    assert show(results, cell) == []
    (run,) = runs_of(results, how)
    assert run.info.run_id != before.info.run_id
    assert is_shown(local_store(results), content_digest(cell))


def in_forks(work: Callable[[], object], *, n: int) -> list[int | None]:
    """How as many children end that do the work at the same time."""
    children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(n)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


def test_a_store_whose_creation_was_cut_off_is_created_whole_the_next_time(tmp_path: Path) -> None:
    from alembic import command
    from sqlalchemy import text

    upgrade = command.upgrade

    def stop_on_the_way(config: Any, to: str) -> None:
        """Change the tables without the note that they are changed, and die."""
        connection = config.attributes["connection"]
        upgrade(config, "+1")
        noted = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        upgrade(config, "+12")
        connection.execute(text("UPDATE alembic_version SET version_num = :noted"), {"noted": noted})
        connection.commit()
        os._exit(9)

    def cut_off() -> None:
        command.upgrade = stop_on_the_way
        Mirror(local_store(tmp_path), tmp_path)

    assert in_forks(cut_off, n=1) == [9]
    assert show(tmp_path, make_cell(tmp_path)) == []
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


def test_a_removed_cell_is_on_no_curve_and_an_empty_sweep_leaves_the_store(results: Path) -> None:
    kept = [make_cell(results, dataset="shrinking", k=k) for k in (1, 2, 3)]
    others = [make_cell(results, dataset="shrinking", k=k, order="document") for k in (1, 2)]
    show(results, *kept, *others, sweep="shrinking over k")

    def rm(*cells: Path) -> None:
        named = [str(cell) for cell in cells]
        done = CliRunner().invoke(bench, ["rm", *named, "--results", str(results), "--yes"])
        assert done.exit_code == 0 and "warning" not in done.output, done.output

    rm(kept[1], *others)
    (curve,) = [r for r in runs_of(results, "shrinking") if "bench.curve" in r.data.tags]
    for metric in ("f1", "query_tflops"):
        history = client(results).get_metric_history(curve.info.run_id, metric)
        assert sorted(m.step for m in history) == [1, 3]
    rm(kept[0], kept[2])
    assert list(runs_of(results, "shrinking")) == []


def test_two_syncs_at_once_write_each_cell_once(results: Path, tmp_path: Path) -> None:
    show(results, make_cell(results, dataset="first"))
    shutil.copy(results / "mlflow.db", tmp_path)  # of another name: no connection is open that a fork shares
    cells = [make_cell(tmp_path, dataset="together", k=k) for k in (1, 2)]

    def work() -> None:
        assert show(tmp_path, *cells) == []

    assert in_forks(work, n=2) == [0, 0]
    assert len(runs_of(tmp_path, "together")) == len(cells)


def test_a_sync_that_waited_shows_what_is_by_then(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that a killed run had left behind put a half-done cell in place of the finished one."""
    cell = make_cell(results, dataset="waiting", n=2)
    (cell / SUMMARY_FILE).rename(cell / "summary.later")
    lock = Mirror._lock

    def finished_meanwhile(mirror: Mirror) -> Any:
        held = lock(mirror)
        if (cell / "summary.later").exists():
            (cell / "summary.later").rename(cell / SUMMARY_FILE)
        return held

    mirror = Mirror(local_store(results), results)
    monkeypatch.setattr(Mirror, "_lock", finished_meanwhile)
    mirror.show(cell)
    assert [run.info.status for run in runs_of(results, "waiting")] == ["FINISHED"]


def test_a_sweep_is_a_parent_run_with_a_curve_whose_metrics_have_the_option_as_step(results: Path) -> None:
    options = itertools.product(("rank", "document"), (1, 2, 3))
    cells = [make_cell(results, dataset="curve", k=k, order=order) for order, k in options]
    show(results, *cells[:4], sweep="bm25 over k")
    show(results, *cells, sweep="bm25 over k")
    finish(cells[1], [record(i, 1.0) for i in range(6)])
    show(results, *cells)  # no word of the sweep this time
    runs = runs_of(results, "curve")
    (parent,) = [r for r in runs if "bench.sweep" in r.data.tags]
    assert {r.data.tags["mlflow.parentRunId"] for r in runs if r is not parent} == {parent.info.run_id}
    curves = {r.info.run_name: r for r in runs if "bench.curve" in r.data.tags}
    assert curves.keys() == {"bm25 over k", "order=document bm25 over k"}
    for run in curves.values():
        assert run.data.metrics.keys() == {"f1", "rouge_l", "query_tflops"}
        points = client(results).get_metric_history(run.info.run_id, "query_tflops")
        assert sorted(m.step for m in points) == [1, 2, 3]
    history = client(results).get_metric_history(curves["bm25 over k"].info.run_id, "f1")
    changed = {m.step: m.value for m in history}
    assert sorted(changed) == [1, 2, 3] and changed[1] == changed[3] < changed[2] == 1.0
    view = view_of(results, "curve", "curves")
    assert view["orderByKey"] == "metrics.`f1`"  # by time, MLflow folds the curves below their parent
    shown = client(results).search_runs([parent.info.experiment_id], view["searchFilter"])
    assert {r.info.run_id for r in shown} == {r.info.run_id for r in curves.values()}


def test_a_sweep_is_shown_once_all_its_data_sets_are(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, seen = [make_cell(results, dataset=name, k=1) for name in ("one", "other")], list[bool]()
    note = lambda *_: seen.append(is_shown(local_store(results), sweep_digest("both", cells)))  # noqa: E731
    monkeypatch.setattr(Mirror, "_draw", note)
    assert show(results, *cells, sweep="both") == [] and note() is None
    assert seen == [False, False, True]  # cut off between the two, it stayed on the first alone


def test_a_cell_of_two_sweeps_is_on_both_curves_and_below_the_newer(results: Path, tmp_path: Path) -> None:
    cells = [make_cell(results, dataset="moving", k=k) for k in (1, 2)]
    for name in ("first", "second"):
        show(results, *cells, sweep=name)
    runs = runs_of(results, "moving")
    parents = {r.info.run_name: r.info.run_id for r in runs if "bench.sweep" in r.data.tags}
    children = [r for r in runs if "bench.cell_id" in r.data.tags]
    assert {r.data.tags["mlflow.parentRunId"] for r in children} == {parents["second"]}
    curves = [r for r in runs if "bench.curve" in r.data.tags]
    assert {r.data.tags["mlflow.parentRunId"] for r in curves} == set(parents.values())
    client(results).delete_run(parents["second"])
    show(results, *cells)  # they stayed below the deleted run
    runs = {r.info.run_id: r.data.tags.get("mlflow.parentRunId") for r in runs_of(results, "moving")}
    assert len(runs) == 6 and set(runs.values()) - {None} < runs.keys()
    others = [make_cell(tmp_path, dataset="moving", k=k, k1=1.2) for k in (1, 2)]
    show(tmp_path, *others, uri=local_store(results), sweep="second")  # deleted the first folder's curve
    assert sum("bench.curve" in run.data.tags for run in runs_of(results, "moving")) == 3


@pytest.fixture
def _synced_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a sync is the same command without importing MLflow anew."""

    def started(command: list[Any], env: dict[str, str], **_: Any) -> Any:
        done = CliRunner(env=env).invoke(sync_command, [str(argument) for argument in command[4:]])
        ended, output = done.exit_code, (done.stdout, None)
        return SimpleNamespace(returncode=ended, poll=lambda: ended, communicate=lambda timeout: output)

    here = SimpleNamespace(**{**vars(subprocess), "Popen": started})
    monkeypatch.setattr(hooks_module, "subprocess", here)
    monkeypatch.setattr(os, "nice", lambda by: 0)


def test_a_damaged_record_leaves_the_store_alone(results: Path) -> None:
    cell = make_cell(results, dataset="damaged")
    show(results, cell)
    before = runs_of(results, "damaged")[0].to_dictionary()
    finish(cell, [record(i, 0.25) for i in range(6)])
    with (cell / RECORDS_FILE).open("a") as lines:
        lines.write('{"example_id": "q6", "docu\n')
    (failure,) = show(results, cell)
    assert f"{RECORDS_FILE}:7" in failure
    assert runs_of(results, "damaged")[0].to_dictionary() == before


@pytest.mark.usefixtures("_synced_here")
def test_a_store_refusing_cells_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = [make_cell(tmp_path, dataset=dataset) for dataset in ("qasper", "musique", "hotpotqa")]
    (tmp_path / "mlflow.db").write_bytes(b"this is no database" * 100)
    run_hooks(tmp_path, cells)
    (warned,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "does not show 3 cell(s): the store is damaged" in warned and "bench ui --rebuild" in warned


@pytest.mark.usefixtures("_synced_here")
def test_a_store_of_another_schema_is_a_warning_with_the_way_out(
    results: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    show(results, make_cell(results, dataset="schema"))
    shutil.copy(results / "mlflow.db", tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    run_hooks(tmp_path, [make_cell(tmp_path)])
    assert "made by another version of MLflow" in caplog.text
    assert "bench ui --rebuild" in caplog.text


@pytest.mark.usefixtures("_synced_here")
def test_an_unreachable_server_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = [make_cell(tmp_path), make_cell(tmp_path, k=9)]
    uri, before = f"http://somebody:s3cret@127.0.0.1:{free_port()}", signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoreError, match="does not answer.*Max retries.*bench ui") as refused:
        list(sync(tmp_path, cells, uri=uri))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_TRACKING_URI", uri)
        run_hooks(tmp_path, cells)
    assert signal.getsignal(signal.SIGTERM) is before
    ours = [record for record in caplog.records if record.name.startswith("bench.")]
    (warned,) = [record.getMessage() for record in ours if record.levelno == logging.WARNING]
    assert "2 cell(s)" in warned and "bench ui" in warned
    for secret in ("s3cret", "somebody"):
        assert secret not in warned + str(refused.value)


def test_a_cell_whose_first_line_was_cut_has_not_begun(tmp_path: Path) -> None:
    """It kept every other cell from being shown."""
    cut, whole = make_cell(tmp_path, k=1), make_cell(tmp_path, k=2)
    (cut / "summary.json").unlink()
    (cut / "records.jsonl").write_bytes((cut / "records.jsonl").read_bytes()[:200])
    assert list(begun_cells([tmp_path])) == [whole]


def run_hooks(results: Path, cells: list[Path], sweep: str | None = None) -> MlflowHooks:
    """Hooks of a session that has finished these cells."""
    hooks = MlflowHooks(results)
    for cell in cells:
        hooks.on_cell_finished(Any, SimpleNamespace(folder=cell), sweep=sweep)
    hooks.close()
    return hooks


def test_a_run_never_waits_for_a_server_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_module, "SERVER_TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and answers nothing
        monkeypatch.setenv("BENCH_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        hooks = MlflowHooks(tmp_path)
        start = time.monotonic()
        for k in (1, 2, 3):
            hooks.on_cell_finished(Any, SimpleNamespace(folder=make_cell(tmp_path, k=k)), sweep=None)
            hooks.on_record(record(0, 1.0))
        process = hooks._process
        hooks.close()
    assert time.monotonic() - start < 5
    assert "all of 3 cell(s): no answer within 1 s" in caplog.text and "bench ui" in caplog.text
    assert process is not None and process.returncode == -signal.SIGKILL  # it has been ended


def test_ctrl_c_while_mlflow_is_told_leaves_the_rest_to_bench_ui(tmp_path: Path) -> None:
    hooks = MlflowHooks(tmp_path)
    hooks._wait = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    hooks.close()  # it ended a finished run with "nothing was changed"


def test_a_store_that_cannot_be_made_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="bench ui"):
        show(tmp_path, make_cell(tmp_path), uri=f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(StoreError, match="BENCH_TRACKING_URI=sqlite:///"):
        show(tmp_path, make_cell(tmp_path, k=2), uri=(tmp_path / "mlruns").as_uri())


def test_the_store_is_benchs_then_mlflows_or_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_store(Path("results")) == f"sqlite:///{tmp_path}/results/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://lab:5000")
    assert choose_store(Path("results")) == "http://lab:5000"
    monkeypatch.setenv("BENCH_TRACKING_URI", "sqlite:///here.db")
    assert choose_store(Path("results")) == f"sqlite:///{tmp_path}/here.db"
    monkeypatch.setenv("BENCH_TRACKING_URI", "off")
    cell = make_cell(tmp_path)
    run_hooks(tmp_path, [cell])
    assert not (tmp_path / "mlflow.db").exists() and not (cell / DISPLAY_FILE).exists()


def test_credentials_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "postgresql://ann:hunter22@db.lab:5432/runs?sslpassword=alsosecret#x"
    assert public_uri(uri) == "postgresql://db.lab:5432/runs"
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok-123456")
    message = scrub(f"could not connect to {uri}: hunter22 tok-123456 https://ann:x@lab/api", uri)
    for secret in ("hunter22", "alsosecret", "tok-123456", "ann"):
        assert secret not in message
    assert "https://***@lab/api" in message


def test_cells_of_a_session_are_shown_when_it_ends(results: Path) -> None:
    cells = [make_cell(results, dataset="beside", k=k) for k in (1, 2)]
    run_hooks(results, cells, "beside")
    runs = runs_of(results, "beside")
    (parent,) = [r for r in runs if "bench.sweep" in r.data.tags]
    assert parent.data.tags["bench.content"] == sweep_digest("beside", cells)
    assert {r.data.tags["mlflow.parentRunId"] for r in runs if r is not parent} == {parent.info.run_id}
