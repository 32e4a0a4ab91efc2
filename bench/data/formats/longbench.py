r"""LongBench's lines: one example with its context as one string (THUDM/LongBench, task.md).

    {"input", "context", "answers": [...], "length", "dataset", "language", "all_classes", "_id"}

The same fields as CSV, with the answers as a list in Python's or numpy's form, also parse. The context of the
multi-document sets is ``Passage 1:\n<title>\n<text>\nPassage 2:\n...``; it is split at these headings.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document

_UNTITLED = {"multi_news"}
"""Multi-document sets whose passages have no title line."""
_SUMMARIES = {"gov_report", "qmsum", "multi_news", "vcsum", "samsum"}


def _list_literal(value: Any) -> Any:
    """A CSV cell's ``"['a', 'b']"`` as a list, or numpy's ``"['a' 'b']"``; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        listed = ast.literal_eval(value)
        tokens = list(tokenize.generate_tokens(io.StringIO(value.strip()).readline))
    except (ValueError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError):
        raise ValueError("should be a list of strings") from None
    strings = [token.string for token in tokens if token.type == tokenize.STRING]
    if not isinstance(listed, list) or len(strings) <= len(listed):
        return listed
    if any(token.string == "," for token in tokens):
        raise ValueError("should be a list of strings with commas between them all, or none as numpy's")
    return [ast.literal_eval(string) for string in strings]  # Python reads strings without a comma as one


class _Line(Fields):
    input: str
    context: str
    answers: Annotated[list[str], BeforeValidator(_list_literal)]
    dataset: str
    id: str = Field(default="", validation_alias=AliasChoices("_id", "id"))


def _recognises(entry: Entry) -> bool:
    return {"input", "context"} <= entry.value.keys() or {"context", "_id", "length"} <= entry.value.keys()


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = fields_of(entry, _Line)
    name = line.dataset.removesuffix("_e")  # of LongBench-E
    yield parsed(
        id=line.id or f"{line.dataset}-{entry.position}",
        question=line.input,
        answers=line.answers,
        documents=split_passages(line.context, titled=name not in _UNTITLED),
        task="summarization" if name in _SUMMARIES else "qa",
        datasets=(line.dataset,),
    )


def split_passages(context: str, *, titled: bool = True) -> tuple[Document, ...]:
    """The passages of a multi-document context; a context without passage headings is one document.

    The title is the first line of a passage and the text is the rest, so that joining heading, title
    and text with newlines restores the context byte for byte. ``titled=False``: the title is empty.
    Headings only count in numerical order, so that a text that quotes a heading is not split.
    """
    if not context.startswith("Passage 1:\n"):
        return (Document("", context),)
    bodies: list[str] = []
    start = len("Passage 1:\n")
    while heading := re.compile(rf"\nPassage {len(bodies) + 2}:\n").search(context, start):
        bodies.append(context[start : heading.start()])
        start = heading.end()
    bodies.append(context[start:])
    if not titled:
        return tuple(Document("", body) for body in bodies)
    return tuple(Document(title, text) for title, _, text in (body.partition("\n") for body in bodies))


LONGBENCH = Format("longbench", "LongBench", _recognises, _parse)
