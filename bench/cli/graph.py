"""``bench graph``: the graph that a method builds from a document, as one HTML page."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import (
    data_option,
    dtype_option,
    gathered,
    model_option,
    results_option,
    seed_option,
    set_option,
    takes_setting,
)
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.results.records import Record
    from bench.run.cell import Cell, CellRequest
    from bench.schema import DocumentSet, Example, Index

DEFAULT_DATASET = "narrativeqa"
"""The data set whose settings apply to a text file."""


@dataclass(frozen=True)
class GraphFlags:
    """The command line's options about documents, method and highlighted path."""

    doc: str
    dataset: str | None
    question: str | None
    records: Path | None
    method: str | None
    assignments: tuple[str, ...]


@click.command(name="graph")
@click.argument("doc")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--dataset", help="data set of DOC; default: the one that contains it")
@click.option("--question", help="example id: highlight the path of this question's record")
@click.option("--records", type=click.Path(exists=True, path_type=Path), help="records with that question")
@click.option("--method", help="default: the first method, by name, that builds a graph")
@set_option
@gathered("flags", GraphFlags)
@model_option
@data_option
@seed_option
@dtype_option
@takes_setting
@results_option
def command(page: Path, flags: GraphFlags, setting: CellRequest, results: Path) -> None:
    """Draw the graph of DOC: an example id, a document id, or a text file.

    The graph comes from the index cache, or is built and stored there. If DOC is an example with a
    record, or --question names one, the nodes that were read are highlighted in order.
    """
    from bench.files.atomic import write_text
    from bench.method.options import parse_assignments
    from bench.report.graph_page import graph_page
    from bench.run.cell import plan_cell

    doc, records = flags.doc, flags.records
    method = flags.method or next(iter(_graph_methods()), "")
    documents, example = _find(doc, flags.dataset, setting.data)
    dataset = example.dataset if example else flags.dataset or DEFAULT_DATASET
    known_setting = setting if example else replace(setting, data="sample")
    cell = plan_cell(known_setting.of(method, dataset, parse_assignments(flags.assignments)))
    example_id = flags.question or (example.id if example else None)
    record = _record(example_id, [records] if records else _cell_folders(cell, results), documents)
    if record is None and (flags.question or records):
        raise BenchError(
            f"There is no record of {example_id!r} on these documents in {records or results / 'cells'}. "
            f"Run it first (bench run --method {method} ...) with the same model and --set options, or pass "
            "its records with --records."
        )
    view = cell.method.graph_view(
        _index(cell, documents, results), documents, record.trace if record else None
    )
    if view is None:
        raise BenchError(f"Method {method!r} has no graph; these have: {', '.join(_graph_methods())}.")
    facts = [("documents", ", ".join(d.title or d.id for d in documents.documents) or "none")]
    facts.append(("method", f"{method}, model {cell.reader.label}"))
    if record is not None:
        facts += [
            ("question", record.question),
            ("answer", record.prediction if record.prediction is not None else f"failed: {record.error}"),
            ("references", " | ".join(record.answers)),
        ]
    try:
        write_text(page, graph_page(view, f"{doc}: graph of {method}", facts))
    except OSError as error:
        raise BenchError(f"Cannot write {page}: {error.strerror or error}. Choose another --html.") from error
    path = "" if record is None else f"; the path of {record.example_id} is highlighted"
    click.echo(f"{page}: {len(view.nodes)} nodes, {len(view.edges)} edges{path}")


def _graph_methods() -> list[str]:
    """The installed methods that build a graph, by name."""
    from bench.method.contract import Method
    from bench.method.registry import BrokenPluginError, load_method, registered_methods

    methods = []
    for name in registered_methods():
        with contextlib.suppress(BrokenPluginError):
            if load_method(name).graph_view is not Method.graph_view:
                methods.append(name)
    return sorted(methods)


def _find(doc: str, dataset: str | None, data: str) -> tuple[DocumentSet, Example | None]:
    """The documents that DOC names, and an example on them (None for a text file)."""
    from bench.data import load as load_data
    from bench.data.cards import load_card, sample_names
    from bench.schema import Document, DocumentSet

    path = Path(doc)
    if dataset is None and path.is_file():
        try:
            return DocumentSet((Document("", path.read_text(encoding="utf-8")),)), None
        except (OSError, UnicodeDecodeError) as error:
            raise BenchError(f"{path} cannot be read as a UTF-8 text ({error}).") from None
    names = [dataset] if dataset else list(sample_names())
    if dataset is None and data != "sample":
        raise BenchError("--data needs --dataset as well; see: bench list datasets")
    matches: list[Example] = []
    for name in names:
        for example in load_data(load_card(name), data, None).examples:
            ids = (example.id, example.documents.id, *(d.id for d in example.documents.documents))
            if doc in ids:
                matches.append(example)
    exact = [example for example in matches if example.id == doc]
    if not matches:
        raise BenchError(
            f"{doc!r} is neither a text file nor an example or document id of {', '.join(names)} ({data}). "
            "Ids are in the records (example_id, document_ids): bench show RECORDS"
        )
    return (exact or matches)[0].documents, (exact or matches)[0]


def _cell_folders(cell: Cell, results: Path) -> list[Path]:
    """Folders of cells that differ from this one at most in their questions."""
    from bench.results.models import read_description

    keys = ("method", "method_version", "inner", "config", "models", "geometry", "seed")
    identity = json.loads(json.dumps(asdict(cell.identity)))
    folders = []
    for folder in sorted((results / "cells").glob(f"{cell.request.method}--*")):
        try:
            description = read_description(folder).to_json()
        except BenchError:
            continue
        if all(description.get(key) == identity[key] for key in keys):
            folders.append(folder)
    return folders


def _record(example_id: str | None, places: Sequence[Path], documents: DocumentSet) -> Record | None:
    """The record of that question on these documents; None if there is none."""
    from bench.results.records import RECORDS_FILE, read_records

    ids = [document.id for document in documents.documents]
    for place in places:
        path = place / RECORDS_FILE if place.is_dir() else place
        for record in read_records(path) if path.is_file() else ():
            if record.example_id == example_id and record.document_ids == ids:
                return record
    return None


def _index(cell: Cell, documents: DocumentSet, results: Path) -> Index:
    """The index of the documents, from the cache or built and stored now."""
    from bench.models.model_set import LoadedModels
    from bench.results.index_store import IndexStore
    from bench.run.question_runner import prepare, stored_index

    store = IndexStore(results / "indexes")
    stored = stored_index(cell, store, documents)
    if stored is not None:
        return stored
    click.echo("building the graph ...", err=True)
    prepared = asyncio.run(prepare(cell, store, LoadedModels(cell.roles), [documents]))
    return prepared.indexes[documents.id]
