"""LongBench v2's entries: a question with four choices on one long text (THUDM/LongBench, README.md).

    {"_id", "domain", "sub_domain", "difficulty", "length", "question", "choice_A" ... "choice_D",
     "answer": "A" ... "D", "context"}

The question is asked with its choices, as the benchmark's template lists them; the reference is the letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from bench.data.entries import Entry
from bench.data.format import Fields, Format, Parsed, fields_of, parsed
from bench.schema import Document


class _Entry(Fields):
    id: str = Field(alias="_id")
    question: str
    choice_A: str
    choice_B: str
    choice_C: str
    choice_D: str
    answer: Literal["A", "B", "C", "D"]
    context: str


def _recognises(entry: Entry) -> bool:
    return {"context", "question", "choice_A", "choice_D"} <= entry.value.keys()


def _parse(entry: Entry) -> Iterator[Parsed]:
    line = fields_of(entry, _Entry)
    texts = (line.choice_A, line.choice_B, line.choice_C, line.choice_D)
    choices = "\n".join(f"({letter}) {text.strip()}" for letter, text in zip("ABCD", texts, strict=True))
    yield parsed(
        id=line.id,
        question=f"{line.question.strip()}\nChoices:\n{choices}",
        answers=[line.answer],
        documents=[Document("", line.context.strip())],
        datasets=("longbench_v2",),
    )


LONGBENCH_V2 = Format("longbench-v2", "LongBench v2", _recognises, _parse)
