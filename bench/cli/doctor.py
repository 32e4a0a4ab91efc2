"""``bench doctor``: whether a run would work here, and what to do if not.

The checks only concern this machine. They leave nothing behind except the results folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import click

from bench.cli.options import results_option
from bench.errors import BenchError, ConfigError
from bench.packages import READER, MissingPackageError, require
from bench.run.redaction import redacted

DISTRIBUTION = "longdoc-bench"
MIN_DISK_BYTES = 200_000_000
"""Less is a failure: the default tables with their indexes and the MLflow store need about this much."""
ENOUGH_DISK_BYTES = 2_000_000_000
SELF_TEST_S = 10.0
"""Expected time of the self-test, in seconds; if it takes longer, the default tables take hours."""
TOOL_TIMEOUT_S = 60.0
"""Time limit for pip and MLflow, in seconds."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "warning", "failed", "skipped"]
    detail: str
    remedy: str = ""
    """What to do; set for every warning and failure."""
    seconds: float = 0.0


@click.command(name="doctor")
@results_option
@click.option(
    "--self-test/--no-self-test", default=True, show_default=True, help="answer one question, in ten seconds"
)
@click.option("--model", help="also check this model behind a server: server:URL#MODEL")
@click.option("--json", "as_json", is_flag=True, help="one JSON document instead of text")
def command(results: Path, self_test: bool, model: str | None, as_json: bool) -> None:
    """Check Python, packages, methods, results folder, disk, device, MLflow store and a short run.

    With --model also a server: who answers, its tokenizer, three prompts, log-probabilities.
    Exit code 1 if a check fails.
    """
    checks: list[Check] = []
    for check in examine(results, self_test=self_test, model=model):
        checks.append(check)
        if not as_json:
            click.echo(f"{check.state:<8} {check.name:<10} {check.detail}")
            if check.remedy:
                click.echo(f"{'':<19} -> {check.remedy}")
    if as_json:
        click.echo(json.dumps({"ok": healthy(checks), "checks": [asdict(c) for c in checks]}, indent=2))
    elif healthy(checks):
        unread = any(check.name == "self-test" and check.state == "skipped" for check in checks)
        click.echo(
            "Ready to score and to render; a reader needs more packages." if unread else "Ready to run."
        )
    else:
        failed = ", ".join(check.name for check in checks if check.state == "failed")
        click.echo(f"Not ready to run: {failed}.")
    if not healthy(checks):
        raise SystemExit(1)


def examine(results: Path, *, self_test: bool = True, model: str | None = None) -> Iterator[Check]:
    """Run the checks one by one, quick ones first.

    results: the folder that runs would write to. self_test: also answer one question with the shipped model,
    in a temporary folder. model: the address of a served model, checked after everything else. Raises
    ConfigError for a model that is not served.
    """
    server = None if model is None else _Server(model)
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", _python),
        ("packages", _packages),
        ("methods", _methods),
        ("results", lambda: _results(results)),
        ("disk", lambda: _disk(results)),
        ("device", _device),
        ("threads", _threads),
        ("mlflow", lambda: _mlflow(results)),
    ]
    if self_test:
        checks.append(("self-test", _self_test))
    if server is not None:
        checks += server.checks()
    for name, run_check in checks:
        started = time.monotonic()
        try:
            check = run_check()
        except MissingPackageError as error:
            check = Check(name, "skipped", str(error))
        except BenchError as error:
            check = Check(name, "failed", str(error), "Follow the message.")
        except Exception as error:  # a broken check is reported, and the others still run
            detail = f"the check itself failed: {type(error).__name__}: {error}"
            check = Check(name, "failed", detail, "Run: make setup. If that does not help, report this.")
        yield replace(check, detail=redacted(check.detail), seconds=round(time.monotonic() - started, 2))


def healthy(checks: Sequence[Check]) -> bool:
    """Whether no check failed; warnings do not count."""
    return all(check.state != "failed" for check in checks)


def _python() -> Check:
    detail = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        remedy = "The suite is tested on Linux; other systems may lack file locks."
        return Check("python", "warning", detail, remedy)
    return Check("python", "ok", detail)


def _packages() -> Check:
    """Whether ``pip check`` accepts the installed versions."""
    if importlib.util.find_spec("pip") is None:
        return Check("packages", "skipped", "pip is not installed, so the packages cannot be checked")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_TIMEOUT_S)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0:
        return Check("packages", "ok", " ".join(lines))
    ours = [line for line in lines if line.startswith(DISTRIBUTION)]
    remedy = "Run: make setup  (or pip install -c constraints.txt -e .)"
    return Check("packages", "failed" if ours else "warning", "; ".join(ours or lines), remedy)


