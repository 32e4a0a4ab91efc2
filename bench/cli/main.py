"""The ``bench`` command; subcommands are imported when called, so that ``bench --help`` loads no torch."""

from __future__ import annotations

import importlib
import logging
import math
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import click

from bench import __version__
from bench.cli.commands import COMMANDS
from bench.errors import BenchError, UnknownNameError
from bench.files.printable import printable
from bench.packages import BROUGHT_BY, missing

NAMES = ("bench", "longdoc-bench")
QUIET_S = 600.0
"""Seconds in which a warning is not printed again; an outage hours later is news."""


class _LazyGroup(click.Group):
    """A group that imports a subcommand only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"bench.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; an interruption is one line and exit code 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted. Every finished question is kept; the same command resumes.", err=True)
            raise SystemExit(130) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":
            self.main(args=[*args[1:], "--help"], prog_name=ctx.info_name)
        if name not in COMMANDS and not name.startswith("-"):
            from bench.cli.list import command as lists

            listed = f"{name.removesuffix('s')}s"
            if listed in lists.commands:
                raise BenchError(f"Unknown command {name!r}. Did you mean: bench list {listed}")
            from bench.method.registry import registered_methods

            if name in registered_methods():
                raise BenchError(
                    f"Unknown command {name!r}. Did you mean: bench run --method {name} --dataset NAME"
                )
            raise UnknownNameError("command", name, COMMANDS, hint="See: bench --help")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Completion in bash: eval "$(_BENCH_COMPLETE=bash_source bench)"; also zsh_source, fish_source.',
)
@click.version_option(__version__, "-V", "--version", package_name="longdoc-bench", prog_name="bench")
def command() -> None:
    """Which way of reading a long document gives the best answers per unit of compute?"""


class _Plain(logging.Formatter):
    """Formats steps of a long command as plain text, warnings and errors with their level."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return printable(text if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {text}")


class _Repeats(logging.Filter):
    """Drops a warning that was printed a short while ago: of the next cell, or the next of many requests."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text, now = record.getMessage(), time.monotonic()
        if now - self._printed.get(text, -math.inf) < QUIET_S:
            return False
        self._printed[text] = now
        return True


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what is standard error now: a display of progress takes its place while it draws."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr() -> None:
    """Log our own steps and warnings to stderr; libraries keep their logging."""
    handler = _ToStderr()
    handler.setFormatter(_Plain())
    handler.addFilter(_Repeats())
    for name in ("bench", "methods"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every error of the user's is one line, with exit code 2."""
    log_to_stderr()
    called = Path(sys.argv[0]).name  # completion and usage are for the name under which it was called
    try:
        name = called if called in NAMES else NAMES[0]
        sys.exit(command.main(args=argv, prog_name=name, standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "bench"
        click.echo(printable(f"error: {error.format_message()} See: {where} --help"), err=True)
        sys.exit(2)
    except BrokenPipeError:  # whoever reads the output has enough of it
        sys.stdout = None
        sys.exit(1)
    except (BenchError, click.ClickException, OSError) as error:
        click.echo(printable(f"error: {error}"), err=True)
        sys.exit(2)
    except click.Abort:
        click.echo("Stopped; nothing was changed.", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in BROUGHT_BY:
            raise
        click.echo(f"error: {missing('This command', package)}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
