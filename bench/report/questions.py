"""The data of the question browser: records shortened to fit a page, each text stored once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.data import load as load_data
from bench.data.own import card_for
from bench.errors import BenchError
from bench.method.trace import SearchStep, SearchTrace, described
from bench.report.cells import DataGroup, NamedCell, options_text
from bench.results.records import ContextRecord, Record
from bench.schema import Document, JsonValue

SELECTED = 4
"""Number of methods that are selected when the page opens."""


@dataclass(frozen=True)
class Limits:
    """Maximum amounts of records on a page.  # our choice: some 20 MB at most."""

    questions: int = 100
    """Questions per data set, in the order of the data."""
    cells: int = 40
    """Cells per data set, the highest scores first."""
    passages: int = 60
    """Passages per context."""
    passage_characters: int = 1_200
    answer_characters: int = 2_000
    """Characters of an answer, a question, an error or a log."""
    all_characters: int = 8_000_000
    """Characters of all passages together; a text in several contexts counts once."""


@dataclass(frozen=True)
class Browser:
    """The questions of all data sets."""

    data: JsonValue
    """``{"sets": [...], "texts": [...]}``, the input of ``page.js``."""
    notes: tuple[str, ...]
    """What was left out."""
    questions: int


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning with a note on how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]} … [{len(text) - limit:,} more characters]"


def browse(groups: Sequence[DataGroup], own_files: Sequence[Path], limits: Limits) -> Browser:
    """The records of the groups' cells.

    own_files: the user's own data files, for the texts of contexts: records store spans, not texts. Raises
    BenchError for invalid records.
    """
    page = _Page(limits)
    sets = [page.data_set(group, own_files) for group in groups]
    if page.refused:
        page.notes.append(
            f"{page.refused:,} passages have no text, since the page is limited to "
            f"{limits.all_characters:,} characters of passages."
        )
    questions = sum(len(data_set["questions"]) for data_set in sets)
    return Browser({"sets": sets, "texts": list(page.texts)}, tuple(page.notes), questions)


class _Page:
    """What is on the page so far, within its limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.notes: list[str] = []
        self.texts: dict[str, int] = {}
        """Passages with their numbers, each stored once."""
        self.refused = 0
        self._characters = 0

    def data_set(self, group: DataGroup, own_files: Sequence[Path]) -> dict[str, JsonValue]:
        """One data set: its questions, and every method's answers in the same order."""
        cells = group.cells[: self.limits.cells]
        if len(cells) < len(group.cells):
            self.notes.append(
                f"{group.label}: {len(group.cells) - len(cells)} of {len(group.cells)} finished cells are "
                "left out of the questions; the highest scores are shown."
            )
        records = [list(named.cell.records) for named in cells]
        questions: dict[str, Record] = {}
        for run in sorted(records, key=len, reverse=True):  # the longest run has the order of the data
            for record in run:
                questions.setdefault(record.example_id, record)
        shown = list(questions.values())[: self.limits.questions]
        if len(shown) < len(questions):
            self.notes.append(f"{group.label}: the first {len(shown)} of {len(questions)} questions.")
        documents = SourceTexts(group, own_files)
        methods = [self._method(one, run, shown, documents) for one, run in zip(cells, records, strict=True)]
        for method in methods[:SELECTED]:
            method["chosen"] = True
        if documents.missing:
            why = f": {documents.reason}" if documents.reason else ""
            self.notes.append(f"{group.label}: {documents.missing:,} passages have no text{why}")
        return {
            "label": group.label,
            "questions": [
                {
                    "id": record.example_id,
                    "question": self._cut(record.question),
                    "references": [self._cut(text) for text in record.answers],
                }
                for record in shown
            ],
            "metrics": [*dict.fromkeys(name for run in records for record in run for name in record.scores)],
            "methods": methods,
        }

    def _method(
        self, named: NamedCell, records: Iterable[Record], shown: Iterable[Record], documents: SourceTexts
    ) -> dict[str, JsonValue]:
        by_id = {record.example_id: record for record in records}
        found = [by_id.get(question.example_id) for question in shown]
        return {
            "name": named.name,
            "options": options_text(named.cell),
            "model": named.cell.description.model_label,
            "answers": [None if record is None else self._answer(record, documents) for record in found],
        }

    def _answer(self, record: Record, documents: SourceTexts) -> dict[str, JsonValue]:
        """One method's record of one question, without empty values."""
        most = self.limits.passages
        answer: dict[str, JsonValue] = {
            "prediction": None if record.prediction is None else self._cut(record.prediction),
            "error": None if record.error is None else self._cut(record.error),
            "scores": {name: round(value, 4) for name, value in record.scores.items()},
            "retrieval": {name: round(value, 4) for name, value in record.retrieval.items()},
            "flops": [record.flops.query, record.flops.index],
            "tokens": [record.tokens.prompt, record.tokens.completion, record.tokens.forwarded],
            "flags": [*(["truncated"] if record.truncated else []), *record.flags],
            "context": [self._passage(it, record.document_ids, documents) for it in record.context[:most]],
            "more": max(0, len(record.context) - most),
        }
        path = search_path(record)
        if path is not None:
            answer["path"] = path
        elif record.trace:
            answer["log"] = self._cut(described(record.trace))
        return {key: value for key, value in answer.items() if value not in (None, [], {}, 0)}

    def _passage(self, item: ContextRecord, ids: Sequence[str], documents: SourceTexts) -> list[JsonValue]:
        """Title, place, score, and the number of the text."""
        place = f"node {item.node}" if item.node else f"document {item.document} [{item.start}:{item.end}]"
        text = documents.text(item, ids)
        return [shortened(item.title, 200), place, item.score, None if text is None else self._number(text)]

    def _number(self, text: str) -> int | None:
        """The number of a passage; None once the page is full."""
        cut = shortened(text, self.limits.passage_characters)
        if cut not in self.texts:
            if self._characters + len(cut) > self.limits.all_characters:
                self.refused += 1
                return None
            self._characters += len(cut)
            self.texts[cut] = len(self.texts)
        return self.texts[cut]

    def _cut(self, text: str) -> str:
        return shortened(text, self.limits.answer_characters)


