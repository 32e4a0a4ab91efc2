"""Which settings a report's tables and figures are of, where the command names none: those that were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results.finished import FinishedCell
from bench.run.cell import CellRequest


@dataclass(frozen=True)
class Shown:
    """A setting, and the data sets that are shown with it."""

    setting: CellRequest
    datasets: tuple[str, ...]


def settings_run(cells: Sequence[FinishedCell]) -> list[Shown]:
    """The most frequent reader, with the data that it was asked about, the most frequent first.

    For each data set these are the most frequent number of questions and seed. Data of the user's own are
    left out where their file or folder is no longer known or there.
    """
    if not cells:
        return []
    model = Counter(cell.description.model for cell in cells).most_common(1)[0][0]
    by_data: dict[tuple[str, str], Counter[tuple[int | None, int]]] = {}
    for cell in cells:
        about = cell.description
        place = about.data_path if about.data_source == "path" else about.data_source
        if about.model == model and place and (about.data_source != "path" or Path(place).exists()):
            counted = by_data.setdefault((place, about.dataset), Counter())
            counted[about.limit, about.seed] += 1
    datasets: dict[tuple[str, int | None, int], list[str]] = {}
    for (place, dataset), counted in sorted(by_data.items(), key=lambda item: -item[1].total()):
        limit, seed = counted.most_common(1)[0][0]
        datasets.setdefault((place, limit, seed), []).append(dataset)
    return [
        Shown(CellRequest(model=model, data=place, limit=limit, seed=seed), tuple(names))
        for (place, limit, seed), names in datasets.items()
    ]
