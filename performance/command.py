"""The command line of a script in this folder."""

from __future__ import annotations

import logging
import sys

import click

from bench.errors import BenchError


def run_command(command: click.Command, name: str, argv: list[str] | None = None) -> None:
    """Run the command line; a BenchError is printed as its text alone, with exit code 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        command.main(args=argv, prog_name=name, standalone_mode=True)
    except BenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