class SourceTexts:
    """The documents of one data set by content hash, loaded for the first passage that needs its text."""

    def __init__(self, group: DataGroup, own_files: Sequence[Path]) -> None:
        """own_files: where the user's own data are; else they may be where the cells had them."""
        self.dataset = group.dataset
        recorded = sorted({one.cell.description.data_path for one in group.cells} - {""})
        own = (*own_files, *(place for place in recorded if os.access(place, os.F_OK)))
        self.places = [str(place) for place in own] if group.source == "path" else [group.source]
        self.missing = 0
        """Number of passages whose document is missing."""
        self.reason = "" if self.places else "name your file with --documents"
        """Why documents are missing, if known."""

    def text(self, item: ContextRecord, ids: Sequence[str]) -> str | None:
        """The passage's text as the reader received it; None if the document is unavailable.

        ids: the content hashes of the record's documents.
        """
        if item.text is not None:
            return item.text
        if item.document is None or item.start is None or item.document >= len(ids):
            return None
        document = self._documents.get(ids[item.document])
        if document is None:
            self.missing += 1
            return None
        return document.full_text[item.start : item.end]

    @cached_property
    def _documents(self) -> dict[str, Document]:
        documents: dict[str, Document] = {}
        for place in self.places:
            try:
                data = load_data(card_for(self.dataset, place), place)
            except BenchError as error:
                self.reason = str(error)
                continue
            documents |= {d.id: d for example in data.examples for d in example.documents.documents}
        return documents


def search_path(record: Record) -> dict[str, JsonValue] | None:
    """The steps of a search whose nodes became the context, as input of ``page.js``; else None."""
    trace = SearchTrace.read(record.trace)
    if trace is None or not trace.read_nodes or len(trace.read_nodes) != len(record.context):
        return None
    return {
        **{key: value for key, value in trace.details.items() if isinstance(value, str | int | float)},
        "steps": [_step(step) for step in trace.steps],
    }


def _step(step: SearchStep) -> dict[str, JsonValue]:
    nodes = [{key: own for key, own in node if key in _SHOWN and own is not None} for node in step.nodes]
    measures = {"p_yes": step.p_yes, "mass": step.details.get("mass")}
    return {"nodes": nodes, **{key: round(value, 4) for key, value in measures.items() if value is not None}}


_SHOWN = ("id", "level", "score")
"""Fields of a node that the page shows."""
