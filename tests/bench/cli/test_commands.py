"""The command line as a whole: what commands take, how one is interrupted, what is gone."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bench.cli.commands import COMMANDS
from bench.cli.main import command
from bench.errors import BenchError, ConfigError
from bench.run.hooks import RunHooks


class Closed(RunHooks):
    closed = 0

    def close(self) -> None:
        Closed.closed += 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--method", "bm25", "--dataset", "qasper"],
        ["table", "table1", "--dataset", "qasper"],
        ["sweep", "--method", "bm25", "--dataset", "qasper", "k=1:2"],
    ],
)
def test_an_interrupted_command_says_what_is_kept_and_closes_its_session(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.run.session.run_group", interrupted)
    monkeypatch.setattr("bench.tracking.hooks.MlflowHooks", lambda results: Closed())
    before = Closed.closed
    done = CliRunner().invoke(command, [*arguments, "--limit", "1", "--results", str(tmp_path)])
    assert done.exit_code == 130
    assert "Interrupted. Every finished question is kept; the same command resumes." in done.output
    assert Closed.closed == before + 1


def listed(cli_command: click.Command) -> list[str]:
    return [one.opts[0] for one in cli_command.params if isinstance(one, click.Option) and not one.hidden]


def test_there_are_few_commands_with_few_flags() -> None:
    assert len(COMMANDS) <= 16
    for name in COMMANDS:
        found = importlib.import_module(f"bench.cli.{name}").command
        for one in found.commands.values() if isinstance(found, click.Group) else [found]:
            assert len(listed(one)) < 16, one.name  # and --help


def run(*arguments: str | Path, **variables: str) -> Any:
    return CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False, env=variables)


def test_options_come_from_a_file_or_the_environment_and_a_flag_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setattr("bench.run.session.Session.run", lambda session, cell: taken.append((session, cell)))
    monkeypatch.setattr("bench.cli.run.report_lines", lambda cell, finished: [])
    file = tmp_path / "bench.yaml"
    file.write_text("dataset: qasper\nlimit: 3\nin-flight: 5\ntrack: false\nset: {k: 2}\ncolumns: costs\n")
    arguments = ("run", "--method", "bm25:b=0", "--results", tmp_path, "--config", file)
    with pytest.raises(AttributeError):  # there is nothing to report
        run(*arguments, "--limit", "2", BENCH_TIMEOUT="7")
    ((session, cell),) = taken
    assert (session.asking.in_flight, session.asking.timeout_s) == (5, 7)
    assert (cell.request.limit, cell.request.options) == (2, {"k": 2, "b": 0})
    assert not any(type(hook).__name__ == "MlflowHooks" for hook in session.hooks)
    with pytest.raises(ConfigError, match="k stands in --method and in --set, or in a file's"):
        run("run", "--method", "bm25:k=3", *arguments[3:])
    file.write_text("dataset: qasper\nset:\n")  # nothing below it was a traceback
    with pytest.raises(AttributeError):
        run(*arguments)
    assert taken[1][1].request.options == {"b": 0}
    for text, refusal in (("in-fligth: 5", "Did you mean 'in-flight'"), ("words: [x]", "option 'words'")):
        file.write_text(text)  # words is no option
        with pytest.raises(BenchError, match=refusal):
            run(*arguments)
    file.write_text("limit: 2.5\n")
    assert "'2.5' is not a valid integer" in run(*arguments).output


def test_a_cell_of_several_processes_is_refused_where_one_can_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--workers 2: bench run answers"):
        run("run", "--method", "bm25", "--dataset", "qasper", "--workers", "2", "--results", tmp_path)
