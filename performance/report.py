"""What a benchmark found: as values, as ``results/NAME.json``, and as ``RESULTS.md``."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.files.atomic import write_json, write_text
from bench.run.provenance import environment
from performance import LONG, NAMES
from performance.measuring import Machine, Timed

RESULTS = "results"
REPORT = "RESULTS.md"


class NotRun(Exception):  # noqa: N818 - not an error: a reason
    """A benchmark that this machine cannot run; says why."""


@dataclass(frozen=True)
class Measurement:
    """One line of the report."""

    name: str
    value: float
    unit: str
    """``x`` for a ratio."""
    target: str = ""
    """Such as ``>= 2.2``; empty: none was set."""
    low: float | None = None
    high: float | None = None
    """Lowest and highest over the rounds; None: measured once, or not subject to chance."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind it."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if not self.target:
            return None
        relation, text = self.target.split()
        limit = float(text)
        if relation == "=":
            return round(self.value, 3) == limit
        return self.value <= limit if relation == "<=" else self.value >= limit


def ratio(name: str, numerator: Timed, denominator: Timed, target: str = "", **details: Any) -> Measurement:
    """How many times as long one candidate took as another, on the clock: the median over rounds.

    ``1 / x`` is the ratio of their rates.
    """
    pairs = list(zip(numerator.runs, denominator.runs, strict=True))
    return spread(
        name,
        [a.wall_s / b.wall_s for a, b in pairs],
        "x",
        target,
        cpu_ratio=[round(a.cpu_s / b.cpu_s, 3) for a, b in pairs],
        numerator=numerator.seconds(),
        denominator=denominator.seconds(),
        **details,
    )


def duration(name: str, timed: Timed, unit: str = "s", scale: float = 1, **details: Any) -> Measurement:
    """Seconds per unit of work on the clock, times ``scale``: the median over rounds."""
    return spread(name, [run.wall_s * scale for run in timed.runs], unit, runs=timed.seconds(), **details)


def rate(name: str, timed: Timed, unit: str, **details: Any) -> Measurement:
    """Units of work per second on the clock: the median over rounds."""
    return spread(name, [1 / run.wall_s for run in timed.runs], unit, runs=timed.seconds(), **details)


def spread(name: str, values: Sequence[float], unit: str, target: str = "", **details: Any) -> Measurement:
    """Median, lowest and highest of some values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Measurement(name, median, unit, target, ordered[0], ordered[-1], details)


def run(name: str, quick: bool) -> dict[str, Any]:
    """Run one benchmark here and now; everything but the commit of its result, as JSON."""
    module = importlib.import_module(f"performance.{name}")
    return result(name, partial(module.measure, quick), quick)


def result(name: str, work: Callable[[], Sequence[Measurement]], quick: bool) -> dict[str, Any]:
    """What all or a part of a benchmark finds, here and now, as JSON."""
    title, _, about = (inspect.getdoc(importlib.import_module(f"performance.{name}")) or "").partition("\n")
    machine = Machine.here()
    origin = environment()
    started = time.perf_counter()
    not_run, measurements = None, list[Measurement]()
    try:
        measurements = list(work())
    except NotRun as reason:
        not_run = str(reason)
    return {
        "benchmark": name,
        "title": title.rstrip("."),
        "about": about.strip(),
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": asdict(machine),
        "python": origin["python"],
        "versions": origin["versions"],
        "seconds": round(time.perf_counter() - started, 1),
        "not_run": not_run,
        "measurements": [asdict(one) | {"met": one.met} for one in measurements],
    }


def write(result: Mapping[str, Any], folder: Path) -> None:
    """Keep a benchmark's result below ``folder``, and write the report of all that are kept there anew."""
    write_json(folder / RESULTS / f"{result['benchmark']}.json", dict(result))
    paths = [folder / RESULTS / f"{name}.json" for name in (*NAMES, *LONG)]
    write_text(folder / REPORT, render([json.loads(p.read_bytes()) for p in paths if p.exists()]))


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """The report in Markdown; the machines that it was measured on are numbered at its head."""
    machines = list(dict.fromkeys(map(_machine, results)))
    lines = [
        "# Benchmarks",
        "",
        "Written by `make performance`; do not edit. What is compared ran side by side in one process, by",
        "turns; a value is the median over the rounds, on the clock, with lowest and highest in brackets.",
        "What has a target stands here; everything measured, each run of it, in `results/`; how, at the",
        "head of `performance/BENCHMARK.py`.",
        "",
        *(f"{at}. {machine}" for at, machine in enumerate(machines, start=1)),
        "",
        "| benchmark | measured | | target |",
        "|---|---|---|---|",
    ]
    for result in results:
        name, before = result["benchmark"], ""
        for one in result["measurements"]:
            if one["target"]:
                shown = _shortened(one["name"], before)
                lines.append(f"| {name} | {shown} | {_value(one)} | {_target(one)} |")
                before = one["name"]
        if result["not_run"]:
            lines.append(f"| {name} | not run: {result['not_run']} | | |")
    lines += [
        "",
        "| benchmark | machine | date | commit | seconds | load before |",
        "|---|---|---|---|---:|---:|",
    ]
    for result in results:
        load, machine = result["machine"]["load_before"], machines.index(_machine(result)) + 1
        seconds = f"{result['seconds']:.0f}{', quick' if result['quick'] else ''}"
        origin = (result["date"], result["commit"], seconds, load)
        lines.append(f"| {' | '.join(map(str, (result['benchmark'], machine, *origin)))} |")
    for result in results:
        if rows := _without_target(result):
            lines += ["", f"## {result['benchmark']}: {result['title']}", "", *rows]
    return "\n".join(lines) + "\n"


