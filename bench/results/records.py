"""Records: one JSON line per question, appended and fsync'd as it finishes. All tables derive from them.

The field names of :class:`Record` are the published schema (``docs/records.md``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from bench.errors import BenchError
from bench.metrics import METRICS
from bench.metrics.scoring import question_scores
from bench.results.json_lines import JsonLines, Line
from bench.schema import JsonValue

log = logging.getLogger(__name__)

RECORDS_FILE = "records.jsonl"
CELL_FILE = "cell.json"
SUMMARY_FILE = "summary.json"

TFLOP = 1e12
"""FLOPs."""

FLOP_CONVENTION = "paper"
"""The convention of every record's FLOPs; see :mod:`bench.flops.formulas`."""


_Count = Annotated[int, Field(ge=0, le=10**30)]


class ContextRecord(Line):
    """One passage or node of the reader's prompt, in the prompt's order."""

    document: int | None = Field(description="position of the document in the example, from 0")
    title: str
    start: int | None = Field(description="character span in title line + text of that document")
    end: int | None
    node: str | None = Field(default=None, description="node id, for trees and graphs")
    score: float | None = Field(default=None, description="the method's score for it")
    chunk: int | None = Field(
        default=None,
        description="position of its chunk in the index, the same for all documents of one chunk",
    )
    text: str | None = Field(default=None, description="a node's text; a chunk's is the source span")


class TokenCounts(Line):
    """Tokens of the reader's tokenizer; ``forwarded`` counts every model's forward passes."""

    prompt: _Count
    completion: _Count
    forwarded: _Count
    computed: int | None = Field(
        default=None,
        description="forwarded without those whose keys and values another question's context had already: "
        "depends on what ran beside it; None: not counted",
    )


class FlopCounts(Line):
    """FLOPs, one multiply-add = 2, in the named convention."""

    query: _Count = Field(description="spent on this question")
    index: _Count = Field(description="spent once on its documents, shared by all their questions")
    convention: str
    query_by_model: dict[str, JsonValue] = Field(description="model -> phase -> usage")
    index_by_model: dict[str, JsonValue]

    @property
    def query_tflops(self) -> float:
        """TFLOPs spent on this question."""
        return self.query / TFLOP

    @property
    def index_tflops(self) -> float:
        """TFLOPs spent on its documents."""
        return self.index / TFLOP


def index_costs(records: Iterable[Record]) -> list[FlopCounts]:
    """The FLOPs of each document set's index, once; a question whose index failed has none of its own."""
    found: dict[tuple[str, ...], FlopCounts] = {}
    for record in records:
        key = tuple(record.document_ids)
        found[key] = max(found.get(key, record.flops), record.flops, key=lambda flops: flops.index)
    return list(found.values())


def error_kind(error: str) -> str:
    """The name of the exception's class in the ``error`` of a record."""
    return error.partition(":")[0]


class Record(Line):
    """One answered or failed question: answer, scores, context and cost."""

    example_id: str
    document_ids: list[str] = Field(description="content hashes of the documents, in order")
    question: str
    answers: list[str] = Field(description="reference answers")
    prediction: str | None = Field(description="None when the question failed")
    drawn: list[str] = Field(
        default=[], description="further answers from random draws; scores are means over all of them"
    )
    scores: dict[str, float] = Field(description="metric -> 0..1; 0 for a failed question")
    context: list[ContextRecord]
    retrieval: dict[str, float] = Field(
        default={}, description="measures of the context, 0..1, where they are defined"
    )
    tokens: TokenCounts
    flops: FlopCounts
    truncated: bool
    flags: list[str] = Field(description="events worth counting, such as empty_document")
    wall_s: float = Field(description="seconds from start to answer, waiting for the model included")
    error: str | None = Field(description="why the question failed")
    trace: JsonValue = Field(description="the method's own log")


def rescored(record: Record, wanted: Iterable[str] = ()) -> Record | None:
    """The record with the scores that its prediction and references have; None if it has them already.

    wanted: metrics that it may lack. A record without references, as cells that may not hold the data's text
    have, is taken at its word.
    """
    metrics = [METRICS[name] for name in {**record.scores, **dict.fromkeys(wanted)} if name in METRICS]
    scores = question_scores(record.prediction, record.answers, metrics, record.drawn)
    has = {name: record.scores.get(name, math.nan) for name in scores}
    if all(math.isclose(has[name], value, abs_tol=1e-9) for name, value in scores.items()):
        return None
    return record.model_copy(update={"scores": {**record.scores, **scores}})


def believed(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """The records, each with the scores that it should have; a warning names those that had others."""
    wrong: list[str] = []
    try:
        for record in records:
            right = rescored(record)
            if right is not None:
                wrong.append(record.example_id)
            yield right or record
    finally:
        if wrong:
            log.warning(
                "%s: %s; read are those that do. bench score with the cell's folder writes them.",
                path,
                _unfounded(wrong),
            )


def _unfounded(examples: Sequence[str]) -> str:
    return (
        f"scores of {len(examples)} record(s), such as {examples[0]!r}, do not follow from prediction and "
        "references"
    )


def read_records(path: Path) -> Iterator[Record]:
    """The records of a finished file in order; raises BenchError naming file:line for a bad line.

    Scores that do not follow from prediction and references are computed again, with a warning.
    """
    return believed(_parsed(path), path)


def _parsed(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield Record.model_validate_json(line)
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]
                field = ".".join(str(part) for part in fault["loc"])
                raise BenchError(
                    f"{path}:{number}: not a record ({field + ': ' if field else ''}{fault['msg']}). "
                    "Run the cell's command again: it sets damaged lines aside and repeats their questions."
                ) from None


def load_records(place: str | Path) -> list[Record]:
    """The records of a cell's folder, or of its file, in order; of a question asked again the last one.

    Raises BenchError for a bad line, or no file.
    """
    path = Path(place)
    path = path / RECORDS_FILE if path.is_dir() else path
    if not path.is_file():
        raise BenchError(f"{path}: no such file. Give a cell's folder (bench list cells) or its records.")
    return list({record.example_id: record for record in read_records(path)}.values())


class RecordStore(JsonLines[Record, str]):
    """The append-only records of one cell by example id, locked by one process at a time.

    Questions whose lines are damaged count as unanswered.
    """

    file_name = RECORDS_FILE
    sibling_files = (CELL_FILE, SUMMARY_FILE)
    damage_notice = "their questions are answered again"
    row = Record

    def key(self, row: Record) -> str:
        """The example id."""
        return row.example_id

    def set_right(self, metrics: Iterable[str] = ()) -> None:
        """Append again the records that lack one of the metrics, or, with a warning, have a wrong score."""
        before = list(self.done.values())
        mended = [(old, new) for old in before if (new := rescored(old, metrics)) is not None]
        for _, new in mended:
            self.append(new)
        wrong = [old.example_id for old, new in mended if not old.scores.items() <= new.scores.items()]
        if wrong:
            log.warning("%s: %s; they were computed again", self.path, _unfounded(wrong))
