"""``python -m performance``: run benchmarks, each in a process of its own, and write their report."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bench.errors import BenchError, UnknownNameError
from bench.run.provenance import git_commit
from performance import LONG, NAMES, report
from performance.command import run_command
from performance.measuring import ChildFailedError, in_own_process
from performance.table1 import AGAINST


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="seconds instead of minutes: to see that they work")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="folder of RESULTS.md and results/; default: this one, and nothing is written with --quick",
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="with table1: a worktree of another commit, with its .venv",
)
def command(names: tuple[str, ...], quick: bool, out: Path | None, against: str | None) -> None:
    """Run the named benchmarks (default: all but the long ones); a failed one does not stop the others."""
    for name in names:
        if name not in (*NAMES, *LONG):
            raise UnknownNameError("benchmark", name, (*NAMES, *LONG))
    if out is None and not quick:
        out = Path(__file__).resolve().parent
    if against is not None:
        os.environ[AGAINST] = against
    commit = git_commit()  # before the results of this run change the tree
    failed = []
    for name in names or NAMES:
        try:
            result = {**in_own_process("performance.report:run", name, quick), "commit": commit}
        except ChildFailedError as error:
            click.echo(f"{name} failed: {error}", err=True)
            failed.append(name)
            continue
        click.echo("\n".join(report.section(result)) + "\n")
        if out is not None:
            report.write(result, out)
    if failed:
        raise BenchError(f"failed: {', '.join(failed)}; the results of the others are written.")


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    run_command(command, "performance", argv)


if __name__ == "__main__":
    main()
