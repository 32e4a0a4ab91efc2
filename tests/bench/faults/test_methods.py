"""Methods that raise, hang or return nonsense: each fails its own question."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.results.index_store import IndexStore
from bench.results.records import read_records
from bench.run.cell import Cell
from bench.schema import ContextItem, Document, DocumentSet, Example, Index, Prediction, Question
from tests.bench.faults.runs import rows, run, sharing
from tests.stand_ins import Echo, EchoConfig, WordModels, examples, run_cells, stand_in_cell


class Odd(Echo):
    """Does what ``does`` says on the question with ``odd`` in it."""

    does: Callable[[Question], Any]

    async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
        if "odd" in question.text:
            output = type(self).does(question)
            return await output if asyncio.iscoroutine(output) else output  # type: ignore[no-any-return]
        return await super().answer(index, question, models)


def odd_cell(does: Callable[[Question], Any], n: int = 3) -> Cell:
    """A cell whose second question meets the odd behaviour."""
    sample = list(examples(n, questions_per_document=1))
    sample[1] = Example(**{**vars(sample[1]), "question": "What is odd"})
    kind = type("Odd", (Odd,), {"does": staticmethod(does)})
    cell: Cell = stand_in_cell(sample)
    return dataclasses.replace(cell, method=kind(EchoConfig()))


def errors_of(folder: Path, cell: Cell, **options: Any) -> list[str | None]:
    run(cell, folder, **options)
    return [row["error"] for row in rows(folder)]


def one_document(text: str) -> DocumentSet:
    return DocumentSet((Document("", text),))


PASSAGE = ContextItem("text 1", 0, "", 0, 6)


def context_of(**changes: Any) -> Prediction:
    return Prediction("a", [dataclasses.replace(PASSAGE, **changes)])


NONSENSE: dict[str, tuple[Any, str]] = {
    "nothing": (None, "answer() returned None; expected Prediction"),
    "a string": ("forty-two", "answer() returned a str"),
    "no text": (Prediction(7), "the answer is a int"),  # type: ignore[arg-type]
    "half a character": (Prediction("a\ud800"), "half a character"),
    "fewer than no tokens": (Prediction("a", prompt_tokens=-1), "prompt_tokens is -1"),
    "a context of strings": (Prediction("a", ["text"]), "context item 0 is a str"),  # type: ignore[list-item]
    "another document": (context_of(document=4), "document 4; expected 0 to 0"),
    "a document before the first": (Prediction("a", [ContextItem("text 1", document=-1)]), "document -1"),
    "a place before the text": (context_of(start=-2), "a place that does not exist"),
    "a place after the text": (context_of(end=60), "a place that does not exist"),
    "a place without an end": (context_of(end=None), "a place that does not exist"),
    "a place counted from the end": (context_of(end=-2), "a place that does not exist"),
    "a place between characters": (context_of(end=5.5), "expected whole numbers"),
    "words that are not there": (context_of(text="text 2"), "not what stands in document 0 [0:6]"),
    "a node that is no name": (context_of(node=3), "the node of context item 0 is a int"),
    "a flag that is no text": (Prediction("a", flags=(None,)), "a flag is None"),  # type: ignore[arg-type]
    "a draw that is no text": (Prediction("a", drawn=(7,)), "a drawn answer is a int"),  # type: ignore[arg-type]
    "perhaps cut": (Prediction("a", truncated="perhaps"), "truncated is 'perhaps'"),  # type: ignore[arg-type]
    "a score in words": (context_of(score="high"), "the score 'high'"),
    "no number": (context_of(score=math.nan), "the score nan"),
    "a chunk by its name": (context_of(chunk="first"), "the chunk 'first'"),
    "a log without names": (Prediction("a", trace=["seen"]), "the trace is a list; expected a dict"),  # type: ignore[arg-type]
    "a log that is no JSON": (Prediction("a", trace={"seen": {1, 2}}), "the trace is no JSON"),
    "a log with no number": (Prediction("a", trace={"p": math.inf}), "the trace is no JSON"),
}


def test_nonsense_fails_its_own_question_and_says_what_is_wrong(tmp_path: Path) -> None:
    kinds = list(NONSENSE)
    sample = [
        dataclasses.replace(example, question=f"What is odd {at}" if at < len(kinds) else "What is answer")
        for at, example in enumerate(examples(len(kinds) + 1, questions_per_document=50))
    ]
    sample = [dataclasses.replace(example, documents=one_document("text 1")) for example in sample]
    kind = type("Odd", (Odd,), {"does": lambda question: NONSENSE[kinds[int(question.text.split()[-1])]][0]})
    errors = errors_of(tmp_path, dataclasses.replace(stand_in_cell(sample), method=kind(EchoConfig())))
    assert errors.pop() is None
    for (name, (_, message)), error, row in zip(NONSENSE.items(), errors, rows(tmp_path), strict=False):
        assert error is not None and error.startswith("QuestionError: ") and message in error, name
        assert row["scores"] == {"f1": 0.0}


@pytest.mark.filterwarnings("error")
def test_a_forgotten_await_is_guessed(tmp_path: Path) -> None:
    class Forgetful(Echo):
        async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
            return super().answer(index, question, models)  # type: ignore[return-value]

    cell = dataclasses.replace(stand_in_cell(examples(1)), method=Forgetful(EchoConfig()))
    message = "QuestionError: answer() returned a coroutine; expected Prediction. Is an 'await' missing?"
    assert errors_of(tmp_path, cell) == [message]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    passage = dataclasses.replace(PASSAGE, score=np.float32(0.5), start=np.int64(0))
    prediction = Prediction("a", [passage], prompt_tokens=np.int64(7))  # type: ignore[arg-type]
    assert errors_of(tmp_path, odd_cell(lambda question: prediction)) == [None] * 3
    assert (rows(tmp_path)[1]["context"][0]["score"], rows(tmp_path)[1]["tokens"]["prompt"]) == (0.5, 7)


def test_an_index_that_is_none_fails_its_questions(tmp_path: Path) -> None:
    class NoIndex(Echo):
        async def index(self, documents: Any, models: Any) -> Index:
            return None  # type: ignore[return-value]

    cell = dataclasses.replace(stand_in_cell(examples(2)), method=NoIndex(EchoConfig()))
    assert errors_of(tmp_path, cell) == ["QuestionError: index() returned None; expected an Index"] * 2


def raising(error: BaseException) -> Callable[[Question], Any]:
    def does(question: Question) -> Any:
        raise error

    return does


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (MemoryError("cannot take 40 GB"), "MemoryError: cannot take 40 GB"),
        (SystemExit(0), "QuestionError: the method tried to end the program (exit code 0)"),
        (asyncio.CancelledError(), "QuestionError: the method cancelled its own work"),
        (ValueError("half \ud800"), "ValueError: half ?"),
        (ValueError("long " * 10_000), "ValueError: long"),
        (Unspeakable(), "Unspeakable: (its message cannot be read)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_whatever_a_method_raises_fails_its_own_question(
    tmp_path: Path, error: BaseException, recorded: str, timeout_s: float | None
) -> None:
    first, second, third = errors_of(tmp_path, odd_cell(raising(error)), timeout_s=timeout_s)
    assert first is third is None
    assert second is not None and second.startswith(recorded) and len(second) <= 2_000
    (line,) = [row for row in read_records(tmp_path / "cell" / "records.jsonl") if row.error]
    assert line.prediction is None


def test_a_question_that_fails_after_the_model_was_asked_keeps_what_it_cost(tmp_path: Path) -> None:
    class Late(Echo):
        async def answer(self, index: Index, question: Question, models: Any) -> Prediction:
            prediction = await super().answer(index, question, models)
            if "answer1" in question.text:
                raise ValueError("too late")
            return prediction

    cell = dataclasses.replace(stand_in_cell(examples(2)), method=Late(EchoConfig()))
    assert errors_of(tmp_path, cell) == [None, "ValueError: too late"]
    well, failed = rows(tmp_path)
    assert failed["flops"] == well["flops"] and failed["flops"]["query"] > 0
    assert failed["tokens"]["forwarded"] == well["tokens"]["forwarded"] > 0


def forever_awaiting(question: Question) -> Any:
    return asyncio.Event().wait()


def test_a_method_that_hangs_fails_that_question_and_no_neighbour(tmp_path: Path) -> None:
    errors = errors_of(tmp_path, odd_cell(forever_awaiting, n=6), timeout_s=1.0, in_flight=6)
    assert errors == [None, "TimeLimitError: no answer within 1 s", None, None, None, None]
    odd_cell_again = odd_cell(lambda question: Prediction("patience"), n=6)
    assert run(odd_cell_again, tmp_path).answered == 0, "a failure is an answer, until it is asked again"
    assert run(odd_cell_again, tmp_path, retry_failed=True).answered == 1


def test_an_index_that_is_never_done_fails_its_questions_only(tmp_path: Path) -> None:
    class Slow(Echo):
        async def index(self, documents: Any, models: Any) -> Index:
            if documents.documents[0].text == "text 0":
                await asyncio.Event().wait()
            return await super().index(documents, models)

    cell = dataclasses.replace(stand_in_cell(examples(4)), method=Slow(EchoConfig()))
    message = "TimeLimitError: no index within 1 s"
    assert errors_of(tmp_path, cell, timeout_s=1.0) == [message, message, None, None]


def test_a_shared_run_that_hangs_is_asked_cell_by_cell(tmp_path: Path) -> None:
    hanging: list[str] = []

    def hang(question: Question) -> Any:
        hanging.append(question.text)
        return forever_awaiting(question)

    class Shared(Odd):
        does = staticmethod(hang)

        async def replay(self, index: Any, question: Question, models: Any, configs: Sequence[Any]) -> Any:
            if "answer0" in question.text:
                await asyncio.Event().wait()
            if "answer2" in question.text:
                return [None for _ in configs]
            return await super().replay(index, question, models, configs)

    cells = []
    for suffix in ("a", "b"):
        cell = odd_cell(forever_awaiting)
        cell = dataclasses.replace(cell, method=Shared(EchoConfig(suffix=suffix)))
        cells.append((sharing(cell), tmp_path / suffix))
    run_cells(cells, IndexStore(tmp_path / "indexes"), WordModels, timeout_s=1.0)
    for suffix in ("a", "b"):
        records = list(read_records(tmp_path / suffix / "records.jsonl"))
        assert [r.prediction for r in records] == [f"answer0{suffix}", None, f"answer2{suffix}"]
    assert len(hanging) == len(cells) + 1, "once together, then once for each cell"
