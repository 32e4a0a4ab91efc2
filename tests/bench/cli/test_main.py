"""What the command prints beside its results."""

from __future__ import annotations

import logging

import pytest

from bench.cli.main import log_to_stderr


@pytest.fixture(autouse=True)
def _handlers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bench", "methods"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])


def test_a_warning_is_printed_once_however_many_requests_meet_it(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    log = logging.getLogger("bench.models.served.client")
    for _ in range(32):
        log.warning("%s: %s; trying again", "http://127.0.0.1:8000/v1", "busy")
        log.info("a step")
    log.warning("another")
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("a step") == 32
    assert [line for line in lines if line != "a step"] == [
        "warning: http://127.0.0.1:8000/v1: busy; trying again",
        "warning: another",
    ]


def test_a_warning_is_printed_again_after_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(quiet_s=0)
    log = logging.getLogger("bench")
    log.warning("busy")
    log.warning("busy")
    assert capsys.readouterr().err == "warning: busy\n" * 2
