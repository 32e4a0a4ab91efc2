"""What the command prints beside its results."""

import logging

import pytest

from bench.cli.main import log_to_stderr, main


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


def test_a_path_that_the_system_refuses_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "long" * 80])
    assert "error: [Errno 36] File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["bench", "longdoc-bench"])
def test_a_shell_completes_either_name(
    shell: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    monkeypatch.setattr("sys.argv", [f"/usr/bin/{name}"])
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", staticmethod(lambda: None))
    monkeypatch.setenv(variable, f"{shell}_source")
    with pytest.raises(SystemExit) as end:
        main()
    script = capsys.readouterr().out
    assert end.value.code == 0 and f"{variable}={shell}_complete" in script and name in script
    monkeypatch.setenv(variable, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"{name} list me")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out == "plain,methods\n"
