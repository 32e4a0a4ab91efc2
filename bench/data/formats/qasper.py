"""Qasper: the release and the hub's columnar layout (Dasigi et al. 2021).

The release is one object of papers::

    {paper id: {"title", "abstract", "full_text": [{"section_name", "paragraphs": [...]}],
                "qas": [{"question", "question_id", "answers": [{"answer": {...}}]}]}}

The hub stores lists of objects as columns (``full_text: {section_name: [], paragraphs: [[]]}``,
``qas: {question: [], question_id: [], answers: [{answer: [...]}]}``), one paper per entry.

The document's text is the abstract, then per section a blank line, its name and its paragraphs, one
per line. There is one reference per annotator: "Unanswerable", "Yes" or "No", the free-form answer, or
the extractive spans joined by ", ". The evidence is the annotators' paragraphs; figures and tables
("FLOAT SELECTED") are not part of the text and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed, rows_of
from bench.data.formats.musique import UNANSWERABLE
from bench.schema import Document, Evidence


class _Section(Fields):
    section_name: str | None
    paragraphs: list[str]


class _Answer(Fields):
    unanswerable: bool
    extractive_spans: list[str]
    yes_no: bool | None
    free_form_answer: str
    evidence: list[str] = []


class _Annotation(Fields):
    answer: _Answer


class _Question(Fields):
    question: str
    question_id: str
    answers: list[_Annotation]


class _Paper(Fields):
    title: str
    abstract: str
    full_text: list[_Section]
    qas: list[_Question]


def _recognises_columnar(entry: Entry) -> bool:
    columns = (entry.value.get("full_text"), entry.value.get("qas"))
    return all(column is None or isinstance(column, dict) for column in columns) and _recognises(entry)


def _recognises(entry: Entry) -> bool:
    return "qas" in entry.value and ("full_text" in entry.value or "abstract" in entry.value)


def _parse_columnar(entry: Entry) -> Iterator[Parsed]:
    rows = dict(entry.value)
    for name in ("full_text", "qas"):
        if name in rows:
            rows[name] = rows_of(rows[name], name)
    for question in rows.get("qas", []):
        if isinstance(question.get("answers"), dict):
            question["answers"] = rows_of(question["answers"], "qas.answers")
    yield from _parse(replace(entry, value=rows))


def _parse(entry: Entry) -> Iterator[Parsed]:
    paper = fields_of(entry, _Paper)
    document = Document(paper.title, flatten(paper.abstract, paper.full_text))
    for question in paper.qas:
        references = [reference(annotation.answer) for annotation in question.answers]
        paragraphs = [text for annotation in question.answers for text in annotation.answer.evidence]
        yield parsed(
            id=question.question_id,
            question=question.question,
            answers=[answer for answer in references if answer is not None],
            documents=(document,),
            evidence=[Evidence(0, text=text) for text in paragraphs if text and text in document.text],
            datasets=("qasper",),
            notes=["an annotator gave no answer"] if None in references else [],
        )


def flatten(abstract: str, sections: Sequence[_Section]) -> str:
    """The paper as one text: abstract, then per section a blank line, its name, its paragraphs."""
    lines = [abstract]
    for section in sections:
        lines += ["", *([section.section_name] if section.section_name else []), *section.paragraphs]
    return "\n".join(lines)


def reference(answer: _Answer) -> str | None:
    """One annotator's answer as text; None if the annotator gave none."""
    if answer.unanswerable:
        return UNANSWERABLE
    if answer.yes_no is not None:
        return "Yes" if answer.yes_no else "No"
    if answer.free_form_answer:
        return answer.free_form_answer
    return ", ".join(answer.extractive_spans) if answer.extractive_spans else None


QASPER_RELEASE = Format("qasper-release", "Qasper release", _recognises, _parse)
QASPER_COLUMNAR = Format("qasper-columnar", "Qasper, hub columns", _recognises_columnar, _parse_columnar)
