"""A table on the terminal while it is being made: one line per row, one column per data set."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from bench.metrics import label_of
from bench.results.finished import FinishedCell
from bench.run.cell import Cell
from bench.run.hooks import HelperProgress, RunHooks
from bench.run.progress import Progress
from bench.tables.formats import three_digits
from bench.tables.make import TableRequest

WAITING = "·"
"""In the place of a cell of which nothing is known yet."""


def show_while_made(request: TableRequest) -> None:
    """Let the session's progress show the table above its bar, if it has a cell per row and data set."""
    if request.definition.kind not in ("cells", "amortised"):
        return
    board, session = Board(request), request.session
    for hook in session.hooks:
        if isinstance(hook, Progress):
            hook.above = board.table
    session.add_hook(board)


class Board(RunHooks):
    """The first score and the cost of every cell, as they come."""

    def __init__(self, request: TableRequest) -> None:
        """request: the table that is being made."""
        self._definition, self._places = request.definition, request.places
        self._values: dict[str, str] = {}

    def on_cell_finished(self, cell: Cell, finished: FinishedCell, *, sweep: str | None) -> None:
        """Show the cell's numbers."""
        score = finished.summary.interval(cell.card.metrics[0])
        self._put(finished.id, None if score is None else score.mean, finished.summary.tflops)

    def on_helper_progress(self, news: HelperProgress) -> None:
        """Show the numbers of a cell that a helper process has finished."""
        self._put(news.cell_id, news.score, news.tflops)

    def _put(self, cell_id: str, score: float | None, tflops: float) -> None:
        if score is not None:
            self._values[cell_id] = f"{100 * score:.1f}  {three_digits(tflops)}"

    def table(self) -> Table:
        """All rows and data sets, with what is known by now."""
        definition, values = self._definition, dict(self._values)
        metric = label_of(definition.metrics[0])
        drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        drawn.add_column(Text(f"{metric} and TFLOPs so far"), no_wrap=True)
        for dataset in definition.datasets:
            drawn.add_column(Text(dataset), justify="right", no_wrap=True)
        for row in definition.rows:
            cells = (self._places.get((row.id, dataset), "") for dataset in definition.datasets)
            known = [values.get(cell, WAITING) for cell in cells]
            drawn.add_row(Text(row.label), *map(Text, known))
        return drawn
