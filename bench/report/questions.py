"""What the browser of questions shows: records cut to a size that a page can carry, each text once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.method.contract import Method
from bench.method.trace import SearchStep, SearchTrace
from bench.report.cells import DataGroup, NamedCell, options_text
from bench.results.passages import SourceTexts
from bench.results.records import RECORDS_FILE, ContextRecord, Record, read_records
from bench.run.cell_folder import method_of
from bench.schema import JsonValue

STARTING = 4
"""Methods that are chosen when the page opens."""


@dataclass(frozen=True)
class Limits:
    """How much of the records a page carries.  # our choice: some 20 MB at most."""

    questions: int = 100
    """Of one data set, in the order of the data."""
    cells: int = 40
    """On one data set; rows of tables first."""
    passages: int = 60
    """Of one context."""
    passage_characters: int = 1_200
    answer_characters: int = 2_000
    """Also of a question, an error and a log."""
    all_characters: int = 8_000_000
    """Of all passages together; each text counts once, however many contexts hold it."""


@dataclass(frozen=True)
class Browser:
    """The questions of all data sets."""

    data: JsonValue
    """``{"sets": [...], "texts": [...]}``, as ``page.js`` reads it."""
    notes: tuple[str, ...]
    """What was left out."""
    questions: int


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning with a visible mark of how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]} … [{len(text) - limit:,} more characters]"


def browse(groups: Sequence[DataGroup], own_files: Sequence[Path], limits: Limits) -> Browser:
    """The records of the groups' cells.

    own_files: where data with a source of their own lie, for the texts of the contexts: records keep
    places, not texts. Raises BenchError for records that are not as their version writes them.
    """
    texts = _Texts(limits)
    notes: list[str] = []
    sets = [
        _set(group, SourceTexts(group.dataset, group.source, own_files), texts, limits, notes)
        for group in groups
    ]
    if texts.refused:
        notes.append(
            f"{texts.refused:,} passages are without text: those before them fill the page's "
            f"{limits.all_characters:,} characters."
        )
    questions = sum(len(data_set["questions"]) for data_set in sets)
    return Browser({"sets": sets, "texts": texts.kept}, tuple(notes), questions)


class _Texts:
    """Passages by number, each kept once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.kept: list[str] = []
        self.refused = 0
        self._numbers: dict[str, int] = {}
        self._characters = 0

    def number(self, text: str) -> int | None:
        """The place of the text in ``kept``; None once the page is full."""
        cut = shortened(text, self.limits.passage_characters)
        if cut not in self._numbers:
            if self._characters + len(cut) > self.limits.all_characters:
                self.refused += 1
                return None
            self._characters += len(cut)
            self._numbers[cut] = len(self.kept)
            self.kept.append(cut)
        return self._numbers[cut]


def _set(
    group: DataGroup, documents: SourceTexts, texts: _Texts, limits: Limits, notes: list[str]
) -> dict[str, JsonValue]:
    """One data set: its questions, and every method's answers in their order."""
    cells = group.cells[: limits.cells]
    if len(cells) < len(group.cells):
        notes.append(
            f"{group.label}: {len(group.cells) - len(cells)} of {len(group.cells)} finished cells are left "
            "out of the questions; rows of tables come first."
        )
    records = [list(read_records(named.cell.folder / RECORDS_FILE)) for named in cells]
    questions: dict[str, Record] = {}
    for found in sorted(records, key=len, reverse=True):  # the longest run has the order of the data
        for record in found:
            questions.setdefault(record.example_id, record)
    shown = list(questions.values())[: limits.questions]
    if len(shown) < len(questions):
        notes.append(f"{group.label}: the first {len(shown)} of {len(questions)} questions.")
    methods = [
        _method(named, found, shown, documents, texts, limits)
        for named, found in zip(cells, records, strict=True)
    ]
    for at in _starting(methods):
        methods[at]["chosen"] = True
    if documents.missing:
        why = f": {documents.reason}" if documents.reason else ""
        notes.append(f"{group.label}: {documents.missing:,} passages are without text{why}")
    return {
        "label": group.label,
        "questions": [
            {
                "id": record.example_id,
                "question": shortened(record.question, limits.answer_characters),
                "references": [shortened(text, limits.answer_characters) for text in record.answers],
            }
            for record in shown
        ],
        "metrics": sorted({name for found in records for record in found[:1] for name in record.scores}),
        "methods": methods,
    }


