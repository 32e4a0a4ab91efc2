"""Predictions of one run for several cells: a shared context is looked at once, all else each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.errors import QuestionError
from bench.method.validation import require_predictions
from bench.schema import ContextItem, Document, DocumentSet, Prediction

DOCUMENTS = DocumentSet((Document("", "Ada lives in Turin."),))
HELD = [ContextItem("Ada", document=0, start=0, end=3)]


def test_the_fault_of_a_shared_context_is_found() -> None:
    wrong = [ContextItem("Bob", document=0, start=0, end=3)]
    with pytest.raises(QuestionError, match="not what stands"):
        require_predictions([Prediction("Turin", wrong), Prediction("Rome", wrong)], DOCUMENTS)


@pytest.mark.parametrize(
    "fault", [{"trace": {"score": float("nan")}}, {"flags": (1,)}, {"context": [None]}, {"text": None}, None]
)
def test_the_fault_of_a_later_prediction_is_found(fault: dict[str, object] | None) -> None:
    first = Prediction("Turin", HELD)
    later = replace(first, **fault) if fault else None  # type: ignore[arg-type]
    with pytest.raises(QuestionError, match=None if fault else "expected a Prediction"):
        require_predictions([first, later], DOCUMENTS)  # type: ignore[list-item]