def _methods() -> Check:
    from bench.method.registry import BrokenPluginError, registered_methods

    broken = []
    methods = registered_methods()
    for entry in methods.values():
        try:
            entry.load()
        except BrokenPluginError as error:
            broken.append(str(error))
    if broken:
        remedy = "Repair or uninstall the named package."
        return Check("methods", "failed", "; ".join(broken), remedy)
    if not methods:
        remedy = "Run: pip install -e .  (or make setup)"
        return Check("methods", "failed", "no method is registered", remedy)
    return Check("methods", "ok", f"{len(methods)} methods")


def _results(results: Path) -> Check:
    """Whether the folder supports what a run needs: files, fsync, renames, locks."""
    from bench.files.atomic import write_text

    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".doctor.", dir=results) as folder:
        write_text(Path(folder) / "file", "x")
        with (Path(folder) / ".lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                detail = f"{results} cannot lock files: {error.strerror or error}"
                remedy = "Use a folder on another file system: --results DIR or BENCH_RESULTS=DIR."
                return Check("results", "failed", detail, remedy)
    return Check("results", "ok", f"{results.resolve()} can be written and locked")


def _disk(results: Path) -> Check:
    free = shutil.disk_usage(results if results.is_dir() else Path.cwd()).free
    detail = f"{free / 1e9:,.1f} GB free for {results}"
    if free >= ENOUGH_DISK_BYTES:
        return Check("disk", "ok", detail)
    remedy = "Free some space, or use another folder: --results DIR or BENCH_RESULTS=DIR."
    return Check("disk", "failed" if free < MIN_DISK_BYTES else "warning", detail, remedy)


def _device() -> Check:
    require("A model in this process", *READER)
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        detail = f"{torch.cuda.device_count()} x {name}, {free / 1e9:,.1f} of {total / 1e9:,.1f} GB free"
        if free < total / 2:
            remedy = "Another program uses the memory; see nvidia-smi."
            return Check("device", "warning", detail, remedy)
        return Check("device", "ok", f"{detail}, torch {torch.__version__}")
    detail = f"CPU, torch {torch.__version__}"
    if shutil.which("nvidia-smi") and torch.version.cuda is None:
        remedy = (
            "This torch has no CUDA: pip install torch --index-url https://download.pytorch.org/whl/cu128"
        )
        return Check("device", "warning", f"{detail}, although there is an NVIDIA driver", remedy)
    return Check("device", "ok", detail)


def _threads() -> Check:
    """The number of processes and threads that a command would use right now."""
    require("A model in this process", *READER)
    from bench.models.spec import resolve
    from bench.run.threads import Threads, processes

    workers, threads = processes(), Threads.begin().choose([resolve("tiny")])
    detail = (
        f"table, figure and sweep: {_counted(workers.count, 'process')} ({workers.why}), each with "
        f"{_counted(threads.count, 'thread')} ({threads.why}); see --workers and --threads"
    )
    return Check("threads", "ok", detail)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "es" if what.endswith("s") else "s")


_MLFLOW_PROBE = """
import logging
logging.disable(logging.CRITICAL)
import mlflow
try:
    experiments = mlflow.MlflowClient().search_experiments()
except Exception as error:
    print(str(error).strip().splitlines()[0])
    raise SystemExit(1)
print(f"{len(experiments)} experiments")
"""


