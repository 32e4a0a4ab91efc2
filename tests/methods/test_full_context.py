"""What full context leaves out of a text that is too long, and the mean over random spans."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from bench.conformance import MethodConformance
from bench.flops.meter import Meter, metered
from bench.models.api import Geometry
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from methods.full_context import FullContext, FullContextConfig
from tests.methods.writers import GEOMETRY, Models, Writer

WORDS = [f"w{number:04d}" for number in range(1500)]
LONG = DocumentSet((Document("", " ".join(WORDS[:900])), Document("", " ".join(WORDS[900:]))))
SHORT = DocumentSet((Document("", "w0000 w0001"),))
NARROW = replace(GEOMETRY, window=300, input_limit=1000)


def answer(
    documents: DocumentSet, geometry: Geometry = NARROW, seed: int = 0, asked: str = "Why?", **options: Any
) -> tuple[Prediction, Writer, Meter]:
    models = Models(lambda prompt: " ".join(w for w in prompt.split() if w.startswith("w0"))[:40], geometry)
    method = FullContext(FullContextConfig(**options), geometry, seed)
    question = Question(asked, documents, 20, task="summarization")
    with metered(Meter()) as meter:
        prediction = asyncio.run(method.answer(Index(), question, models))  # type: ignore[arg-type]
    return prediction, models.writer, meter


def read(prediction: Prediction) -> list[str]:
    return " ".join(item.text for item in prediction.context).split()


def test_the_middle_is_cut_out_or_the_end_off_where_the_beginning_is_wanted() -> None:
    prediction, writer, _ = answer(LONG, max_tokens="window", cut="end")
    kept, halves = read(prediction), read(answer(LONG, max_tokens="window")[0])
    assert kept == WORDS[: len(kept)] and 200 < len(kept) < 300
    half = len(kept) // 2  # and a word more, since the two at the cut are one token
    assert halves == WORDS[:half] + WORDS[half - len(kept) - 1 :]
    assert prediction.truncated and prediction.drawn == ()
    assert writer.count_tokens(writer.prompts[0]) + writer.chat_overhead + 20 == 300


def test_the_window_is_the_geometrys_and_never_more_than_the_input_limit() -> None:
    narrow, _, _ = answer(LONG, max_tokens="window", cut="end")
    default, _, _ = answer(LONG, cut="end")
    assert len(read(default)) > 3 * len(read(narrow))
    beyond = replace(NARROW, window=5000)
    assert read(answer(LONG, beyond, max_tokens="window", cut="end")[0]) == read(default)


def test_random_spans_are_contiguous_fill_the_window_and_differ() -> None:
    prediction, writer, meter = answer(LONG, max_tokens="window", cut="spans", draws=4)
    assert len(writer.prompts) == 4 and len(prediction.drawn) == 3
    assert prediction.flags == ("mean_of_4_spans",) and prediction.truncated
    spans = []
    for prompt in writer.prompts:
        words = [word for word in prompt.split() if word.startswith("w") and word[1:].isdigit()]
        first = WORDS.index(words[0])
        assert words == WORDS[first : first + len(words)]
        assert writer.count_tokens(prompt) + writer.chat_overhead + 20 <= 300
        assert len(words) > 200
        spans.append(first)
    assert len(set(spans)) == 4
    assert meter.new_tokens > 4 * 250  # all of them are paid for


def test_equal_draws_of_a_text_just_over_the_limit_all_count() -> None:
    words = DocumentSet((Document("", " ".join(WORDS[:260])),))
    for narrower in range(260, 400):
        limited = replace(NARROW, window=narrower)
        prediction, writer, _ = answer(words, limited, max_tokens="window", cut="spans")
        if not prediction.truncated:
            assert len(writer.prompts) == 1 and prediction.drawn == prediction.flags == ()
            break
        assert len(writer.prompts) == 5 and prediction.flags == ("mean_of_5_spans",)
    assert not prediction.truncated and narrower > 260


@pytest.mark.parametrize("cut", ["middle", "end", "spans"])
def test_no_room_for_any_text_is_a_truncated_answer(cut: str) -> None:
    question = " ".join(["why"] * 300)
    for seed in range(40):
        prediction, _, _ = answer(SHORT, seed=seed, asked=question, max_tokens=64, cut=cut)
        assert prediction.truncated and not prediction.context and prediction.trace["kept_characters"] == 0
        assert "empty_context" in prediction.flags


def test_options_that_came_later_do_not_change_what_older_cells_are_called() -> None:
    assert FullContextConfig().model_dump(mode="json") == {"max_tokens": None, "prompt": "pecan"}
    ids = {plan_cell(CellRequest("full_context", "chronicles")).identity.cell_id}
    for options in ({"cut": "end"}, {"cut": "spans"}, {"cut": "spans", "draws": 2}, {"max_tokens": "window"}):
        ids.add(plan_cell(CellRequest("full_context", "chronicles", options=options)).identity.cell_id)
    assert len(ids) == 5


def test_draws_without_spans_are_refused() -> None:
    with pytest.raises(ValidationError, match="draws=2 does nothing with cut=middle; set cut=spans"):
        FullContextConfig(draws=2)


class TestRandomSpans(MethodConformance):
    method = "full_context"
    options = {"cut": "spans", "max_tokens": 200, "draws": 2}  # noqa: RUF012
