import asyncio

from bench.data import load
from bench.data.own import card_for
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.results.records import load_records
from bench.schema import Document, DocumentSet, Example
from performance.real_comparisons import FOLDER
from performance.stop_signal import LISTS, cases_of, steps_of


def test_texts_that_an_export_left_out_do_not_say_that_the_answer_was_not_read() -> None:
    record = next(iter(load_records(FOLDER / "cells" / "pecan--hotpotqa--8d0e48d7cf493bea")))
    documents = DocumentSet((Document("", ""),) * 10)
    example = Example(record.example_id, "hotpotqa", "qa", "", ("Rome",), documents)
    assert steps_of(record, example, "answer") == []
    told = [item.model_copy(update={"text": "Rome"}) for item in record.context]
    assert steps_of(record.model_copy(update={"context": told}), example, "answer")[0].sufficient


def test_every_list_is_judged_once() -> None:
    """``2 others`` begins two longer lists, and was counted twice among all lengths."""
    example = load(card_for("hotpotqa", "sample"), "sample").examples[0]
    cases = asyncio.run(cases_of(example, load_language_model(resolve("tiny")), 4096))
    assert sorted(case.name for case in cases) == sorted(("nothing", *LISTS))
