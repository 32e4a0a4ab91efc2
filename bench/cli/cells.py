"""Cells as the command line names them: a folder, or ``METHOD[:KEY=VALUE,...]`` with a data set."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from bench.cli.terminal import counted
from bench.data.own import name_of
from bench.errors import BenchError, ConfigError, UnknownNameError
from bench.files.printable import printable
from bench.method.options import parse_method
from bench.method.registry import registered_methods
from bench.models.served.address import without_url
from bench.results.curves import cell_label
from bench.results.finished import changed_since_summary, find_cells, read_finished
from bench.results.models import CellDescription, read_description
from bench.results.records import CELL_FILE, RECORDS_FILE

log = logging.getLogger(__name__)


def named_folder(text: str) -> Path | None:
    """The folder of a cell that the text names; None where it names none, or a method beside which one lies.

    Raises BenchError for any other folder without a cell.
    """
    folder = Path(text)
    if not folder.is_dir():
        return None
    if any((folder / name).is_file() for name in (CELL_FILE, RECORDS_FILE)):
        return folder
    if text in registered_methods():
        return None
    raise BenchError(f"{folder} is not the folder of a cell: it has no {CELL_FILE}. See: bench list cells")


def warn_if_changed(folder: Path) -> None:
    """Warn of records that are not those of the cell's summary."""
    if changed_since_summary(folder):
        log.warning(
            "%s: its records were edited, or a run was ended, since its summary was written. "
            "The cell's command, or bench score with the folder, writes it again.",
            folder,
        )


def cells_named(text: str, results: Path, dataset: str = "", model: str = "") -> dict[Path, CellDescription]:
    """Every cell of the results folder with that method and these options, whatever its others are.

    dataset, model: only cells on it, of that reader; empty: any. Raises UnknownNameError for a method that
    no cell and no installed package has, and BenchError if there is no such cell.
    """
    method, options = parse_method(text)
    dataset = dataset and name_of(dataset)
    every = described_cells(results)
    known = {about.method for about in every.values()} | set(registered_methods())
    if method not in known:
        raise UnknownNameError("method or folder", text, known, hint="What has been run: bench list cells")
    matching = {
        folder: about
        for folder, about in every.items()
        if about.method == method
        and all(key in about.config and about.config[key] == value for key, value in options.items())
        and dataset in ("", about.dataset)
        and without_url(model) in ("", about.model)
    }
    if not matching:
        on = f" on {dataset}" if dataset else ""
        by = f" with {model}" if model else ""
        raise BenchError(f"{results} has no cell of {text}{on}{by}. See: bench list cells")
    return matching


def one_cell(text: str, results: Path, dataset: str = "", model: str = "", **only: int | str | None) -> Path:
    """The finished cell that is meant: nearest to the defaults, its seed, too, then of most questions.

    Of a file or folder that is still there, the state that was asked last counts.

    only: limit, seed and dtype of a cell; None: any. Raises ConfigError, with the candidates, if that leaves
    several or they are on several data sets, and BenchError if there is none.
    """
    named = cells_named(text, results, dataset, model)
    given = {key: value for key, value in only.items() if value is not None}
    matching = {folder: of for folder, of in named.items() if all(getattr(of, k) == given[k] for k in given)}
    by_age = sorted(matching.values(), key=lambda of: of.created_at)
    newest = {(of.dataset, of.data_path): of.data_revision for of in by_age}
    for folder, of in list(matching.items()):  # a file that has been changed since is asked about as it is
        changed = of.data_revision != newest[of.dataset, of.data_path]
        if changed and of.data_path and Path(of.data_path).exists():
            del matching[folder]
    _, options = parse_method(text)
    ranked: dict[tuple[int, int, int], list[Path]] = {}
    for folder, about in matching.items():
        if read_finished(folder) is not None:
            others = len(set(about.non_defaults) - set(options))
            ranked.setdefault((others, about.seed, -about.n_examples), []).append(folder)
    if not ranked:
        asked = " ".join(f"--{key} {value}" for key, value in given.items())
        kind = f"with {asked} is finished. Others" if given else "is finished. Unfinished"
        raise BenchError(f"No cell of {text} {kind}: {', '.join(map(str, named))}")
    best = ranked[min(ranked)]
    finished = [folder for folders in ranked.values() for folder in folders]
    if len({matching[folder].dataset for folder in finished}) > 1:
        best = finished
    if len(best) > 1:
        lines = [f"  {cell_line(folder, matching[folder])}" for folder in best]
        raise ConfigError("\n".join([f"{text} is several cells; give --dataset, --model or folder:", *lines]))
    return best[0]


def described_cells(results: Path) -> Mapping[Path, CellDescription]:
    """Every cell below the results folder, finished or not, that has a valid cell.json."""
    described = {}
    for folder in find_cells(results):
        try:
            described[folder] = read_description(folder)
        except BenchError:
            continue
    return described


def cell_line(folder: Path, about: CellDescription) -> str:
    """The cell in one line, beginning with its folder."""
    asked = counted(about.n_examples, "question") + (f", seed {about.seed}" if about.seed else "")
    return printable(f"{folder}  {cell_label(about)} on {about.data}, {about.model_label}, {asked}")
