"""Finished cells without a model: planned as a run plans them, with records written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.files.atomic import write_json
from bench.metrics.retrieval import retrieval_quality
from bench.results.finished import write_summary
from bench.results.records import CELL_FILE, RECORDS_FILE, ContextRecord, Record, TokenCounts
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.cell_folder import describe
from bench.schema import Example
from tests import cells
from tests.bench.data.lines import line, write

OWN_TEXT = "Ilse Brandt crossed the bridge. " * 60


def record(example: Example, f1: float, **changes: Any) -> Record:
    """A record of the example whose context is the whole of its first document."""
    document = example.documents.documents[0]
    end = len(document.full_text)
    whole = ContextRecord(document=0, title=document.title, start=0, end=end, score=f1 + 0.25)
    fields: dict[str, Any] = {
        "example_id": example.id,
        "document_ids": [document.id for document in example.documents.documents],
        "question": example.question,
        "answers": list(example.answers),
        "prediction": example.answers[0] if f1 == 1 else "something else",
        "scores": {"f1": f1, "rouge_l": f1},
        "context": [whole],
        "retrieval": retrieval_quality([whole], example),
        "tokens": TokenCounts(prompt=100, completion=4, forwarded=104),
        "flops": cells.flops(2 * 10**9, 10**9),
    }
    return cells.record(**{**fields, **changes})


def finish(
    results: Path,
    request: CellRequest,
    scores: Sequence[float],
    changes: Mapping[int, Mapping[str, Any]] | None = None,
) -> Cell:
    """The cell of the request, finished: a score per question; changes: of a question's record."""
    cell = plan_cell(request)
    records = [
        record(example, f1, **(changes or {}).get(at, {}))
        for at, (example, f1) in enumerate(zip(cell.data.examples, scores, strict=True))
    ]
    folder = cell.folder(results)
    write_json(folder / CELL_FILE, {**describe(cell).to_json(), "created_at": "2026-01-01T00:00:00+00:00"})
    content = "".join(row.to_line() for row in records).encode("utf-8", "surrogateescape")
    (folder / RECORDS_FILE).write_bytes(content)
    write_summary(folder, records, cell.card.metrics, cell.identity.cell_id)
    return cell


def own_file(
    folder: Path,
    titles_and_texts: Sequence[tuple[str, str]],
    name: str = "own.jsonl",
    dataset: str = "qasper",
) -> Path:
    """A file of one question per document, as ``--data PATH`` takes it."""
    lines = [
        line(
            at,
            **{"id": f"own-{at}", "dataset": dataset, "question": f"What of {title}?"},
            documents=[{"title": title, "text": text}],
        )
        for at, (title, text) in enumerate(titles_and_texts)
    ]
    return write(folder / name, *lines)


def bm25(dataset: str = "hotpotqa", limit: int | None = 2, **options: Any) -> CellRequest:
    """BM25 on a sample set; k=5 is a row of Table 1."""
    return CellRequest("bm25", dataset, options={"k": 5, **options}, limit=limit)


def own(path: Path, method: str = "bm25") -> CellRequest:
    """The method on a file of :func:`own_file`."""
    return CellRequest(method, "qasper", data=str(path))


def pecan(limit: int | None = 2, **options: Any) -> CellRequest:
    """PECAN on HotpotQA's sample."""
    return CellRequest("pecan", "hotpotqa", options=options, limit=limit)


def steps(*p_yes: float) -> dict[str, Any]:
    """A trace as PECAN writes it, of one node a step."""
    return {
        "stop": "patience",
        "t_p": 1,
        "t_c": 0.5,
        "patience": "cumulative",
        "steps": [
            {"nodes": [{"id": f"1.{at}", "level": 1, "score": 0.1 * at}], "p_yes": p, "mass": 0.9}
            for at, p in enumerate(p_yes)
        ],
    }
