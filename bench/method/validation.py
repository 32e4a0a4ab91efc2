"""Checks of a method's return values: a record must be able to hold them, and they must be true."""

from __future__ import annotations

import inspect
import json
import math
from numbers import Integral, Real

from bench.errors import QuestionError
from bench.schema import ContextItem, DocumentSet, Index, Prediction


def require_index(returned: object) -> Index:
    """The index; raises QuestionError for any other type."""
    if not isinstance(returned, Index):
        raise QuestionError(f"index() returned {_kind(returned)}; expected an Index{_forgotten(returned)}")
    return returned


def require_prediction(returned: object, documents: DocumentSet) -> Prediction:
    """The prediction, if a record can hold it and its passages are in the documents at their places.

    Raises QuestionError naming the fault.
    """
    if not isinstance(returned, Prediction):
        raise QuestionError(f"answer() returned {_kind(returned)}; expected Prediction{_forgotten(returned)}")
    _require_text("the answer", returned.text)
    for name in ("prompt_tokens", "completion_tokens"):
        count = getattr(returned, name)
        if not isinstance(count, Integral) or count < 0:
            raise QuestionError(f"{name} is {count!r}; expected a number of tokens")
    if not isinstance(returned.truncated, bool):
        raise QuestionError(f"truncated is {returned.truncated!r}; expected true or false")
    for name, texts in (("a flag", returned.flags), ("a drawn answer", returned.drawn)):
        for text in texts:
            _require_text(name, text)
    for position, item in enumerate(returned.context):
        _require_item(position, item, documents)
    if not isinstance(returned.trace, dict):
        raise QuestionError(f"the trace is {_kind(returned.trace)}; expected a dict")
    try:
        json.dumps(returned.trace, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise QuestionError(f"the trace is no JSON: {error}") from None
    return returned


def _forgotten(returned: object) -> str:
    """What to do about a coroutine that nothing awaited; it is closed, so that Python does not warn too."""
    if not inspect.iscoroutine(returned):
        return ""
    returned.close()
    return ". Is an 'await' missing?"


def _require_item(position: int, item: object, documents: DocumentSet) -> None:
    label = f"context item {position}"
    if not isinstance(item, ContextItem):
        raise QuestionError(f"{label} is {_kind(item)}; expected a ContextItem")
    _require_text(label, item.text)
    _require_text(f"the title of {label}", item.title)
    if item.node is not None:
        _require_text(f"the node of {label}", item.node)
    places = (item.document, item.start, item.end)
    if not all(place is None or isinstance(place, Integral) for place in places):
        raise QuestionError(f"{label} has the place {places}; expected whole numbers")
    if item.chunk is not None and not isinstance(item.chunk, Integral):
        raise QuestionError(f"{label} has the chunk {item.chunk!r}; expected a whole number")
    if item.score is not None and not (isinstance(item.score, Real) and math.isfinite(item.score)):
        raise QuestionError(f"{label} has the score {item.score!r}; expected a number")
    count = len(documents.documents)
    if item.document is not None and not 0 <= item.document < count:
        raise QuestionError(f"{label} is of document {item.document}; expected 0 to {count - 1}")
    if item.start is not None or item.end is not None:
        _require_span(position, item, documents)


def _require_span(position: int, item: ContextItem, documents: DocumentSet) -> None:
    place = f"document {item.document} [{item.start}:{item.end}]"
    text = "" if item.document is None else documents.documents[item.document].full_text
    start, end = item.start, item.end
    if item.document is None or start is None or end is None or not 0 <= start <= end <= len(text):
        raise QuestionError(f"context item {position} is {place}, a place that does not exist")
    if text[start:end] != item.text:
        raise QuestionError(f"context item {position} is not what stands in {place}")


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise QuestionError(f"{name} is {_kind(value)}; expected text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise QuestionError(f"{name} holds half a character ({value[error.start]!a})") from None


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
