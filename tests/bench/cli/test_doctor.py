import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.cli.doctor import Check
from bench.cli.main import command
from bench.errors import ConfigError
from tests.servers import Body, Post, serving, vllm_app

pytestmark = pytest.mark.usefixtures("cache")


def doctor(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["doctor", *map(str, arguments)])


def states(result: Result) -> dict[str, str]:
    """Name of a check -> its state."""
    lines = [line for line in result.output.splitlines() if line[:1].islower()]
    return {line[9:19].strip(): line.split()[0] for line in lines}


def test_a_sound_machine_passes_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = doctor("--results", tmp_path / "results")
    assert done.exit_code == 0 and done.output.endswith("Ready.\n"), done.output
    assert list(states(done)) == ["packages", "memory", "device", "question"]
    assert "answered a question of qasper" in done.output
    assert not (tmp_path / "results").exists()


def test_what_fails_has_a_remedy_and_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("what now")

    monkeypatch.setattr("bench.cli.doctor._question", broken)
    monkeypatch.setattr("bench.cli.doctor._packages", lambda: Check("ok", ""))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000_000))
    done = doctor("--results", tmp_path)
    assert done.exit_code == 1 and done.output.endswith("Not ready to run.\n")
    assert (states(done)["memory"], states(done)["question"]) == ("failed", "failed")
    assert "0.1 GB of disk" in done.output and "-> Free some space" in done.output
    assert "RuntimeError: what now" in done.output


def test_what_pip_says_of_ours_fails_of_others_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "jupyter 1.0 requires notebook, which is not installed."
    own = "longdoc-bench 0.1.0 has requirement click>=8.1, but you have click 7.0."
    monkeypatch.setattr("bench.cli.doctor._question", lambda: Check("ok", ""))
    for code, said, state in ((0, "fine", "ok"), (1, other, "warning"), (1, f"{other}\n{own}", "failed")):
        done = SimpleNamespace(returncode=code, stdout=said)
        monkeypatch.setattr(subprocess, "run", lambda *_, done=done, **__: done)
        assert states(doctor("--results", tmp_path))["packages"] == state


def of_server(app: Any) -> Result:
    with serving(app) as url:
        return doctor("--model", f"server:{url}#tiny")


def test_a_sound_server_passes() -> None:
    done = of_server(vllm_app())
    assert done.exit_code == 0 and set(states(done).values()) == {"ok"}
    assert "vLLM 0.33.0" in done.output
    assert "4 M parameters" in done.output


def test_a_server_that_says_of_no_word_how_likely_it_is_can_still_generate() -> None:
    async def without(body: Body, post: Post) -> Any:
        answer = await post(body)
        return {**answer, "choices": [{**answer["choices"][0], "logprobs": None}]}

    done = of_server(vllm_app(without))
    assert list(states(done).values()) == ["ok", "ok", "ok", "warning"]
    assert "gives no log-probabilities" in done.output and "only generate work" in done.output


def test_a_model_of_this_machine_is_refused_by_the_check_of_servers() -> None:
    error = doctor("--model", "tiny").exception
    assert isinstance(error, ConfigError) and "bench model info tiny" in str(error)
