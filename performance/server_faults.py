"""What a run prints and keeps when a real vLLM fails: ``python -m performance.server_faults``.

Three starts of the server that ``make test-servers`` installs: with a key; again after it was killed in the
middle of a run; and in its place another model under the same name, with a short context. Each line has the
fault, the exit code, how many questions were kept, and the end of what was printed. Statuses such as 429 and
503, and connections that hang, are injected by ``tests/bench/faults/test_served_models.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from safetensors.torch import load_file, save_file

from performance.measuring import REPOSITORY
from performance.serve import SERVERS, command, free_port, start, stop

TINY = REPOSITORY / "bench" / "assets" / "tiny"
WORK = ("--method", "memwalker", "--dataset", "qasper", "--limit", "12", "--in-flight", "1")
RIGHT = "right-key"


class Run:
    """A ``bench run`` of a process of its own."""

    def __init__(self, address: str, results: Path, key: str = RIGHT, *more: str) -> None:
        self.results = results
        program = str(Path(sys.executable).parent / "bench")
        line = [program, "run", *WORK, "--model", address, "--results", str(results), *more]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "BENCH_API_KEY": key},
        )  # fmt: skip

    def kept(self) -> dict[str, Mapping[str, Any]]:
        """Example id -> its record so far, without the clock and what came from a cache."""
        lines = [line for path in self.results.rglob("records.jsonl") for line in path.open()]
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        # What a server has in its cache is no promise.
        return {
            row["example_id"]: {**row, "wall_s": 0, "tokens": {**row["tokens"], "computed": 0}}
            for row in rows
        }

    def wait_for(self, records: int) -> None:
        """Return once so many questions are recorded, or the run has ended."""
        while self.process.poll() is None and len(self.kept()) < records:
            time.sleep(0.05)

    def told(self, fault: str) -> None:
        """Wait for the end and print what it was."""
        printed, _ = self.process.communicate(timeout=900)
        lines = [line for line in printed.splitlines() if line.strip()]
        click.echo(f"{fault}: exit {self.process.returncode}, {len(self.kept())} questions kept")
        click.echo("".join(f"    {line[:400]}\n" for line in lines[-4:]))


def main() -> None:
    """Let a real vLLM fail, and print a paragraph a fault."""
    if not (SERVERS / "vllm").is_dir():
        raise SystemExit("vLLM is not installed here. Run: make test-servers")
    with tempfile.TemporaryDirectory() as folder:
        _faults(Path(folder))


def _faults(work: Path) -> None:
    port = free_port()
    address = f"server:http://127.0.0.1:{port}/v1#tiny"
    log = work / "vllm.log"
    same = command("vllm", TINY, "tiny", port, work, "--api-key", RIGHT)
    other = command("vllm", _another_model(work), "tiny", port, work, "--api-key", RIGHT)

    server = start(same, port, log)
    try:
        Run(address, work / "wrong", "wrong-key").told("wrong key")
        Run(address, work / "none", "").told("no key")
        undisturbed = Run(address, work / "undisturbed")
        undisturbed.told("no fault")

        killed = Run(address, work / "killed")
        killed.wait_for(4)
        os.killpg(server.pid, signal.SIGKILL)
        stop(server)
        click.echo(f"killed after {len(killed.kept())} questions")
        server = start(same, port, log)
        killed.told("killed and started again")
        click.echo(f"    records equal to those without a fault: {killed.kept() == undisturbed.kept()}\n")

        replaced = Run(address, work / "replaced")
        replaced.wait_for(4)
        os.killpg(server.pid, signal.SIGKILL)
        stop(server)
        server = start([*other, "--max-model-len", "1024"], port, log)
        replaced.told("another model under the same name")
        Run(address, work / "short").told("a context shorter than the window")
    finally:
        stop(server)


def _another_model(work: Path) -> Path:
    """The shipped model with other weights, in a folder of another name."""
    folder = work / "other"
    folder.mkdir()
    for file in TINY.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    weights = {name: 0.9 * tensor for name, tensor in load_file(TINY / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


if __name__ == "__main__":
    main()
