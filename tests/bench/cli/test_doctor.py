from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import bench.cli.doctor
from bench.cli.doctor import Check, examine, healthy
from bench.cli.main import command
from bench.errors import ConfigError
from bench.method.registry import BrokenPluginError
from tests.servers import Body, Post, dialect_app, serving


@pytest.fixture(autouse=True)
def _own_store_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BENCH_TRACKING_URI", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


def said_by_pip(monkeypatch: pytest.MonkeyPatch, code: int, lines: str) -> None:
    """Let ``pip check`` end so, and MLflow as it does."""
    run = subprocess.run

    def stand_in(command: list[str], **options: Any) -> Any:
        if command[-1] == "check":
            assert command[:3] == [sys.executable, "-m", "pip"]
            return SimpleNamespace(returncode=code, stdout=lines)
        return run(command, **options)

    monkeypatch.setattr(bench.cli.doctor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(subprocess, "run", stand_in)


def checks(results: Path, **options: Any) -> dict[str, Check]:
    return {check.name: check for check in examine(results, **{"self_test": False, **options})}


def test_a_sound_environment_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    outcomes = checks(tmp_path / "results", self_test=True)
    assert [check.name for check in outcomes.values() if check.state == "failed"] == []
    assert list(outcomes) == [
        "python", "packages", "methods", "results", "disk", "device", "threads", "mlflow", "self-test",
    ]  # fmt: skip
    assert "answered a question of qasper" in outcomes["self-test"].detail
    assert list((tmp_path / "results").iterdir()) == []


def test_every_warning_and_failure_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000_000))
    monkeypatch.setattr("bench.method.registry.registered_methods", dict)
    outcomes = checks(tmp_path)
    assert (outcomes["disk"].state, outcomes["methods"].state) == ("warning", "failed")
    for check in outcomes.values():
        assert bool(check.remedy) == (check.state in ("warning", "failed")), check


def test_too_little_disk_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000_000))
    outcomes = checks(tmp_path)
    assert outcomes["disk"].state == "failed" and "0.1 GB free" in outcomes["disk"].detail
    assert not healthy(list(outcomes.values()))


def test_what_pip_says_of_our_requirements_fails_and_of_others_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "jupyter 1.0 requires notebook, which is not installed."
    own = "longdoc-bench 0.1.0 has requirement click>=8.1, but you have click 7.0."
    said_by_pip(monkeypatch, 0, "No broken requirements found.\n")
    assert checks(tmp_path)["packages"].state == "ok"
    said_by_pip(monkeypatch, 1, f"{other}\n")
    assert (checks(tmp_path)["packages"].state, checks(tmp_path)["packages"].detail) == ("warning", other)
    said_by_pip(monkeypatch, 1, f"{other}\n{own}\n")
    check = checks(tmp_path)["packages"]
    assert (check.state, check.detail) == ("failed", own) and "make setup" in check.remedy


def test_without_pip_the_packages_are_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.cli.doctor.importlib.util, "find_spec", lambda name: None)
    assert checks(tmp_path)["packages"].state == "skipped"


def test_a_broken_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise BrokenPluginError("Method 'mine' (from mine 1.0) cannot be imported")

    monkeypatch.setattr(
        "bench.method.registry.registered_methods", lambda: {"mine": SimpleNamespace(load=broken)}
    )
    check = checks(tmp_path)["methods"]
    assert check.state == "failed" and "mine 1.0" in check.detail


def test_a_results_folder_that_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcomes = checks(tmp_path / "file" / "results")
    assert outcomes["results"].state == "failed" and outcomes["results"].remedy


def test_the_tracking_store_is_opened_by_mlflow_and_its_own_message_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "will be created" in checks(tmp_path)["mlflow"].detail
    (tmp_path / "mlflow.db").write_bytes(b"this is no database" * 100)
    broken = checks(tmp_path)["mlflow"]
    assert broken.state == "failed" and "MLflow says: (sqlite3.DatabaseError)" in broken.detail
    assert "bench ui --rebuild" in broken.remedy
    monkeypatch.setenv("BENCH_TRACKING_URI", "http://ann:s3cret99@127.0.0.1:9")
    gone = checks(tmp_path)["mlflow"]
    assert gone.state == "failed" and "--no-track" in gone.remedy
    assert "s3cret99" not in str(gone)
    monkeypatch.setenv("BENCH_TRACKING_URI", "off")
    assert checks(tmp_path)["mlflow"].state == "skipped"


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("what now")

    monkeypatch.setattr(bench.cli.doctor, "_methods", broken)
    outcomes = checks(tmp_path)
    assert outcomes["methods"].state == "failed" and "RuntimeError: what now" in outcomes["methods"].detail
    assert outcomes["device"].state == "ok"


