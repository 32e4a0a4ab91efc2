"""Chain of Agents: every chunk is read once, with the notes of the worker before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.schema import Document, DocumentSet, Index, Prediction, Question
from methods.chain_of_agents import ChainOfAgents, ChainOfAgentsConfig
from tests.stand_ins import GEOMETRY, Replying, WordModels

SENTENCE = "Mara hid kite number {} in the mill near the river."


class Reader(Replying):
    """Notes how many notes it has written, the first of them too long."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__(lambda _: "" if silent else f"note{len(self.prompts)}")

    async def generate(self, *arguments: Any) -> Any:
        generation = await super().generate(*arguments)
        cut = len(self.prompts) == 1 and generation.text == "note1"
        return replace(generation, finish="length" if cut else "stop")


def asked(
    sentences: int, reader: Reader | None = None, window: int | None = 160, of: str = "Where is it?"
) -> tuple[Prediction, Reader, Meter]:
    models: Any = WordModels(reader or Reader())
    text = " ".join(SENTENCE.format(n) for n in range(sentences))
    documents = DocumentSet((Document("", text), Document("", "Otto saw it.")))
    method = ChainOfAgents(ChainOfAgentsConfig(window=window), GEOMETRY)
    with metered(Meter()) as meter:
        prediction = asyncio.run(method.answer(Index(), Question(of, documents, 8), models))
    return prediction, models.reader, meter


def test_each_worker_reads_the_next_sentences_and_the_notes_before() -> None:
    prediction, reader, _ = asked(20)
    workers, manager = reader.prompts[:-1], reader.prompts[-1]
    assert len(workers) == 3 and prediction.trace["notes"] == [f"note{n + 1}" for n in range(len(workers))]
    for n in range(20):
        assert sum(SENTENCE.format(n) in prompt for prompt in workers) == 1
    assert "Otto saw it." in workers[-1] and "Otto" not in manager
    assert all(f"\nnote{n}\n" in prompt for n, prompt in enumerate(workers[1:], 1))
    assert all(reader.count_tokens(prompt) + reader.chat_overhead + 16 <= 160 for prompt in workers)
    assert f"note{len(workers)}" in manager and prediction.text == f"note{len(workers) + 1}"
    assert [item.node for item in prediction.context] == ["notes"] and prediction.flags == ("cut_notes",)


class Merging(Reader):
    """A word after a newline is more tokens than it is alone."""

    def count_tokens(self, text: str) -> int:
        return super().count_tokens(text) + 60 * text.count("\nMara")


def test_a_prompt_that_is_longer_than_its_parts_still_fits_the_reader() -> None:
    _, reader, _ = asked(60, Merging(), window=None)
    workers = reader.prompts[:-1]
    order = [n for prompt in workers for n in range(60) if SENTENCE.format(n) in prompt]
    assert order == list(range(60)) and len(workers) == 10  # 17 sentences do not fit: read are 8, 8 and 1
    assert all(reader.count_tokens(prompt) + reader.chat_overhead + 16 <= 256 for prompt in workers)


def test_a_question_that_leaves_a_worker_no_room_is_flagged() -> None:
    assert asked(20, of="Where is it? " * 45)[0].flags == ("cut_notes", "over_window")


def test_the_cost_grows_with_the_length_and_not_with_its_square() -> None:
    short, long = (asked(n)[2].usage["words", "prefill"].attended for n in (40, 80))
    assert long < 2.3 * short


@pytest.mark.parametrize("window", [128, 10**6])
def test_a_window_without_room_or_larger_than_the_models_is_refused(window: int) -> None:
    """A larger one was cut without a word, and its cell said that it had been used."""
    with pytest.raises(ConfigError, match=f"window={window}: the notes before and after take 32 .* give 160"):
        asked(1, window=window)


@pytest.mark.parametrize("sentences", [1, 20])
def test_a_worker_without_notes_passes_the_ones_before_it_on(sentences: int) -> None:
    prediction, reader, _ = asked(sentences, Reader(silent=True))
    assert prediction.context == [] and prediction.flags == ("empty_context",)
    assert "Information" not in reader.prompts[-1]
    assert [item.text for item in asked(1)[0].context] == ["note1"]
