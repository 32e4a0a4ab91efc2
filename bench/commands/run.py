"""``bench run``: one method on one data set; the same command again continues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.shared_options import (
    cell_options,
    executor_options,
    results_option,
    running_options,
    set_option,
    trace_option,
)
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.cell import Cell, CellRequest
    from bench.executors.local_workers import LocalWorkers
    from bench.executors.ray_executor import RayExecutor
    from bench.session import Session


@click.command(name="run")
@click.option("--method", required=True, help="see: bench list methods")
@click.option("--dataset", required=True, help="see: bench list datasets")
@cell_options
@set_option
@click.option("--out", type=click.Path(path_type=Path), help="folder of this cell's records.jsonl")
@results_option
@running_options
@executor_options
@trace_option
def command(
    method: str,
    dataset: str,
    model: str,
    data: str,
    assignments: tuple[str, ...],
    limit: int | None,
    seed: int,
    dtype: str | None,
    out: Path | None,
    results: Path,
    in_flight: int,
    retry_failed: bool,
    timeout_s: float | None,
    track: bool,
    trace: bool,
    executor: RayExecutor | LocalWorkers,
) -> None:
    """Answer the questions of a data set with one method and record every answer."""
    from bench.cell import CellRequest, plan_cell
    from bench.executors.local_workers import LocalWorkers
    from bench.matching import reference_cell
    from bench.options import parse_assignments
    from bench.session import Session

    if isinstance(executor, LocalWorkers):
        executor.require_one("bench run answers the questions of one cell")
    request = CellRequest(method, dataset, model, data, parse_assignments(assignments), limit, seed, dtype)
    reference = reference_cell(request)
    cell = plan_cell(request) if reference is None else None
    session = Session(
        results,
        in_flight=in_flight,
        retry_failed=retry_failed,
        timeout_s=timeout_s,
        track=track,
        trace=trace,
        executor=executor,
    )
    try:
        if cell is None:
            assert reference is not None
            cell = _matched(request, reference, session)
        result = session.run(cell, out)
    except KeyboardInterrupt:
        folder = out or (cell.folder(results) if cell is not None else results / "cells")
        click.echo(
            f"\nInterrupted. Every finished question is recorded in {folder}; "
            "the same command continues from there.",
            err=True,
        )
        raise SystemExit(130) from None
    click.echo(_report(cell_title=session.title(cell), result_folder=result.folder, summary=result.summary))
    if result.summary["n_failed"] == result.summary["n"]:
        raise BenchError(
            f"All {result.summary['n']} questions failed; the reason is in the field 'error' of "
            f"{os.fspath(result.folder / 'records.jsonl')}."
        )


def _matched(request: CellRequest, reference: Cell, session: Session) -> Cell:
    """The cell of a request with ``k=auto:METHOD``.

    Raises ConfigError, with the command to run first, while METHOD's cell is not finished.
    """
    from bench.cell_folder import finished_summary
    from bench.matching import command_of, match_k

    wanted = request.options["k"]
    summary = finished_summary(reference, reference.folder(session.results))
    if summary is None:
        raise ConfigError(
            f"k={wanted} needs the cost of {reference.request.method} on the same data and model. Run first: "
            + command_of(reference.request, session.results)
        )
    target = float(summary["query_flops"]["mean"])
    cell = match_k(request, target, lambda tried: float(session.run(tried).summary["query_flops"]["mean"]))
    assert cell is not None
    click.echo(
        f"k={wanted}: k={cell.identity.config['k']} comes nearest to {target / 1e12:.4g} TFLOPs per question"
    )
    return cell


def _report(cell_title: str, result_folder: Path, summary: object) -> str:
    """The few lines that close a run."""
    assert isinstance(summary, dict)
    lines = [f"{cell_title}: {summary['n']} question{'s' if summary['n'] != 1 else ''}"]
    if summary["n_failed"]:
        lines[0] += f", {summary['n_failed']} failed (they score 0)"
    if summary["n_truncated"]:
        lines[0] += f", {summary['n_truncated']} with a truncated context"
    for metric, value in {**summary["metrics"], **summary["retrieval"]}.items():
        text = f"  {metric:<17} {100 * value['mean']:6.2f}"
        if value["low"] is not None:
            text += f"   95% interval {100 * value['low']:.2f} to {100 * value['high']:.2f}"
        if value.get("n", summary["n"]) < summary["n"]:
            text += f"   (defined for {value['n']} questions)"
        lines.append(text)
    tokens = summary["tokens"]
    lines.append(
        f"  {'TFLOPs':<17} {summary['query_flops']['mean'] / 1e12:.4g} per question, "
        f"{summary['index_flops'] / 1e12:.4g} per document set for its index "
        f"(convention: {summary['flop_convention']})"
    )
    lines.append(f"  {'tokens':<17} {tokens['prompt']:.0f} prompt, {tokens['forwarded']:.0f} forwarded")
    lines.append(f"  {'records':<17} {result_folder / 'records.jsonl'}")
    return "\n".join(lines)
