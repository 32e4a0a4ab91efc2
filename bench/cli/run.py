"""``bench run``: one method on one data set; the same command resumes an interrupted run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import session_options, set_option, setting_options
from bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from bench.results.models import Summary
    from bench.run.cell import Cell, CellRequest, Setting
    from bench.run.session import Session


@click.command(name="run")
@click.option("--method", required=True, help="see: bench list methods")
@click.option("--dataset", required=True, help="see: bench list datasets")
@setting_options
@set_option
@click.option("--out", type=click.Path(path_type=Path), help="folder of this cell's records.jsonl")
@session_options
def command(
    method: str,
    dataset: str,
    setting: Setting,
    assignments: tuple[str, ...],
    out: Path | None,
    session: Session,
) -> None:
    """Answer the questions of a data set with one method and record every answer."""
    from bench.method.options import parse_assignments
    from bench.run.cell import plan_cell
    from bench.run.equal_cost import reference_cell

    session.require_one_process("bench run answers the questions of one cell")
    request = setting.request(method, dataset, parse_assignments(assignments))
    reference = reference_cell(request)
    cell = plan_cell(request) if reference is None else _matched(request, reference, session)
    result = session.run(cell, out)
    click.echo(_report(cell_title=cell.title, result_folder=result.folder, summary=result.summary))
    if result.summary.all_failed:
        raise BenchError(
            f"All {result.summary.n} questions failed. Each reason is in the field 'error' of "
            f"{os.fspath(result.folder / 'records.jsonl')}."
        )


def _matched(request: CellRequest, reference: Cell, session: Session) -> Cell:
    """The cell of a request with ``k=auto:METHOD`` or ``n_nodes=auto:METHOD``.

    Raises ConfigError, with the command to run first, while METHOD's cell is not finished.
    """
    from bench.run.cell_folder import finished_summary
    from bench.run.equal_cost import NODES, command_of, match_k, match_nodes, waiting_option

    waiting = waiting_option(request.options)
    assert waiting is not None
    auto_k = request.options[waiting.option]
    summary = finished_summary(reference, reference.folder(session.results))
    if summary is None:
        raise ConfigError(
            f"{waiting.option}={auto_k} needs the cell of {reference.request.method} on the same data and "
            "model. Run first: " + command_of(reference.request, session.results)
        )
    if waiting.option == NODES:
        cell = match_nodes(request, reference.folder(session.results))
        click.echo(f"{NODES}={auto_k}: {cell.identity.config[NODES]} on average")
        return cell
    target = summary.query_flops.mean
    matched = match_k(request, target, lambda tried: session.run(tried).summary.query_flops.mean)
    assert matched is not None
    click.echo(
        f"k={auto_k}: k={matched.identity.config['k']} is closest to {summary.tflops:.4g} TFLOPs per question"
    )
    return matched


def _report(cell_title: str, result_folder: Path, summary: Summary) -> str:
    """The closing lines of a run: scores, costs and the path of the records."""
    from bench.results.models import MeasureInterval

    lines = [f"{cell_title}: {summary.n} question{'s' if summary.n != 1 else ''}"]
    if summary.n_failed:
        lines[0] += f", {summary.n_failed} failed (they score 0)"
    if summary.n_truncated:
        lines[0] += f", {summary.n_truncated} with a truncated context"
    for metric, value in {**summary.metrics, **summary.retrieval}.items():
        text = f"  {metric:<17} {100 * value.mean:6.2f}"
        if value.low is not None and value.high is not None:
            text += f"   95% interval {100 * value.low:.2f} to {100 * value.high:.2f}"
        if isinstance(value, MeasureInterval) and value.n < summary.n:
            text += f"   (defined for {value.n} questions)"
        lines.append(text)
    lines.append(
        f"  {'TFLOPs':<17} {summary.tflops:.4g} per question, "
        f"{summary.index_tflops:.4g} per document set for its index "
        f"(convention: {summary.flop_convention})"
    )
    lines.append(
        f"  {'tokens':<17} {summary.tokens.prompt:.0f} prompt, {summary.tokens.forwarded:.0f} forwarded"
    )
    lines.append(f"  {'records':<17} {result_folder / 'records.jsonl'}")
    return "\n".join(lines)
