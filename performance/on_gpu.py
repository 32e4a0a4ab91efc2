"""Everything that only a GPU can show: ``python -m performance.on_gpu OUT --minutes 9``.

The tests marked ``gpu``, then the steps of :mod:`performance.gpu`, on a model of random weights: no hub, no
account. Each step leaves ``OUT/NAME.json`` when it has ended; a step that is there already is not run again,
so that a machine that is lent for minutes at a time continues where it was stopped. ``OUT/gpu.json`` joins
them, and ``--keep`` writes that into the report of all benchmarks, on any machine.

Needs torch, transformers and pytest of the machine's own Python; of this project's other dependencies none.
``--device cpu`` runs the same on the smallest of models: to see that no step stops for a typo.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.files.atomic import write_json, write_text
from bench.run.provenance import git_commit
from performance import report
from performance.gpu import STEPS
from performance.measuring import REPOSITORY

TESTS = "tests"
"""The step that runs the tests."""
FILE = "tests/bench/engine/test_gpu.py"
NAMES = (TESTS, *STEPS)
ENOUGH_S = 20.0
"""No process is started with less time left."""


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--minutes", default=9.0, show_default=True, help="end within; what is left: call again")
@click.option("--only", help=f"steps, with commas between them; default: {','.join(NAMES)}")
@click.option(
    "--device", default="cuda", show_default=True, help="such as cuda:1; cpu: the smallest of models"
)
@click.option("--quick", is_flag=True, help="four layers and one round: to see that it works")
@click.option(
    "--keep", is_flag=True, help="run nothing; write OUT/gpu.json into the report of all benchmarks"
)
def command(out: Path, minutes: float, only: str | None, device: str, quick: bool, keep: bool) -> None:
    """Run what OUT lacks of the steps, and say what was found; exit code 1 if a step failed."""
    until = time.monotonic() + 60 * minutes
    names = only.split(",") if only else list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise click.UsageError(f"no step {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if keep:
        report.write(joined(out), Path(__file__).resolve().parent)
        return
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise click.UsageError("there is no CUDA device; to see that the steps run: --device cpu --quick")
    failed = run(names, out, device, quick, until)
    if any(_file(out, name).exists() for name in NAMES):
        findings = joined(out)
        write_json(out / "gpu.json", findings)
        click.echo("\n".join(report.section(findings)))
    left = [name for name in names if not _file(out, name).exists() and name not in failed]
    if left:
        click.echo(f"\nout of time before the end of {', '.join(left)}: call again with the same OUT")
    if failed:
        click.echo(f"\nfailed: {', '.join(failed)}; see {out / 'errors.txt'}", err=True)
        sys.exit(1)


def run(names: Sequence[str], out: Path, device: str, quick: bool, until: float) -> list[str]:
    """Run the steps that ``out`` lacks until that time of the monotonic clock; returns those that failed."""
    failed: list[str] = []
    errors: list[str] = []

    def left() -> list[str]:
        return [name for name in names if not _file(out, name).exists() and name not in failed]

    while (begun := left()) and (seconds := until - time.monotonic()) > ENOUGH_S:
        if begun[0] == TESTS:
            ended = _test(out, device, quick, seconds)
        else:
            steps = [name for name in begun if name != TESTS]
            arguments = json.dumps([steps, str(out), device, quick])
            ended = _process(["-m", "performance.child", "performance.gpu:write_steps", arguments], seconds)
        if ended is None:
            break
        if ended.returncode:
            # A step that failed leaves no file; those after it get a process of their own.
            failed.append(left()[0])
            errors.append(f"== {failed[-1]}\n{ended.stdout[-20_000:]}\n")
            write_text(out / "errors.txt", "\n".join(errors))
    return failed


def joined(out: Path) -> dict[str, Any]:
    """The steps found in ``out`` as one result of the benchmark ``gpu``."""
    parts = [json.loads(_file(out, name).read_bytes()) for name in NAMES if _file(out, name).exists()]
    if not parts:
        raise click.UsageError(f"{out} has no step's result")
    measurements = [one for part in parts for one in part["measurements"]]
    seconds = sum(part["seconds"] for part in parts)
    commit = parts[-1].get("commit") or git_commit()
    return {**parts[-1], "measurements": measurements, "seconds": seconds, "commit": commit}


def _test(out: Path, device: str, quick: bool, seconds: float) -> subprocess.CompletedProcess[str] | None:
    """The tests of a GPU's paths; for another device those of the same file that need none."""
    chosen = "gpu" if device.startswith("cuda") else "not gpu"
    ended: list[subprocess.CompletedProcess[str] | None] = []

    def work() -> list[report.Measurement]:
        ended.append(_process(["-m", "pytest", "-p", "no:cacheprovider", "-v", "-m", chosen, FILE], seconds))
        output = ended[0].stdout if ended[0] is not None else ""
        passed = re.search(r"(\d+) passed", output)
        count = int(passed[1]) if passed else 0
        return [report.Measurement("tests that pass", count, "", details={"said": output[-5000:]})]

    findings = report.result("gpu", work, quick)
    if ended[0] is not None and not ended[0].returncode:
        write_json(_file(out, TESTS), findings)
    return ended[0]


def _process(arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """A Python process in the repository, with what it says; None if it was stopped at the time limit."""
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None


def _file(out: Path, name: str) -> Path:
    return out / f"{name}.json"


if __name__ == "__main__":
    command()
