"""What importing a method's module, or `bench --help`, takes in a fresh interpreter.

Heavy packages (torch, transformers, scikit-learn and others) are imported by the functions that need them:
looking at what there is must not wait for them. Time is that of the import alone; starting the interpreter
is a line of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from bench.method.registry import registered_methods
from performance.measuring import REPOSITORY
from performance.report import Measurement, spread

HEAVY = (
    "bert_score",
    "datasets",
    "llmlingua",
    "mlflow",
    "pandas",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "torch",
    "torch_geometric",
    "transformers",
    "umap",
)

_PROGRAM = """
import contextlib, io, json, sys, time
started = time.perf_counter()
{code}
seconds = time.perf_counter() - started
print(json.dumps([seconds, sorted(set(sys.modules) & set({heavy!r}))]))
"""
_HELP = """
from bench.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""


def measure(quick: bool) -> list[Measurement]:
    """The interpreter, the command line, every registered method."""
    programs = {"bench --help": _HELP}
    ours = {
        name: one
        for name, one in registered_methods().items()
        if one.entry_point.module.startswith("methods.")
    }
    for name, one in list(ours.items())[: 2 if quick else None]:
        programs[f"import {one.entry_point.module} ({name})"] = f"import {one.entry_point.module}"
    rounds = 1 if quick else 5
    measurements = [_interpreter(rounds)]
    loaded: dict[str, list[str]] = {}
    for name, code in programs.items():
        seconds = []
        for _ in range(rounds):
            took, loaded[name] = _fresh(code)
            seconds.append(1000 * took)
        measurements.append(spread(name, seconds, "ms", heavy=loaded[name]))
    heavy = {name: packages for name, packages in loaded.items() if packages}
    return [
        *measurements,
        Measurement("of these that load a heavy package", len(heavy), "", "= 0", details=heavy),
    ]


def _interpreter(rounds: int) -> Measurement:
    values = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", ""], check=True)
        values.append(1000 * (time.perf_counter() - started))
    return spread("the interpreter alone", values, "ms")


def _fresh(code: str) -> tuple[float, list[str]]:
    """Seconds of some code in a fresh interpreter, and the heavy packages that it loaded."""
    program = _PROGRAM.format(code=code.strip(), heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    seconds, heavy = json.loads(done.stdout.splitlines()[-1])
    return seconds, heavy
