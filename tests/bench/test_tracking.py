from __future__ import annotations

import base64
import hashlib
import http.server
import json
import logging
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.commands.track import command as track
from bench.errors import BenchError
from bench.files import write_json
from bench.identity import CellIdentity
from bench.records import (
    CELL_FILE,
    RECORDS_FILE,
    SUMMARY_FILE,
    ContextRecord,
    FlopCounts,
    Record,
    TokenCounts,
)
from bench.summary import summarize
from bench.tracking import (
    choose_store,
    local_store,
    mirror_cell,
    mirror_results,
    mirror_sweep,
    public_uri,
)
from bench.tracking import mirror as mirror_module
from bench.tracking.background import BackgroundMirror
from bench.tracking.mirror import STAMP_FILE, find_cells
from bench.tracking.run_content import TABLE_ROWS, content_digest, read_run, write_artifacts
from bench.tracking.store import artifact_root, scrub, unreachable_reason

DEFAULTS = {
    "k": 5,
    "order": "rank",
    "chunk_tokens": None,
    "prompt": "pecan",
    "k1": 1.5,
    "b": 0.75,
    "epsilon": 0.25,
}


def record(number: int, f1: float, *, failed: bool = False) -> Record:
    return Record(
        example_id=f"q{number}",
        document_ids=[f"d{number // 3}"],
        question=f"Who crossed the bridge on day {number}?",
        answers=["Ilse Brandt", "Ilse"],
        prediction=None if failed else "Ilse, they say",
        scores={"rouge_l": f1 / 2, "f1": f1},
        context=[ContextRecord(document=0, title="The bridge", start=0, end=40, score=2.5)],
        tokens=TokenCounts(prompt=400, completion=5, forwarded=405),
        flops=FlopCounts(
            query=3_000_000_000_000, index=0, convention="paper", query_by_model={}, index_by_model={}
        ),
        truncated=number == 0,
        flags=["empty_document"] if number == 1 else [],
        wall_s=0.25,
        error="RuntimeError: out of memory" if failed else None,
        trace={},
    )


def finish(folder: Path, records: list[Record]) -> None:
    """Write the records and the summary that the runner writes."""
    (folder / RECORDS_FILE).write_text("".join(r.to_line() for r in records), encoding="utf-8")
    digest = hashlib.sha256((folder / RECORDS_FILE).read_bytes()).hexdigest()
    write_json(folder / SUMMARY_FILE, {**summarize(records, ["f1", "rouge_l"]), "records_sha256": digest})


def make_cell(results: Path, *, dataset: str = "qasper", n: int = 6, failed: int = 0, **options: Any) -> Path:
    """A finished cell of bm25 as the runner leaves it."""
    identity = CellIdentity(
        method="bm25",
        method_version="1",
        config={**DEFAULTS, **options},
        dataset=dataset,
        data_source="sample",
        data_label=f"{dataset} (sample)",
        data_revision="sha256:0123",
        examples="e" * 16,
        n_examples=n,
        models={"reader": {"name": "tiny", "dtype": "float32"}},
        geometry={"chunk_tokens": 75, "window": 2048},
        prompts="p" * 16,
        max_new_tokens=32,
        seed=0,
    )
    folder = results / "cells" / identity.folder
    folder.mkdir(parents=True)
    write_json(
        folder / CELL_FILE,
        {
            "cell_id": identity.cell_id,
            **asdict(identity),
            "model": "tiny",
            "model_label": "tiny (reduced scale)",
            "model_small": True,
            "dtype": "float32",
            "limit": None,
            "flop_convention": "paper",
            "metrics": ["f1", "rouge_l"],
            "created_at": "2026-01-02T03:04:05+00:00",
            "versions": {"torch": "2.13.0"},
            "python": "3.11.7",
            "platform": "Linux x86_64",
            "git_commit": "0123456789ab",
        },
    )
    finish(folder, [record(i, (i % 5) / 4, failed=i < failed) for i in range(n)])
    return folder


