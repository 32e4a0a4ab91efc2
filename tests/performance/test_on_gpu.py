"""The command for a machine with a GPU, without one: every step runs, is kept, and is not run again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from performance import gpu, on_gpu
from performance.measuring import REPOSITORY
from performance.on_gpu import NAMES, command


def call(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [str(out), "--device", "cpu", "--quick", *arguments])


def test_steps_run_on_a_cpu_and_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them: the tests of the file are those of the suite itself, the others differ in size alone."""

    def here(arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        gpu.write_steps(*json.loads(arguments[-1]))
        return subprocess.CompletedProcess([], 0, "")

    monkeypatch.setattr(on_gpu, "_process", here)
    done = call(tmp_path, "--only", "prefill,prefix")
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"prefill.json", "prefix.json", "gpu.json"}
    joined = json.loads((tmp_path / "gpu.json").read_text())
    values = {one["name"]: one["value"] for one in joined["measurements"]}
    assert values["prefill: share of the rate of matrix products"] > 0
    assert values["3 questions about 96 tokens: answers that change with shared prefixes"] == 0
    assert values["3 questions about 96 tokens: tokens computed, over without"] < 0.6
    monkeypatch.setattr(on_gpu, "_process", lambda *_: pytest.fail("a finished step was run again"))
    again = call(tmp_path, "--only", "prefill,prefix")
    assert again.exit_code == 0 and again.output == done.output


def test_nothing_is_imported_that_a_machine_with_torch_and_transformers_may_lack() -> None:
    program = """
import sys
import performance.on_gpu, tests.bench.engine.test_gpu
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "'torch'" in done.stdout
    for package in ("datasets", "fvcore", "mlflow", "pydantic", "rank_bm25", "ruamel", "umap"):
        assert f"'{package}'" not in done.stdout


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Processes that are asked for; each writes its steps' files, up to ``prefill``, which fails."""
    asked: list[Sequence[str]] = []

    def process(arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        asked.append(arguments)
        if "pytest" in arguments:
            return subprocess.CompletedProcess([], 0, "7 passed in 1.0s")
        steps, out, _, _ = json.loads(arguments[-1])
        for step in steps:
            if step == "prefill":
                return subprocess.CompletedProcess([], 1, "CUDA error: an illegal memory access")
            part: dict[str, Any] = {"measurements": [], "seconds": 1}
            (Path(out) / f"{step}.json").write_text(json.dumps(PART | part))
        return subprocess.CompletedProcess([], 0, "")

    monkeypatch.setattr(on_gpu, "_process", process)
    return asked


PART = json.loads(
    '{"benchmark": "gpu", "title": "", "about": "", "quick": true, "date": "", "not_run": null,'
    '"machine": {"processor": "", "cores": 1, "threads": 1, "memory_gb": 1, "accelerator": "none",'
    '"load_before": 0}, "versions": {"torch": "", "transformers": ""}}'
)


def test_a_step_that_fails_takes_no_other_along(tmp_path: Path, processes: list[Sequence[str]]) -> None:
    done = call(tmp_path)
    assert done.exit_code == 1 and "failed: prefill" in done.output
    assert "illegal memory access" in (tmp_path / "errors.txt").read_text()
    assert {path.stem for path in tmp_path.glob("*.json")} == {*NAMES, "gpu"} - {"prefill"}
    assert len(processes) == 3  # tests, steps up to the fault, steps after it


def test_without_time_the_next_call_goes_on(tmp_path: Path, processes: list[Sequence[str]]) -> None:
    done = call(tmp_path, "--minutes", "0.1", "--only", "serving,capture")
    assert done.exit_code == 0 and not processes
    assert "out of time before the end of serving, capture" in done.output
    assert call(tmp_path, "--only", "serving,capture").exit_code == 0
    assert {path.stem for path in tmp_path.glob("*.json")} == {"serving", "capture", "gpu"}


def test_a_process_is_stopped_at_its_time_limit() -> None:
    assert on_gpu._process(["-c", "import time; time.sleep(600)"], 0.5) is None