def _mlflow(results: Path) -> Check:
    """Whether MLflow can open the store that runs are mirrored to; if not, with MLflow's message."""
    from bench.tracking.store import OFF, choose_store, is_server, public_uri, scrub, sqlite_path

    uri = choose_store(results)
    if uri == OFF:
        return Check("mlflow", "skipped", "mirroring is off (BENCH_TRACKING_URI=off)")
    require("Showing cells in MLflow", "mlflow")
    shown, database = public_uri(uri), sqlite_path(uri)
    if database is not None and not database.exists():
        return Check("mlflow", "ok", f"{shown} will be created by the first run")
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": uri,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    if is_server(uri):
        remedy = (
            "Start the server, correct BENCH_TRACKING_URI / MLFLOW_TRACKING_URI, or run with --no-track; "
            "records are written in any case, and bench ui mirrors them later."
        )
    else:
        remedy = "Rebuild the store from the records: bench ui --rebuild"
    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as folder:  # MLflow may leave an empty ./mlruns
        try:
            done = subprocess.run(
                [sys.executable, "-c", _MLFLOW_PROBE],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TOOL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Check("mlflow", "failed", f"{shown}: no answer in {TOOL_TIMEOUT_S:g} s", remedy)
    output = scrub((done.stdout or done.stderr).strip(), uri).splitlines() or ["nothing"]
    if done.returncode:
        return Check("mlflow", "failed", f"{shown}: MLflow says: {output[-1]}", remedy)
    return Check("mlflow", "ok", f"{shown}, {output[-1]}")


def _self_test() -> Check:
    """Answer one question of a sample set with the shipped model, and check that a second run skips it."""
    from bench.results.records import RECORDS_FILE, read_records
    from bench.run.cell import CellRequest, plan_cell
    from bench.run.session import Session

    remedy = "Run: make setup, then bench doctor again; if it still fails, report the message."
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as folder:
        with _quiet():
            cell = plan_cell(CellRequest("bm25", "qasper", limit=1))
            first = Session(Path(folder)).run(cell)
            again = Session(Path(folder)).run(cell)
        (record,) = read_records(first.folder / RECORDS_FILE)
    elapsed_s = time.monotonic() - started
    if record.error is not None:
        return Check("self-test", "failed", f"the question failed: {record.error}", remedy)
    if not (first.answered == 1 and again.answered == 0 and record.flops.query > 0 and record.context):
        return Check("self-test", "failed", "the record is not as expected", remedy)
    detail = f"bm25 with tiny answered a question of qasper in {elapsed_s:.1f} s"
    if elapsed_s > SELF_TEST_S:
        slow = "This machine is slow or busy; the default tables will take hours."
        return Check("self-test", "warning", detail, slow)
    return Check("self-test", "ok", detail)


_ONLY_GENERATE = (
    "Methods that only generate work. Those that ask how likely Yes is, as a search does, need vLLM, SGLang "
    "or llama.cpp."
)


class _Server:
    """The checks of a served model; each needs those before it."""

    def __init__(self, model: str) -> None:
        """Raises ConfigError for an address that is malformed, or a model that is not served."""
        from bench.models.spec import ServedSpec, resolve

        spec = resolve(model)
        if not isinstance(spec, ServedSpec):
            raise ConfigError(
                f"--model {model}: doctor checks models behind a server, server:URL#MODEL. Of one on this "
                f"machine: bench model info {model}"
            )
        self._spec = spec
        self._missing = ""
        """The first check that was not passed."""

    def checks(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """Name and check, in order."""
        for name, run_check in (
            ("server", self._reached),
            ("tokenizer", self._has_tokenizer),
            ("prompts", self._answers),
            ("yes or no", self._says_how_likely),
        ):
            yield name, partial(self._in_turn, name, run_check)

    def _in_turn(self, name: str, run_check: Callable[[], str | Check]) -> Check:
        if self._missing:
            return Check(name, "skipped", f"needs the check {self._missing!r}")
        self._missing = name
        with _quiet():
            detail = run_check()
        self._missing = ""
        return detail if isinstance(detail, Check) else Check(name, "ok", detail)

    def _reached(self) -> str:
        """Kind, version, and what it says of the model."""
        from bench.models.served.client import ServerClient
        from bench.models.served.dialects import TITLES, describe

        address = self._spec.address
        server = describe(address, ServerClient(address).get)
        title = f"{TITLES[server.kind]} {server.version or 'of unknown version'}"
        prompts = "token ids" if server.takes_ids else "text"
        most = f"at most {server.max_tokens:,} tokens" if server.max_tokens else "context length unknown"
        return f"{address.url}: {title}, {address.model}, prompts as {prompts}, {most}"

    def _has_tokenizer(self) -> str:
        """The model's own tokenizer and shape, on this machine."""
        from bench.models.loader import load_tokenizer

        load_tokenizer(self._spec.twin)
        return f"{self._spec.twin.name}, {self._spec.architecture.parameters / 1e6:,.0f} M parameters"

    def _answers(self) -> str:
        """Whether it answers as a run needs it: greedily, in full, with our number of tokens."""
        from bench.models.model_set import connect_embedder, connect_language_model

        if self._spec.kind == "encoder":
            vectors = asyncio.run(connect_embedder(self._spec).embed(["One text.", "Another."]))
            return f"2 texts became vectors of length {vectors.shape[1]}, our count of tokens"
        asyncio.run(connect_language_model(self._spec).require())
        return "3, each asked twice: the same text, our count of tokens, an end at the end of turn"

    def _says_how_likely(self) -> str | Check:
        """Whether it says how likely a word is, which only some methods need."""
        from bench.models.model_set import connect_language_model
        from bench.models.served.client import ServerError

        if self._spec.kind == "encoder":
            return "not asked of an encoder"
        try:
            of_any = asyncio.run(connect_language_model(self._spec).require_probes(""))
        except (ServerError, ConfigError) as error:
            return Check("yes or no", "warning", str(error).strip(), _ONLY_GENERATE)
        if of_any:
            return "it says how likely each is"
        detail = "it says how likely the likeliest words are; Yes and No may not be among them"
        return Check("yes or no", "warning", detail, _ONLY_GENERATE)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the steps and warnings that a run would log."""
    logger = logging.getLogger("bench")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
