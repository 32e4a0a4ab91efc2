"""``bench figure``: the papers' figures, and all methods on one plane, from cells that are run if missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench.cell import CellRequest
    from bench.figures import Drawn
    from bench.session import Session

PATIENCE = range(1, 9)
"""The t_p of PECAN's Figure 4."""
FIGURES = {
    "pareto": "all methods of Table 1: score over TFLOPs, with the Pareto front",
    "fig3": "PECAN, Figure 3: how many nodes a search retrieves",
    "fig4": "PECAN, Figure 4: score and TFLOPs over the patience t_p",
}


@click.command(name="figure")
@click.argument("name", type=click.Choice(list(FIGURES)))
@click.option("--model", default="tiny", show_default=True, help="reader: preset, hub id or folder")
@click.option("--data", default="sample", show_default=True, help="sample or hub")
@click.option("--limit", type=click.IntRange(min=1), help="only the first N questions of each data set")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="default: by device")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    envvar="BENCH_RESULTS",
    show_default=True,
)
@click.option("--render-only", is_flag=True, help="never compute: draw what is there")
@click.option("--in-flight", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--track/--no-track", default=True, show_default=True, help="mirror cells into MLflow")
def command(
    name: str,
    model: str,
    data: str,
    limit: int | None,
    seed: int,
    dtype: str | None,
    results: Path,
    render_only: bool,
    in_flight: int,
    track: bool,
) -> None:
    """Draw NAME as PNG and SVG, with its values as CSV, running the cells that are missing.

    pareto: all methods of Table 1 on one plane. fig3, fig4: PECAN's figures.
    """
    from bench.cell import CellRequest
    from bench.session import Session

    base = CellRequest("pecan", "", model, data, {}, limit, seed, dtype)
    session = None if render_only else Session(results, in_flight=in_flight, track=track)
    try:
        drawn = {"pareto": _pareto, "fig3": _fig3, "fig4": _fig4}[name](base, results, session)
    except KeyboardInterrupt:
        click.echo(
            "\nInterrupted. Every finished question is recorded; the same command continues.", err=True
        )
        raise SystemExit(130) from None
    paths = drawn.save(results / "figures", name)
    click.echo(f"Written: {', '.join(str(path) for path in paths)}")


def _pareto(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    from bench.figures import pareto
    from bench.tables import collect, load_table, plan_table

    definition = load_table("table1")
    planned = plan_table(definition, base)
    return pareto(collect(definition, planned, results, session.run if session else None))


def _fig3(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    from bench.figures import distribution
    from bench.records import RECORDS_FILE, read_records

    counts, labels = {}, {}
    for dataset in _datasets():
        found = _cells(base, dataset, [1], results, session)
        if found is None:
            continue
        folder, label, _ = found[0]
        records = [record for record in read_records(folder / RECORDS_FILE) if record.error is None]
        counts[dataset], labels[dataset] = [len(record.context) for record in records], label
    _require(counts, base)
    return distribution(counts, labels, f"Answered questions only. {_reader(base)}")


def _fig4(base: CellRequest, results: Path, session: Session | None) -> Drawn:
    from bench.figures import Curve, trade_off

    curves = []
    for dataset in _datasets():
        found = _cells(base, dataset, PATIENCE, results, session)
        if found is not None:
            summaries = tuple(summary for _, _, summary in found)
            curves.append(Curve(dataset, found[0][1], tuple(PATIENCE), summaries))
    _require(curves, base)
    return trade_off(curves, "f1", "t_p", _reader(base))


def _cells(
    base: CellRequest, dataset: str, patience: Sequence[int], results: Path, session: Session | None
) -> list[tuple[Path, str, dict]] | None:  # type: ignore[type-arg]
    """Folder, data label and summary of PECAN's cell at every t_p, one search each; None: not all there."""
    from dataclasses import replace

    from bench.runner import finished_summary
    from bench.sweep import plan_sweep, shared_runs

    cells = plan_sweep(replace(base, dataset=dataset), {"t_p": list(patience)})
    if session is not None:
        for group in shared_runs(cells):
            session.run_together([(found.cell, None) for found in group], sweep=f"t_p on {dataset}")
    found = []
    for grid_cell in cells:
        folder = grid_cell.cell.folder(results)
        summary = finished_summary(grid_cell.cell, folder)
        if summary is None:
            return None
        found.append((folder, grid_cell.cell.data.label, dict(summary)))
    return found


def _datasets() -> Sequence[str]:
    from bench.tables import load_table

    return load_table("table1").datasets


def _require(found: object, base: CellRequest) -> None:
    from bench.errors import BenchError

    if not found:
        raise BenchError(
            f"there is nothing to draw: no finished cell of {base.method} with {base.model} on the "
            f"{base.data} data. Leave out --render-only to run what is missing."
        )


def _reader(base: CellRequest) -> str:
    from bench.models.presets import resolve

    spec = resolve(base.model, dtype=base.dtype)
    small = ", a small stand-in trained by this project" if spec.small else ""
    return f"Reader: {spec.label}{small}. Data: {base.data}."
