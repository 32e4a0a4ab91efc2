"""``bench doctor``: whether a run would work here, and what to do if not.

The checks concern this machine, or one model behind a server; they leave nothing behind.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import click

from bench.cli.options import results_option
from bench.errors import BenchError, ConfigError
from bench.packages import READER, MissingPackageError, require
from bench.run.redaction import redacted

MIN_DISK_BYTES, ENOUGH_DISK_BYTES = 200_000_000, 2_000_000_000
"""Free disk below which a check fails, or warns: the default tables need about the first."""
MIN_MEMORY_BYTES = 2_000_000_000
"""Free memory below which a check warns: a process with a small reader needs about half of it."""
_ONLY_GENERATE = (
    "Methods that only generate work. Those that ask how likely Yes is, as a search does, need a server that "
    "gives log-probabilities."
)


State: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    state: State
    detail: str
    remedy: str = ""
    """What to do; set for every warning and failure."""


@click.command(name="doctor")
@results_option
@click.option("--model", help="check this model behind a server instead: server:URL#MODEL")
def command(results: Path, model: str | None) -> None:
    """Check packages, memory and device, and answer one question; exit code 1 if a check fails.

    With --model a server: who answers, its tokenizer, three prompts, log-probabilities.
    """
    states = set()
    of_this_machine = {
        "packages": _packages,
        "memory": lambda: _memory(results),
        "device": _device,
        "question": _question,
    }
    for name, run_check in of_this_machine.items() if model is None else _of_server(model):
        check = _examined(run_check)
        states.add(check.state)
        click.echo(f"{check.state:<8} {name:<10} {redacted(check.detail)}")
        if check.remedy:
            click.echo(f"{'':<19} -> {check.remedy}")
        if model is not None and check.state == "failed":
            break  # the following checks need this one
    if "failed" in states:
        click.echo("Not ready to run.")
        raise SystemExit(1)
    click.echo("Ready to score and to render; a reader needs packages." if "skipped" in states else "Ready.")


def _examined(run_check: Callable[[], Check]) -> Check:
    """The check's result; one that raises has failed."""
    logging.disable(logging.WARNING)  # steps and warnings that a run would log
    try:
        return run_check()
    except MissingPackageError as error:
        return Check("skipped", str(error))
    except BenchError as error:
        return Check("failed", str(error), "Follow the message.")
    except Exception as error:  # a broken check is reported, and the others still run
        detail = f"the check itself failed: {type(error).__name__}: {error}"
        return Check("failed", detail, "Run: make setup. If that does not help, report this.")
    finally:
        logging.disable(logging.NOTSET)


def _packages() -> Check:
    """Whether ``pip check`` accepts the installed versions."""
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if importlib.util.find_spec("pip") is None:
        return Check("ok", f"{python}; without pip the versions cannot be checked")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "; ".join(done.stdout.strip().splitlines())
    if done.returncode == 0:
        return Check("ok", f"{python}, {said}")
    state: State = "failed" if "longdoc-bench" in said else "warning"
    return Check(state, said, "Run: make setup  (or pip install -c constraints.txt -e .)")


def _memory(results: Path) -> Check:
    """Free memory, and disk for the results."""
    import psutil

    memory = psutil.virtual_memory().available
    place = next(one for one in (results.resolve(), *results.resolve().parents) if one.is_dir())
    disk = shutil.disk_usage(place).free
    detail = f"{memory / 1e9:,.1f} GB of memory free, {disk / 1e9:,.1f} GB of disk for {results}"
    if disk < ENOUGH_DISK_BYTES:
        remedy = "Free some space, or use another folder: --results DIR or BENCH_RESULTS=DIR."
        return Check("failed" if disk < MIN_DISK_BYTES else "warning", detail, remedy)
    if memory < MIN_MEMORY_BYTES:
        return Check("warning", detail, "End other programs, or run with --workers 1.")
    return Check("ok", detail)


def _device() -> Check:
    require("A model in this process", *READER)
    import torch

    if not torch.cuda.is_available():
        detail = f"CPU, torch {torch.__version__}"
        if shutil.which("nvidia-smi") and torch.version.cuda is None:
            remedy = "pip install torch --index-url https://download.pytorch.org/whl/cu128"
            return Check("warning", f"{detail} without CUDA, although there is an NVIDIA driver", remedy)
        return Check("ok", detail)
    free, total = torch.cuda.mem_get_info()
    gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    detail = f"{gpus}, {free / 1e9:,.1f} of {total / 1e9:,.1f} GB free, torch {torch.__version__}"
    if free < total / 2:
        return Check("warning", detail, "Another program uses the memory; see nvidia-smi.")
    return Check("ok", detail)


def _question() -> Check:
    """Answer one question of a sample set with the shipped model."""
    require("A model in this process", *READER)
    from bench.run.cell import CellRequest, plan_cell
    from bench.run.session import Session

    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as folder:
        (record,) = Session(Path(folder)).run(plan_cell(CellRequest("bm25", "qasper", limit=1))).records
    if record.error is not None:
        remedy = "Run: make setup, then bench doctor again; if it still fails, report the message."
        return Check("failed", f"the question failed: {record.error}", remedy)
    return Check("ok", f"bm25 with tiny answered a question of qasper in {record.wall_s:.1f} s")


def _of_server(model: str) -> Iterator[tuple[str, Callable[[], Check]]]:
    """The checks of a served model, each of which needs those before; raises ConfigError for another."""
    from bench.models.loader import load_tokenizer
    from bench.models.model_set import connect_language_model
    from bench.models.served.address import is_address, parse_address
    from bench.models.served.client import ServerClient, ServerError
    from bench.models.served.dialects import TITLES, describe
    from bench.models.spec import resolve

    if not is_address(model):
        raise ConfigError(
            f"--model {model}: doctor checks models behind a server, server:URL#MODEL. Of one on this "
            f"machine: bench model info {model}"
        )
    address = parse_address(model)

    def reached() -> Check:
        server = describe(address, ServerClient(address).get)
        title = f"{TITLES[server.kind]} {server.version or 'of unknown version'}"
        most = f"at most {server.max_tokens:,} tokens" if server.max_tokens else "context length unknown"
        return Check("ok", f"{address.url}: {title}, {address.model}, {most}")

    def has_tokenizer() -> Check:
        load_tokenizer(spec)
        name = spec.identity()["tokenizer"]
        return Check("ok", f"{name}, {spec.architecture.parameters / 1e6:,.0f} M parameters")

    def answers() -> Check:
        asyncio.run(connect_language_model(spec).require())
        return Check("ok", "3, each asked twice: same text, our count of tokens, an end at the end of turn")

    def says_how_likely() -> Check:
        try:
            of_any = asyncio.run(connect_language_model(spec).require_probes(""))
        except (ServerError, ConfigError) as error:
            return Check("warning", str(error).strip(), _ONLY_GENERATE)
        if of_any:
            return Check("ok", "it says how likely each is")
        detail = "it says how likely the likeliest words are; Yes and No may not be among them"
        return Check("warning", detail, _ONLY_GENERATE)

    yield "server", reached
    spec = resolve(model)
    yield "tokenizer", has_tokenizer
    yield "prompts", answers
    yield "yes or no", says_how_likely