def _starting(methods: Sequence[Mapping[str, JsonValue]]) -> list[int]:
    """The methods chosen at first: those in front, and one whose answers have a search path."""
    front = list(range(min(STARTING, len(methods))))
    searching = [
        at
        for at, method in enumerate(methods)
        if any(answer is not None and "path" in answer for answer in method["answers"])
    ]
    if searching and not set(front) & set(searching):
        front[-1] = searching[0]
    return front


def _method(
    named: NamedCell,
    records: Iterable[Record],
    shown: Iterable[Record],
    documents: SourceTexts,
    texts: _Texts,
    limits: Limits,
) -> dict[str, JsonValue]:
    by_id = {record.example_id: record for record in records}
    plugin = method_of(named.cell.folder)
    answers = []
    for question in shown:
        record = by_id.get(question.example_id)
        answers.append(None if record is None else _answer(record, plugin, documents, texts, limits))
    return {
        "name": named.name,
        "options": options_text(named.cell),
        "model": named.cell.description.model_label,
        "answers": answers,
    }


def _answer(
    record: Record, plugin: type[Method[Any]] | None, documents: SourceTexts, texts: _Texts, limits: Limits
) -> dict[str, JsonValue]:
    """One method's record of one question; what is empty is left out."""
    long = limits.answer_characters
    found: dict[str, JsonValue] = {
        "prediction": None if record.prediction is None else shortened(record.prediction, long),
        "error": None if record.error is None else shortened(record.error, long),
        "scores": {name: round(value, 4) for name, value in record.scores.items()},
        "retrieval": {name: round(value, 4) for name, value in (record.retrieval or {}).items()},
        "flops": [record.flops.query, record.flops.index],
        "tokens": [record.tokens.prompt, record.tokens.completion, record.tokens.forwarded],
        "flags": [*(["truncated"] if record.truncated else []), *record.flags],
        "context": [
            _passage(item, record.document_ids, documents, texts)
            for item in record.context[: limits.passages]
        ],
        "more": max(0, len(record.context) - limits.passages),
    }
    path = search_path(record)
    if path is not None:
        found["path"] = path
    elif record.trace:
        found["log"] = shortened(_log(record, plugin), long)
    return {key: value for key, value in found.items() if value not in (None, [], {}, 0)}


def _passage(
    item: ContextRecord, ids: Sequence[str], documents: SourceTexts, texts: _Texts
) -> list[JsonValue]:
    """Title, place, score, and the number of the text."""
    place = f"node {item.node}" if item.node else f"document {item.document} [{item.start}:{item.end}]"
    text = documents.text(item, ids)
    return [shortened(item.title, 200), place, item.score, None if text is None else texts.number(text)]


def _log(record: Record, plugin: type[Method[Any]] | None) -> str:
    """The trace in its method's words, or field by field."""
    described = plugin.describe_trace(record.trace) if plugin is not None else ""
    return described or "\n".join(f"{name}: {value}" for name, value in record.trace.items())


def search_path(record: Record) -> dict[str, JsonValue] | None:
    """The steps of a search whose nodes became the context, as ``page.js`` draws them; else None."""
    trace = SearchTrace.read(record.trace)
    if trace is None or not trace.read_nodes or len(trace.read_nodes) != len(record.context):
        return None
    return {
        **{key: value for key, value in trace.about.items() if isinstance(value, str | int | float)},
        "steps": [_step(step) for step in trace.steps],
    }


def _step(step: SearchStep) -> dict[str, JsonValue]:
    nodes = [
        {key: value for key, value in node.to_json().items() if key in _SHOWN and value is not None}
        for node in step.nodes
    ]
    measures = {"p_yes": step.p_yes, "mass": step.details.get("mass")}
    return {"nodes": nodes, **{key: round(value, 4) for key, value in measures.items() if value is not None}}


_SHOWN = ("id", "level", "score")
"""Of a node."""