def section(result: Mapping[str, Any]) -> list[str]:
    """What is said of one benchmark when it has run, in lines; with a table if nothing in it has a target."""
    quick = (
        " **Quick run: shows that the benchmark works, not how fast anything is.**" if result["quick"] else ""
    )
    origin = (
        f"*{_machine(result)}; {result['date']}, commit {result['commit']}; "
        f"{result['seconds']:.0f} s; load before: {result['machine']['load_before']}.*{quick}"
    )
    rows = _without_target(result)
    return [f"## {result['benchmark']}: {result['title']}", "", origin, *([""] if rows else []), *rows]


def _without_target(result: Mapping[str, Any]) -> list[str]:
    """The table of a benchmark in which nothing has a target; else empty."""
    if any(one["target"] for one in result["measurements"]) or result["not_run"]:
        return []
    rows, before = list[str](), ""
    for one in result["measurements"]:
        name = one["name"]
        if before and name.startswith(f"{before}: "):  # such as "...: memory" behind its time
            rows[-1] += f"; {name.removeprefix(f'{before}: ')} {_value(one)}"
        else:
            rows.append(f"| {_shortened(name, before)} | {_value(one)}")
            before = name
    return ["| measured | |", "|---|---|", *(f"{row} |" for row in rows)]


def _shortened(name: str, before: str) -> str:
    """The name without what stands before its colon, where the name before it begins with the same."""
    head, colon, what = name.rpartition(": ")
    return f"… {what}" if colon and before.startswith(head + colon) else name


def _machine(result: Mapping[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    card = "" if machine["accelerator"] == "none" else f", {machine['accelerator']}"
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{machine['memory_gb']:.0f} GB{card}; "
        f"torch {versions['torch']}, transformers {versions['transformers']}"
    )


def _value(one: Mapping[str, Any]) -> str:
    unit = one["unit"]
    between = "" if one["low"] is None else f" ({number(one['low'])}–{number(one['high'])})"
    return f"{number(one['value'])}{'x' if unit == 'x' else f' {unit}' if unit else ''}{between}"


def _target(one: Mapping[str, Any]) -> str:
    target = str(one["target"]).replace(">=", "≥").replace("<=", "≤")
    return f"{target}, {'reached' if one['met'] else '**missed**'}"


def number(value: float) -> str:
    """Three significant digits, thousands separated; whole numbers and those above 100 without decimals."""
    if value == round(value):
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