def test_the_command_prints_text_or_json_and_its_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["doctor", "--results", str(tmp_path), "--no-self-test"]
    good = CliRunner().invoke(command, arguments)
    assert good.exit_code == 0, good.output
    assert good.output.splitlines()[0].startswith("ok       python")
    assert good.output.endswith("Ready to run.\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    bad = CliRunner().invoke(command, arguments)
    assert bad.exit_code == 1
    assert "failed   disk" in bad.output and "-> Free some space" in bad.output
    assert bad.output.endswith("Not ready to run: disk.\n")
    as_json = CliRunner().invoke(command, [*arguments, "--json"])
    document = json.loads(as_json.output)
    assert as_json.exit_code == 1 and document["ok"] is False
    (disk,) = [check for check in document["checks"] if check["name"] == "disk"]
    assert disk["state"] == "failed" and disk["remedy"]


def of_server(results: Path, app: Any, options: str = "") -> dict[str, Check]:
    with serving(app) as url:
        outcomes = checks(results, model=f"server:{url}#tiny{options}")
    return {name: outcomes[name] for name in ("server", "tokenizer", "prompts", "yes or no")}


def test_a_sound_server_passes(tmp_path: Path) -> None:
    outcomes = of_server(tmp_path, dialect_app("vllm"))
    assert {check.state for check in outcomes.values()} == {"ok"}
    assert "vLLM 0.33.0" in outcomes["server"].detail and "prompts as token ids" in outcomes["server"].detail
    assert "4 M parameters" in outcomes["tokenizer"].detail


def test_a_served_encoder_is_asked_for_vectors(tmp_path: Path) -> None:
    with serving(dialect_app("vllm", model="minilm")) as url:
        outcomes = checks(tmp_path, model=f"server:{url}#minilm")
    assert outcomes["prompts"].state == "ok" and "vectors of length" in outcomes["prompts"].detail


def test_a_server_that_says_of_no_word_how_likely_it_is_can_still_generate(tmp_path: Path) -> None:
    async def without(body: Body, post: Post) -> Any:
        answer = await post(body)
        return {**answer, "choices": [{**answer["choices"][0], "logprobs": None}]}

    outcomes = of_server(tmp_path, dialect_app("openai", without))
    assert [check.state for check in outcomes.values()] == ["ok", "ok", "ok", "warning"]
    assert "gives no log-probabilities" in outcomes["yes or no"].detail
    assert "only generate work" in outcomes["yes or no"].remedy


def test_a_server_that_counts_otherwise_is_named_with_both_counts(tmp_path: Path) -> None:
    async def another(body: Body, post: Post) -> Any:
        answer = await post(body)
        return {**answer, "usage": {**answer["usage"], "prompt_tokens": 7}}

    outcomes = of_server(tmp_path, dialect_app("vllm", another))
    assert outcomes["prompts"].state == "failed" and "by our count and 7 by the" in outcomes["prompts"].detail
    assert outcomes["yes or no"].state == "skipped" and "'prompts'" in outcomes["yes or no"].detail


def test_a_server_that_takes_text_is_not_shown_control_tokens(tmp_path: Path) -> None:
    """llama.cpp's Python server counted 50 tokens where we counted 55: no such server could be used."""

    async def of_a_tokenizer_with_them(body: Body, post: Post) -> Any:
        answer = await post(body)
        counted = answer["usage"]["prompt_tokens"] - 5 * ("<|endoftext|>" in str(body["messages"]))
        return {**answer, "usage": {**answer["usage"], "prompt_tokens": counted}}

    assert of_server(tmp_path, dialect_app("openai", of_a_tokenizer_with_them))["prompts"].state == "ok"


def test_a_server_that_is_not_there_fails_and_what_needs_it_is_left_out(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcomes = checks(tmp_path, model=f"server:http://127.0.0.1:{port}/v1#tiny#patience=0.1")
    assert outcomes["server"].state == "failed" and "does not answer" in outcomes["server"].detail
    assert {outcomes[name].state for name in ("tokenizer", "prompts", "yes or no")} == {"skipped"}


def test_a_model_of_this_machine_is_refused_by_the_check_of_servers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bench model info tiny"):
        checks(tmp_path, model="tiny")