@pytest.fixture(autouse=True)
def _own_store_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(mirror_module, "_silent_since", {})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder whose store is made once; every test adds cells of its own data set."""
    return tmp_path_factory.mktemp("results")


def client(results: Path) -> Any:
    from mlflow import MlflowClient

    # MLflow keeps a database open, also one that was deleted: a name of its own for each file.
    inode = (results / "mlflow.db").stat().st_ino
    alias = results / f"read-{inode}.db"
    if not alias.exists():
        alias.hardlink_to(results / "mlflow.db")
    return MlflowClient(f"sqlite:///{alias}")


def runs_of(results: Path, dataset: str) -> list[Any]:
    found = client(results)
    experiment = found.get_experiment_by_name(f"longdoc-bench/{dataset}")
    return list(found.search_runs([experiment.experiment_id]))


def table_of(run: Any) -> dict[str, Any]:
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    table = json.loads((folder / "questions.json").read_text())
    assert isinstance(table, dict)
    return table


# --- what a run shows -----------------------------------------------------------------------------


def test_a_cell_is_one_run_with_parameters_metrics_table_and_environment(results: Path) -> None:
    cell = make_cell(results, k=7)
    result = mirror_cell(cell, results_dir=results)
    assert (result.state, result.ok, result.message) == ("created", True, "")

    (run,) = runs_of(results, "qasper")
    summary = json.loads((cell / SUMMARY_FILE).read_text())
    assert run.info.run_id == result.run_id
    assert run.info.run_name == "bm25 k=7 · qasper (sample) · tiny"
    assert run.info.status == "FINISHED"
    assert run.info.start_time == 1767323045000  # created_at, not the time of mirroring
    assert run.data.params["method"] == "bm25"
    assert run.data.params["data"] == "qasper (sample)"
    assert run.data.params["config.k"] == "7"
    assert run.data.params["config.chunk_tokens"] == "none"
    assert run.data.params["geometry.window"] == "2048"
    assert run.data.params["model"] == "tiny"
    for bound in ("mean", "low", "high"):
        name = "f1" if bound == "mean" else f"f1_{bound}"
        assert run.data.metrics[name] == pytest.approx(summary["metrics"]["f1"][bound], rel=1e-5)
    assert run.data.metrics["query_tflops"] == 3.0
    assert run.data.metrics["prompt_tokens"] == 400
    assert run.data.metrics["n"] == 6
    assert run.data.metrics["n_truncated"] == 1
    assert run.data.metrics["flags.empty_document"] == 1
    assert run.data.tags["mlflow.source.git.commit"] == "0123456789ab"
    assert run.data.tags["env.torch"] == "2.13.0"
    assert run.data.tags["env.platform"] == "Linux x86_64"
    table = table_of(run)
    assert table["columns"][:5] == ["question", "prediction", "answers", "f1", "rouge_l"]
    assert len(table["data"]) == 6
    assert table["data"][2][:4] == [
        "Who crossed the bridge on day 2?", "Ilse, they say", "Ilse Brandt | Ilse", 0.5,
    ]  # fmt: skip
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": "questions.json", "type": "table"}
    ]
    artifacts = {a.path for a in client(results).list_artifacts(run.info.run_id)}
    assert artifacts == {"cell.json", "summary.json", "environment.json", "questions.json"}


def test_artifacts_lie_in_the_results_folder_and_nothing_in_the_working_directory(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mirror_cell(make_cell(results, dataset="places"), results_dir=results)
    (run,) = runs_of(results, "places")
    assert run.info.artifact_uri.startswith((results / "mlflow-artifacts" / "places").as_uri())
    assert list(tmp_path.iterdir()) == []


def test_a_cell_that_failed_is_a_failed_run_and_says_why_in_the_table(results: Path) -> None:
    mirror_cell(make_cell(results, dataset="failing", n=3, failed=3), results_dir=results)
    mirror_cell(make_cell(results, dataset="failing", n=4, failed=1), results_dir=results)
    by_n = {run.data.metrics["n"]: run for run in runs_of(results, "failing")}
    assert (by_n[3].info.status, by_n[4].info.status) == ("FAILED", "FINISHED")
    assert by_n[4].data.metrics["errors.RuntimeError"] == 1
    first = dict(zip(table_of(by_n[4])["columns"], table_of(by_n[4])["data"][0], strict=True))
    assert first["prediction"] == "FAILED: RuntimeError: out of memory"


def test_an_unfinished_cell_is_left_out_of_a_sync_and_failed_when_asked_for(results: Path) -> None:
    cell = make_cell(results, dataset="unfinished")
    (cell / SUMMARY_FILE).unlink()
    assert cell not in {r.cell_dir for r in mirror_results(results)}
    assert mirror_cell(cell, results_dir=results).state == "created"
    (run,) = runs_of(results, "unfinished")
    assert (run.info.status, run.data.tags["bench.state"]) == ("FAILED", "incomplete")
    finish(cell, [record(i, 1.0) for i in range(6)])
    assert mirror_cell(cell, results_dir=results).state == "updated"
    (run,) = runs_of(results, "unfinished")
    assert (run.info.status, run.data.tags["bench.state"]) == ("FINISHED", "complete")


def test_the_experiment_opens_with_scores_and_cost_as_columns(results: Path) -> None:
    mirror_cell(make_cell(results, dataset="columns"), results_dir=results)
    experiment = client(results).get_experiment_by_name("longdoc-bench/columns")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(experiment.tags["mlflow.sharedViewState.bench"])
    state = json.loads(zlib.decompress(base64.b64decode(view["state"].removeprefix("deflate;"))))
    assert state["selectedColumns"][:3] == ["metrics.`f1`", "metrics.`f1_low`", "metrics.`f1_high`"]
    (run,) = runs_of(results, "columns")
    assert {c[9:-1] for c in state["selectedColumns"]} <= run.data.metrics.keys()  # none stays empty


def test_a_table_too_long_for_the_ui_is_split_and_complete(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, n=6)
    long = 2 * TABLE_ROWS + 5
    (cell / RECORDS_FILE).write_text("".join(record(i, 0.5).to_line() for i in range(long)))
    out = tmp_path / "out"
    out.mkdir()
    tables = write_artifacts(cell, out)
    assert tables == [
        "questions_00001-01000.json",
        "questions_01001-02000.json",
        "questions_02001-02005.json",
    ]
    ids = [row[-1] for table in tables for row in json.loads((out / table).read_text())["data"]]
    assert ids == [f"q{i}" for i in range(long)]


def test_names_and_values_that_mlflow_refuses_are_made_legal(results: Path) -> None:
    cell = make_cell(results, dataset="odd")
    content = json.loads((cell / CELL_FILE).read_text())
    content["config"] = {"a(b)=c?": "x" * 9_000, "surrogate": "\ud800", "nested": {"list": [1, 2]}}
    content["examples_listed"] = list(range(5_000))
    (cell / CELL_FILE).write_text(json.dumps(content))
    assert mirror_cell(cell, results_dir=results).message == ""
    (run,) = runs_of(results, "odd")
    assert len(run.data.params["config.a_b__c_"]) == 500
    assert run.data.params["config.a_b__c_"].endswith("…")
    assert run.data.params["config.surrogate"] == "?"
    assert run.data.params["config.nested.list"] == "[1, 2]"
    assert "examples_listed" not in run.data.params


def test_neither_host_nor_user_nor_environment_reaches_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make_cell(tmp_path)
    content = read_run(cell)
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("HF_TOKEN", "hf_not_for_anybody")
    write_artifacts(cell, out)
    everything = json.dumps(asdict(content)) + "".join(p.read_text() for p in out.rglob("*.json"))
    assert "hf_not_for_anybody" not in everything
    assert platform.node() not in everything
    assert str(Path.home()) not in everything
    assert "mlflow.user" not in content.tags


# --- one run per cell, whatever happens -----------------------------------------------------------


def test_mirroring_again_changes_nothing_and_imports_no_mlflow(results: Path) -> None:
    cell = make_cell(results, dataset="again")
    first = mirror_cell(cell, results_dir=results)
    assert mirror_cell(cell, results_dir=results, verify=True).state == "unchanged"
    (cell / STAMP_FILE).unlink()
    assert mirror_cell(cell, results_dir=results).state == "unchanged"
    assert [run.info.run_id for run in runs_of(results, "again")] == [first.run_id]
    code = (
        "import sys, pathlib; from bench.tracking import mirror_finished, mirror as m\n"
        f"r = mirror_finished(pathlib.Path({str(cell)!r}), pathlib.Path({str(results)!r}))\n"
        "print(r.state, r.run_id, 'mlflow' in sys.modules, m._worker is None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["unchanged", first.run_id, "False", "True"]


def test_a_changed_summary_updates_the_same_run(results: Path) -> None:
    cell = make_cell(results, dataset="changing")
    first = mirror_cell(cell, results_dir=results)
    finish(cell, [record(i, 0.25) for i in range(6)])  # lower: not merely the largest value is kept
    second = mirror_cell(cell, results_dir=results)
    assert (second.state, second.run_id) == ("updated", first.run_id)
    (run,) = runs_of(results, "changing")
    assert run.data.metrics["f1"] == 0.25
    assert [row[3] for row in table_of(run)["data"]] == [0.25] * 6


def test_a_changed_parameter_replaces_the_run(results: Path) -> None:
    cell = make_cell(results, dataset="replaced")
    first = mirror_cell(cell, results_dir=results)
    content = json.loads((cell / CELL_FILE).read_text())
    (cell / CELL_FILE).write_text(json.dumps({**content, "dtype": "bfloat16"}))
    assert mirror_cell(cell, results_dir=results).state == "updated"
    (run,) = runs_of(results, "replaced")
    assert run.info.run_id != first.run_id
    assert run.data.params["dtype"] == "bfloat16"


def test_a_run_deleted_in_the_ui_comes_back(results: Path) -> None:
    cell = make_cell(results, dataset="deleted")
    first = mirror_cell(cell, results_dir=results)
    client(results).delete_run(first.run_id)
    assert mirror_cell(cell, results_dir=results).state == "created"
    assert len(runs_of(results, "deleted")) == 1


def test_two_runs_of_one_cell_become_one(results: Path) -> None:
    cell = make_cell(results, dataset="twice")
    first = mirror_cell(cell, results_dir=results)
    tags = {"bench.cell_id": json.loads((cell / CELL_FILE).read_text())["cell_id"]}
    client(results).create_run(first.experiment_id, tags=tags)
    mirror_cell(cell, results_dir=results, verify=True)
    assert [run.info.run_id for run in runs_of(results, "twice")] == [first.run_id]


def test_cells_of_a_sweep_share_one_parent_also_when_synced_later(results: Path) -> None:
    cells = [make_cell(results, dataset="sweep", k=k) for k in (1, 2)]
    for cell in cells:
        mirror_cell(cell, results_dir=results, parent="bm25 over k")
    finish(cells[0], [record(i, 1.0) for i in range(6)])
    mirror_cell(cells[0], results_dir=results)  # no word of the sweep this time
    (parent,) = [r for r in runs_of(results, "sweep") if "bench.sweep" in r.data.tags]
    children = [r for r in runs_of(results, "sweep") if "bench.cell_id" in r.data.tags]
    assert parent.info.run_name == "bm25 over k"
    assert [r.data.tags["mlflow.parentRunId"] for r in children] == [parent.info.run_id] * 2


def test_a_sweep_has_a_curve_whose_metrics_have_the_option_as_their_step(results: Path) -> None:
    cells = [
        make_cell(results, dataset="curve", k=k, order=order)
        for order in ("rank", "document")
        for k in (1, 2, 3)
    ]
    for cell in cells + cells[:1]:
        mirror_cell(cell, results_dir=results, parent="bm25 over k", verify=True)
    curves = [r for r in runs_of(results, "curve") if "bench.curve" in r.data.tags]
    assert sorted(r.info.run_name for r in curves) == ["over k: bm25", "over k: bm25 order=document"]
    f1 = 100 * sum((i % 5) / 4 for i in range(6)) / 6
    for run in curves:
        history = client(results).get_metric_history(run.info.run_id, "f1")
        assert sorted(m.step for m in history) == [1, 2, 3]
        assert history[0].value in (pytest.approx(f1), pytest.approx(f1 / 100))
        assert len(client(results).get_metric_history(run.info.run_id, "query_tflops")) == 3

    finish(cells[1], [record(i, 1.0) for i in range(6)])
    for cell in cells:
        mirror_cell(cell, results_dir=results, verify=True)
    (run,) = [r for r in runs_of(results, "curve") if r.info.run_name == "over k: bm25"]
    changed = {m.step: m.value for m in client(results).get_metric_history(run.info.run_id, "f1")}
    assert sorted(changed) == [1, 2, 3] and changed[1] == changed[3] < changed[2]


def test_a_damaged_record_leaves_the_store_alone(results: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = make_cell(results, dataset="damaged")
    mirror_cell(cell, results_dir=results)
    before = runs_of(results, "damaged")[0].to_dictionary()
    finish(cell, [record(i, 0.25) for i in range(6)])
    with (cell / RECORDS_FILE).open("a") as lines:
        lines.write('{"example_id": "q6", "docu\n')
    result = mirror_cell(cell, results_dir=results)
    assert not result.ok
    assert f"{RECORDS_FILE}:7" in result.message
    assert result.message in caplog.text
    assert runs_of(results, "damaged")[0].to_dictionary() == before


# --- the store is only a mirror -------------------------------------------------------------------


def snapshot(results: Path) -> dict[str, Any]:
    """Everything a user sees, by cell, without the ids that MLflow makes up."""
    seen = {}
    for experiment in client(results).search_experiments():
        for run in client(results).search_runs([experiment.experiment_id]):
            tags = dict(run.data.tags)
            seen[tags["bench.cell_id"]] = {
                "experiment": experiment.name,
                "info": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
                "params": run.data.params,
                "metrics": run.data.metrics,
                "tags": tags,
                "table": table_of(run),
            }
    return seen


def test_sync_rebuilds_the_same_store_from_the_records_quietly(tmp_path: Path) -> None:
    for options in ({}, {"k": 9}, {"dataset": "musique", "failed": 2}):
        make_cell(tmp_path, **options)
    outside = make_cell(tmp_path / "elsewhere", dataset="hotpotqa")
    sync = [sys.executable, "-m", "bench.cli", "track", "sync", "--results", str(tmp_path / "cells" / "..")]
    shutil.move(tmp_path / "elsewhere", tmp_path.parent / f"{tmp_path.name}-elsewhere")
    outside = tmp_path.parent / f"{tmp_path.name}-elsewhere" / "cells" / outside.name

    first = subprocess.run([*sync, str(outside)], capture_output=True, text=True, check=True)
    assert first.stderr == ""
    assert len(first.stdout.splitlines()) == 5
    assert first.stdout.endswith("4 created\n")
    seen = snapshot(tmp_path)
    assert len(seen) == 4

    again = CliRunner().invoke(
        track, ["sync", "--results", str(tmp_path), str(outside), "--rebuild", "--yes"]
    )  # deletes database and artifacts
    assert (again.exit_code, again.output.splitlines()[-1].split(": ")[1]) == (0, "4 created")
    assert snapshot(tmp_path) == seen

    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    shutil.copytree(tmp_path, copy)
    moved = next(mirror_results(copy))  # its database still names the old place
    assert not moved.ok
    assert "bench track sync --rebuild" in moved.message


def test_a_store_that_refuses_every_cell_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: object, deadline_s: float) -> dict[str, Any]:
        raise mirror_module.MirrorError(f"the results folder was moved or copied ({request})")

    monkeypatch.setattr(mirror_module, "_ask", refuse)
    mirror = BackgroundMirror(tmp_path)
    for dataset in ("qasper", "musique", "hotpotqa"):
        mirror.add(make_cell(tmp_path, dataset=dataset))
    assert mirror.finish() == 0

    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 2 and "the results folder was moved or copied" in warned[0]
    assert warned[1] == "3 cells in all are not shown in MLflow; see above why"


def test_sync_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = CliRunner().invoke(track, ["sync", "--results", str(tmp_path)])
    assert isinstance(nothing.exception, BenchError)
    assert "No cells below" in str(nothing.exception)
    make_cell(tmp_path)
    remote = CliRunner().invoke(
        track, ["sync", "--results", str(tmp_path), "--uri", "http://me:pw12@127.0.0.1:9", "--rebuild"]
    )
    assert isinstance(remote.exception, BenchError)
    assert "pw12" not in str(remote.exception)
    monkeypatch.setenv("BENCH_TRACKING_URI", "off")
    off = CliRunner().invoke(track, ["sync", "--results", str(tmp_path)])
    assert "BENCH_TRACKING_URI=off" in str(off.exception)


def test_cells_are_found_but_not_their_copies_in_the_artifacts(results: Path, tmp_path: Path) -> None:
    cells = {make_cell(tmp_path), make_cell(tmp_path, k=3)}
    artifacts = tmp_path / "mlflow-artifacts" / "qasper" / "0" / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / CELL_FILE).write_text("{}")
    assert set(find_cells(tmp_path)) == cells


# --- a store that does not answer never stops a run -----------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_unreachable_server_is_one_quick_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cells = [make_cell(tmp_path), make_cell(tmp_path, k=9)]
    uri = f"http://somebody:s3cret@127.0.0.1:{free_port()}"
    start = time.monotonic()
    outcomes = [mirror_cell(cell, tracking_uri=uri) for cell in cells]
    assert time.monotonic() - start < 2
    assert [r.state for r in outcomes] == ["failed", "failed"]
    assert "Connection refused" in outcomes[0].message
    assert "bench track sync" in outcomes[0].message
    assert sum(r.levelno >= logging.WARNING for r in caplog.records) == 1
    assert "s3cret" not in caplog.text + repr(outcomes)
    assert "somebody" not in caplog.text + repr(outcomes)
    assert not (cells[0] / STAMP_FILE).exists()


@pytest.fixture
def half_dead_server() -> Iterator[int]:
    """Answers its health check and nothing else."""
    stop = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/health":
                stop.wait(60)
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    stop.set()
    server.shutdown()
    server.server_close()


def test_a_server_that_hangs_is_left_at_the_deadline(tmp_path: Path, half_dead_server: int) -> None:
    uri = f"http://127.0.0.1:{half_dead_server}"
    assert unreachable_reason(uri) is None
    start = time.monotonic()
    result = mirror_cell(make_cell(tmp_path), tracking_uri=uri, deadline_s=2.5)
    assert time.monotonic() - start < 6
    assert not result.ok
    assert "no answer within 2.5 s" in result.message
    assert mirror_module._worker is None  # the process that hung has been ended


def test_a_server_that_accepts_and_never_answers_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        reason = unreachable_reason(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3)
    assert reason == "no answer within 0.3 s"
    assert time.monotonic() - start < 1


def test_a_locked_store_is_a_warning(results: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = make_cell(results, dataset="locked")
    holder = sqlite3.connect(results / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        result = mirror_cell(cell, results_dir=results, deadline_s=2)
    finally:
        holder.close()
    assert not result.ok
    assert "bench track sync" in caplog.text
    mirror_module._silent_since.clear()
    assert mirror_cell(cell, results_dir=results).state == "created"


def test_a_store_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = mirror_cell(make_cell(tmp_path), tracking_uri=f"sqlite:///{tmp_path}/file/mlflow.db")
    assert not result.ok
    assert "bench track sync" in result.message


def test_a_worker_that_dies_is_replaced(results: Path) -> None:
    mirror_cell(make_cell(results, dataset="dying"), results_dir=results)
    assert mirror_module._worker is not None
    mirror_module._worker._process.kill()
    cell = make_cell(results, dataset="dying", k=2)
    dead = mirror_cell(cell, results_dir=results)
    assert "ended unexpectedly" in dead.message
    mirror_module._silent_since.clear()
    assert mirror_cell(cell, results_dir=results).state == "created"


def test_a_file_store_is_refused_with_the_way_out(tmp_path: Path) -> None:
    result = mirror_cell(make_cell(tmp_path), tracking_uri=(tmp_path / "mlruns").as_uri())
    assert "BENCH_TRACKING_URI=sqlite:///" in result.message


# --- which store, and how it is named -------------------------------------------------------------


def test_the_store_is_the_option_then_bench_then_mlflow_then_the_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_store(None, Path("results")) == f"sqlite:///{tmp_path}/results/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://lab:5000")
    assert choose_store() == "http://lab:5000"
    monkeypatch.setenv("BENCH_TRACKING_URI", "sqlite:///here.db")
    assert choose_store() == f"sqlite:///{tmp_path}/here.db"
    assert choose_store("http://given") == "http://given"
    monkeypatch.setenv("BENCH_TRACKING_URI", "off")
    assert mirror_cell(tmp_path).state == "off"


def test_artifacts_lie_beside_a_database_and_with_a_server_where_it_says(tmp_path: Path) -> None:
    assert artifact_root(f"sqlite:///{tmp_path}/a.db") == (tmp_path / "mlflow-artifacts").as_uri()
    assert artifact_root("postgresql://db/x", tmp_path) == (tmp_path / "mlflow-artifacts").as_uri()
    assert artifact_root("https://lab:5000") is None
    assert artifact_root("databricks") is None


def test_credentials_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "postgresql://ann:hunter22@db.lab:5432/runs?sslpassword=alsosecret#x"
    assert public_uri(uri) == "postgresql://db.lab:5432/runs"
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok-123456")
    said = scrub(f"could not connect to {uri}: hunter22 tok-123456 https://ann:x@lab/api", uri)
    for secret in ("hunter22", "alsosecret", "tok-123456", "ann"):
        assert secret not in said
    assert "https://lab/api" in said


def test_an_address_that_cannot_be_read_is_a_warning_too(tmp_path: Path) -> None:
    result = mirror_cell(make_cell(tmp_path), tracking_uri="http://ann:pw1234@[half")
    assert (result.ok, result.tracking_uri) == (False, "an address that cannot be read")
    assert "pw1234" not in repr(result)


def test_a_folder_that_is_no_cell_is_a_warning_too(tmp_path: Path) -> None:
    result = mirror_cell(tmp_path)
    assert not result.ok
    assert CELL_FILE in result.message
    with pytest.raises(BenchError, match="is not a cell"):
        content_digest(tmp_path)


def test_the_stamp_survives_only_what_it_stands_for(results: Path) -> None:
    cell = make_cell(results, dataset="stamped")
    result = mirror_cell(cell, results_dir=results)
    stamp = json.loads((cell / STAMP_FILE).read_text())
    assert stamp["run_id"] == result.run_id
    assert stamp["tracking_uri"] == local_store(results)
    assert os.environ.get("USER", "no user") not in json.dumps(stamp["content"])


def test_metrics_of_a_curve_are_the_first_two_scores_and_the_cost(results: Path) -> None:
    for k in (1, 2):
        mirror_cell(make_cell(results, dataset="drawn", k=k), results_dir=results, parent="over k")
    experiment = client(results).get_experiment_by_name("longdoc-bench/drawn")
    (run,) = [r for r in runs_of(results, "drawn") if "bench.curve" in r.data.tags]
    assert run.data.metrics.keys() == {"f1", "rouge_l", "query_tflops"}
    view = json.loads(experiment.tags["mlflow.sharedViewState.curves"])
    state = json.loads(zlib.decompress(base64.b64decode(view["state"].removeprefix("deflate;"))))
    assert state["searchFilter"] == "tags.`bench.curve` LIKE '%'"
    assert state["orderByKey"] == "metrics.`f1`"  # by time, MLflow folds the curves below their parent
    found = client(results).search_runs([experiment.experiment_id], state["searchFilter"])
    assert [r.info.run_id for r in found] == [run.info.run_id]


def test_a_sweep_has_its_figure_as_an_artifact_also_when_it_is_rebuilt(results: Path) -> None:
    cells = [make_cell(results, dataset="figure", k=k) for k in (1, 2)]
    for cell in cells:
        mirror_cell(cell, results_dir=results, parent="sweep of k")
    assert mirror_sweep("sweep of k", cells, results_dir=results)
    (parent,) = [r for r in runs_of(results, "figure") if "bench.sweep" in r.data.tags]
    names = {a.path for a in client(results).list_artifacts(parent.info.run_id)}
    assert names >= {"trade_off.png", "trade_off.svg", "trade_off.csv"}
    folder = Path(parent.info.artifact_uri.removeprefix("file://"))
    assert (folder / "trade_off.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "trade_off.csv").read_text().startswith("dataset,k,f1,f1_low,f1_high,tflops\n")
    (folder / "trade_off.png").unlink()
    client(results).delete_tag(parent.info.run_id, "bench.figure")
    again = mirror_results(cells[0].parent, tracking_uri=local_store(results))
    assert [r.state for r in again if r.cell_dir in cells] == ["unchanged", "unchanged"]
    assert (folder / "trade_off.png").is_file()


def test_a_cell_of_two_sweeps_is_on_the_curve_of_both_and_below_the_newer(results: Path) -> None:
    cells = [make_cell(results, dataset="moving", k=k) for k in (1, 2)]
    for name in ("first", "second"):
        for cell in cells:
            mirror_cell(cell, results_dir=results, parent=name)
    runs = runs_of(results, "moving")
    parents = {r.info.run_name: r.info.run_id for r in runs if "bench.sweep" in r.data.tags}
    children = [r for r in runs if "bench.cell_id" in r.data.tags]
    assert {r.data.tags["mlflow.parentRunId"] for r in children} == {parents["second"]}
    curves = [r for r in runs if "bench.curve" in r.data.tags]
    assert {r.data.tags["mlflow.parentRunId"] for r in curves} == set(parents.values())
    for curve in curves:
        history = client(results).get_metric_history(curve.info.run_id, "f1")
        assert sorted(m.step for m in history) == [1, 2]


def test_the_machine_is_shown_as_system_metrics_and_only_once(results: Path) -> None:
    cell = make_cell(results, dataset="system")
    samples = [{"t": 1767323045000 + i, "cpu_utilization_percentage": 10.0 * i} for i in range(3)]
    (cell / "system.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    mirror_cell(cell, results_dir=results)
    finish(cell, [record(i, 0.25) for i in range(6)])
    assert mirror_cell(cell, results_dir=results).state == "updated"
    (run,) = runs_of(results, "system")
    history = client(results).get_metric_history(run.info.run_id, "system/cpu_utilization_percentage")
    assert [(m.step, m.value) for m in history] == [(0, 0.0), (1, 10.0), (2, 20.0)]


def test_search_steps_are_traces_and_follow_the_records(results: Path) -> None:
    cell = make_cell(results, dataset="traced", n=2)
    assert mirror_cell(cell, results_dir=results).state == "created"
    (run,) = runs_of(results, "traced")
    where = {"locations": [run.info.experiment_id], "run_id": run.info.run_id}
    assert len(client(results).search_traces(**where)) == 0
    assert mirror_cell(cell, results_dir=results, trace=True).state == "updated"
    assert mirror_cell(cell, results_dir=results, trace=True, verify=True).state == "unchanged"
    traces = client(results).search_traces(**where)
    assert sorted(t.info.tags["bench.example_id"] for t in traces) == ["q0", "q1"]
    for trace in traces:
        assert trace.info.execution_duration == 250
        assert trace.info.state == "OK" and trace.info.response_preview == "Ilse, they say"
        root, passages, answer = trace.data.spans
        assert [s.name for s in (root, passages, answer)] == ["bm25", "passages", "answer"]
        assert passages.parent_id == answer.parent_id == root.span_id
        assert root.start_time_ns == passages.start_time_ns <= passages.end_time_ns == answer.start_time_ns
        assert answer.end_time_ns <= root.end_time_ns == root.start_time_ns + 250_000_000
        assert answer.outputs == "Ilse, they say"
        assert passages.outputs[0]["metadata"]["title"] == "The bridge"

    finish(cell, [record(0, 0.25), record(1, 0.0, failed=True)])
    assert mirror_cell(cell, results_dir=results).state == "updated"  # shown once, always shown
    traces = client(results).search_traces(**where)
    assert sorted(t.info.state for t in traces) == ["ERROR", "OK"]

    content = json.loads((cell / CELL_FILE).read_text())
    (cell / CELL_FILE).write_text(json.dumps({**content, "dtype": "bfloat16"}))
    mirror_cell(cell, results_dir=results)  # the run is replaced, its traces go with it
    assert len(client(results).search_traces(locations=[run.info.experiment_id])) == 2


def test_sync_writes_traces_when_asked(results: Path) -> None:
    cell = make_cell(results, dataset="sync_traced", n=2)
    arguments = ["sync", "--results", str(cell), "--uri", local_store(results)]
    assert CliRunner().invoke(track, arguments).exit_code == 0
    assert CliRunner().invoke(track, [*arguments, "--trace"]).output.startswith("updated")
    (run,) = runs_of(results, "sync_traced")
    found = client(results).search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id)
    assert len(found) == 2


def test_a_run_never_waits_for_a_server_that_hangs(
    tmp_path: Path, half_dead_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [make_cell(tmp_path, k=k) for k in (1, 2, 3)]
    beside = BackgroundMirror(tmp_path, f"http://127.0.0.1:{half_dead_server}")
    start = time.monotonic()
    for cell in cells:
        beside.add(cell)
    assert time.monotonic() - start < 0.5  # the run goes on
    assert beside.finish(patience_s=1.0) == 3
    assert time.monotonic() - start < 3
    assert "3 cell(s) are not shown in MLflow" in caplog.text and "bench track sync" in caplog.text
    assert mirror_module._worker is not None
    mirror_module._worker._process.kill()  # as at the end of the program


def test_cells_given_beside_a_run_are_shown_when_it_ends(results: Path) -> None:
    beside = BackgroundMirror(results)
    for k in (1, 2):
        beside.add(make_cell(results, dataset="beside", k=k), parent="beside")
    beside.add_sweep("beside", list((results / "cells").glob("bm25--beside--*")))
    assert beside.finish() == 0
    assert [found.state for found in beside.shown] == ["created", "created"]
    (parent,) = [r for r in runs_of(results, "beside") if "bench.sweep" in r.data.tags]
    assert "bench.figure" in parent.data.tags
    BackgroundMirror(results, "off").finish()


def test_the_process_of_mlflow_outlives_whoever_waits_for_it_at_exit() -> None:
    program = """
import atexit, os
from bench.tracking import background, mirror

class Worker:
    owner = os.getpid()
    def close(self):
        print("closed")

mirror._worker = Worker()
atexit.register(print, "waited")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["waited", "closed"]
