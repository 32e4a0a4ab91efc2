from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from bench.cli.ui import command as ui
from bench.errors import BenchError, ConfigError
from bench.tracking.store import local_store
from bench.tracking.sync import sync
from tests.bench.run.test_local import alive
from tests.bench.tracking.test_tracking import make_cell, runs_of
from tests.servers import free_port


def invoke(*arguments: str | Path) -> BaseException | None:
    return CliRunner().invoke(ui, [str(a) for a in arguments]).exception


def test_without_records_it_says_how_to_make_some(tmp_path: Path) -> None:
    error = invoke("--results", tmp_path / "none")
    assert isinstance(error, BenchError)
    assert "bench run --method" in str(error)


def test_it_writes_what_is_missing_and_rebuilds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.tracking.ui.serve", lambda *_: None)
    for options in ({}, {"k": 9}, {"dataset": "musique"}):
        make_cell(tmp_path, **options)
    monkeypatch.setenv("BENCH_TRACKING_URI", "off")  # of runs; who asks for the UI wants to see them
    (tmp_path / "mlflow.db").write_bytes(b"this is no database" * 100)
    rebuilt = CliRunner().invoke(ui, ["--results", str(tmp_path), "--rebuild"])
    assert rebuilt.exit_code == 0 and "warning" not in rebuilt.output, rebuilt.output
    runs = [run for dataset in ("qasper", "musique") for run in runs_of(tmp_path, dataset)]
    assert sorted(run.data.params["config.k"] for run in runs) == ["5", "5", "9"]
    make_cell(tmp_path, k=10)
    assert "Writing 1 cell(s)" in CliRunner().invoke(ui, ["--results", str(tmp_path)]).output
    assert "Writing" not in CliRunner().invoke(ui, ["--results", str(tmp_path)]).output
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    shutil.copytree(tmp_path, copy)
    moved = invoke("--results", copy)  # its database names the old place
    assert isinstance(moved, BenchError) and "was moved" in str(moved)


def test_a_remote_store_is_kept_and_no_secret_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cell(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:pw1234@127.0.0.1:9")
    for arguments in (("--rebuild",), ()):
        error = invoke("--results", tmp_path, *arguments)
        assert isinstance(error, BenchError)
        assert "pw1234" not in str(error)
    mine = tmp_path / "elsewhere.db"
    mine.write_bytes(b"experiments of my own")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{mine}")
    assert "which may hold other runs" in str(invoke("--results", tmp_path, "--rebuild")) and mine.is_file()


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = invoke("--results", tmp_path, "--port", str(port))
    assert isinstance(error, ConfigError)
    assert f"--port {port}: Address already in use" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="sees the sockets of other processes")
def test_it_serves_this_machine_leaving_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    assert list(sync(tmp_path, [make_cell(tmp_path)], uri=local_store(tmp_path))) == []
    port = free_port()
    command = [sys.executable, "-m", "bench.cli.main", "ui", "--port", str(port), "--results", str(tmp_path)]
    bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        shown = bench.stdout.readline().split()  # printed only once the server answers
        last = bench.stdout.readline()
        assert last == f"MLflow is at http://127.0.0.1:{port} (Ctrl-C stops it)\n"
        assert shown[0] == "longdoc-bench/qasper"
        assert get(port, "/")[0] == 200
        by_name = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=longdoc-bench/qasper"
        status, body = get(port, by_name)
        assert status == 200
        assert f"/experiments/{json.loads(body)['experiment']['experiment_id']}/runs" in shown[1]
        foreign = "attacker.example"
        for host in (foreign, f"10.{foreign}:{port}", f"192.168.{foreign}", f"localhost.{foreign}"):
            assert get(port, by_name, Host=host)[0] == 403, "DNS rebinding"
        assert get(port, by_name, Host=f"localhost:{port}")[0] == 200
        search = "/api/2.0/mlflow/experiments/search"
        for origin in ("http://attacker.example", "null"):
            assert get(port, search, "POST", Origin=origin)[0] == 403
        (run,) = runs_of(tmp_path, "qasper")
        relative, absolute = ("../../../../mlflow.db", "%2e%2e/%2e%2e/mlflow.db"), "/etc/passwd"
        for outside in (*relative, absolute, f"file://{absolute}"):
            status, body = get(port, f"/get-artifact?run_uuid={run.info.run_id}&path={outside}")
            assert status >= 400 and b"SQLite" not in body and b"root:" not in body
        assert get(port, f"/get-artifact?run_uuid={run.info.run_id}&path=cell.json")[0] == 200
        assert get(port, "/ajax-api/3.0/mlflow/assistant/config")[0] == 404  # it would run shell commands
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        assert {one.laddr.ip for one in listening if one.laddr.port == port} == {"127.0.0.1"}
        (server,) = psutil.Process(bench.pid).children()
        helpers = [server, *server.children(recursive=True)]
        assert 2 <= len(helpers) <= 4
    finally:
        bench.send_signal(signal.SIGTERM)
        _, stderr = bench.communicate(timeout=20)
    assert (bench.returncode, stderr.splitlines()[-1]) == (0, "Stopped.")
    assert not any(alive(helper.pid) for helper in helpers)
    with socket.create_server(("127.0.0.1", port)):
        pass


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
