"""From predictions and references to scores: one question, or a file of JSON lines.

A failed question (a line with an ``error``) scores 0 in every metric and is counted separately, so that a
method gains nothing by failing; for BLEU-4 it counts as an empty prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from bench.errors import DataError
from bench.metrics import CorpusMetric, Metric, QuestionMetric
from bench.schema import JsonValue

DEFAULT_METRICS = ("f1", "rouge_l", "bleu_4")
"""The metrics of PECAN and GARLIC."""


@dataclass(frozen=True)
class Answered:
    """One question's prediction and references, as scoring needs them."""

    prediction: str | None
    """None when the question failed."""
    references: tuple[str, ...]
    """Empty: nothing to score."""
    line: int | None = None
    """Line of the file it came from, counted from 1."""
    example_id: str | int | None = None
    drawn: tuple[str, ...] = ()
    """Further answers from random draws; the question's scores are means over all."""


@dataclass(frozen=True)
class Scores:
    """The scores of a set of questions."""

    questions: tuple[tuple[Answered, Mapping[str, float]], ...]
    """Every question with its values of the metrics that have one per question."""
    mean: Mapping[str, float]
    """Metric -> mean over all questions, or the one value of a corpus-level metric."""
    corpus_level: tuple[str, ...]
    """The keys of ``mean`` that are no mean but one value for all questions together."""
    failed: int
    """How many of the questions failed; they are in every mean, as 0."""
    unscored: int
    """How many have no reference; they are in no mean."""

    def to_json(self) -> dict[str, JsonValue]:
        """``{"lines": [...], "mean": {...}, "corpus_level": [...], "n": ..., "failed": ...}``."""
        lines = [
            {
                "line": answered.line,
                **({} if answered.example_id is None else {"example_id": answered.example_id}),
                **({"failed": True} if answered.prediction is None else {}),
                "scores": dict(scores),
            }
            for answered, scores in self.questions
        ]
        return {
            "lines": lines,
            "mean": dict(self.mean),
            "corpus_level": list(self.corpus_level),
            "n": len(self.questions),
            "failed": self.failed,
            **({"unscored": self.unscored} if self.unscored else {}),
        }


def question_scores(
    prediction: str | None, references: Sequence[str], metrics: Iterable[Metric], drawn: Sequence[str] = ()
) -> dict[str, float]:
    """Metric -> value in 0..1 of one question; None (failed) scores 0. Corpus-level metrics are left out.

    drawn: further answers to the same question, whose scores are averaged with the prediction's.
    Without a reference there is nothing to score, and the result is empty.
    """
    if not references:
        return {}
    return {
        metric.name: 0.0
        if prediction is None
        else float(np.mean([metric.score(text, references) for text in (prediction, *drawn)]))
        for metric in metrics
        if isinstance(metric, QuestionMetric)
    }


def question_counts(
    prediction: str | None, references: Sequence[str], metric: CorpusMetric, drawn: Sequence[str] = ()
) -> NDArray[np.float64]:
    """Counts of one question for a corpus-level metric, shape (k,); None (failed) counts as an empty answer.

    drawn: further answers to the same question; the counts are the means over all, so that a question has
    the weight of one.
    """
    counts = [metric.statistics(text, references) for text in (prediction or "", *drawn)]
    return np.asarray(np.mean(counts, axis=0))


def score_questions(questions: Iterable[Answered], metrics: Sequence[Metric]) -> Scores:
    """The scores of all questions; raises ValueError without one that has a reference."""
    answered = tuple(questions)
    scored = [question for question in answered if question.references]
    if not scored:
        raise ValueError("Cannot average zero questions.")
    rows = [question_scores(q.prediction, q.references, metrics, q.drawn) for q in answered]
    mean: dict[str, float] = {}
    for metric in metrics:
        if isinstance(metric, CorpusMetric):
            counts = [question_counts(q.prediction, q.references, metric, q.drawn) for q in scored]
            mean[metric.name] = float(metric.value(np.sum(counts, axis=0)))
        else:
            mean[metric.name] = float(np.mean([row[metric.name] for row in rows if row]))
    return Scores(
        questions=tuple(zip(answered, rows, strict=True)),
        mean=mean,
        corpus_level=tuple(m.name for m in metrics if isinstance(m, CorpusMetric)),
        failed=sum(q.prediction is None for q in answered),
        unscored=len(answered) - len(scored),
    )


def read_answered(path: Path) -> tuple[Answered, ...]:
    """The questions of a JSON Lines file; raises DataError naming the problem and its line."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a JSON Lines file. Name a file inside it.")
    try:
        with path.open("rb") as stream:
            return parse_answered(stream, str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; expected a JSON Lines file.") from None


def parse_answered(stream: Iterable[bytes], name: str) -> tuple[Answered, ...]:
    """The questions of a stream of JSON Lines in UTF-8, empty lines skipped.

    ``name`` stands for the stream in messages. Raises DataError for a line that is not JSON or lacks
    a field that scoring needs, and for a stream without any record.
    """
    questions = []
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw.strip():
            questions.append(_parse_line(raw, number, f"{name}:{number}"))
    if not questions:
        raise DataError(f"{name} holds no record; expected one JSON object per line.")
    if not any(question.references for question in questions):
        raise DataError(f"{name}: no line has a reference answer, so there is nothing to score. {_EXPECTED}")
    return tuple(questions)


_EXPECTED = 'Expected one object a line: {"prediction": "Paris", "answers": ["Paris", "the city of Paris"]}.'


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)
    prediction: str | None = None
    answers: list[str]
    drawn: list[str] = []
    error: JsonValue = None
    example_id: JsonValue = None


def _parse_line(raw: bytes, number: int, place: str) -> Answered:
    try:
        line = _Line.model_validate_json(raw)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'the line'}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        raise DataError(f"{place}: {'; '.join(faults)}. {_EXPECTED}") from None
    if line.prediction is None and not line.error:
        why = 'there is no prediction. For a question that failed, say why in "error".'
        raise DataError(f"{place}: {why} {_EXPECTED}")
    return Answered(
        prediction=None if line.error else line.prediction,
        references=tuple(line.answers),
        line=number,
        example_id=line.example_id if isinstance(line.example_id, str | int) else None,
        drawn=tuple(line.drawn),
    )
