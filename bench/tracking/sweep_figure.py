"""The figure in a sweep's run: score and cost over the option that is the curves' step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.figures.drawing import Curve, trade_off
from bench.results.curves import CurvePoint
from bench.tracking.content import RunContent

MAX_CURVES = 12
"""Maximum number of panels in the figure; further curves are left out."""


def draw_curves(curves: Sequence[Sequence[tuple[CurvePoint, RunContent]]], folder: Path) -> list[Path]:
    """Write the pictures and the values of ``trade_off`` into ``folder``; returns their paths.

    curves: of one sweep on one data set, by step. A curve needs at least two points; without one nothing is
    written.
    """
    long_enough = [points for points in curves if len(points) > 1]
    if not long_enough:
        return []
    point, content = long_enough[0][0]
    shown = [points for points in long_enough if points[0][0].option == point.option]
    note = f"Reader: {content.cell.model_label or content.cell.model}. Data: {content.cell.data}."
    if len(shown) > MAX_CURVES:
        note += f" {MAX_CURVES} of {len(shown)} curves."
    drawn = [
        Curve(
            content.cell.data,
            points[0][0].label,
            tuple(point.step for point, _ in points),
            tuple(content.summary for _, content in points),
        )
        for points in shown[:MAX_CURVES]
    ]
    return trade_off(drawn, content.scores[0], point.option, note).save(folder, "trade_off")
