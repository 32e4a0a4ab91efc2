"""Chain of Agents: read everything chunk by chunk, pass notes on, and answer from the last notes.

Zhang et al. 2024 (arXiv 2406.02818), Algorithm 1: the text is cut into chunks of whole sentences that fit the
window (Algorithm 2); one worker after the other reads its chunk, the question and the notes of the worker
before, and writes notes that include both; a manager answers from the last notes. Every token is read once
in a short context, so the cost grows with the length and not with its square. The paper calls the notes
communication units; several chains with a vote (Sec. 5) are left out.

All of it depends on the question: there is no index. The prompts say what the paper's (Tables 11 and 12) say
in our words; the manager asks as every method does  # our choice.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    PROMPT_CHOICES,
    ConfigError,
    Geometry,
    LanguageModel,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    fits,
    read,
)
from bench.schema import Chunk, ContextItem, Document, DocumentSet, Index, Prediction, Question
from methods.raptor.leaves import split_into_leaves

PROMPT = (
    "Text:\n{text}\n\nNotes on the text before it:\n{notes}\n\nQuestion:\n{question}\n\n"
    "Write new notes that hold all of the text and of the notes that helps to answer the question."
)
LEAST_CHUNK = 16
"""Tokens that a chunk gets, however long the question."""
LEAST_ROOM = 128
"""Least tokens of a window beside the notes: prompt, question and text.  # our choice"""


class ChainOfAgentsConfig(MethodConfig):
    """How much a worker reads."""

    window: int | None = Field(
        None,
        ge=128,
        description="most tokens that a worker reads and writes; default: the geometry's window (8K in the "
        "papers)",
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


class ChainOfAgents(Method[ChainOfAgentsConfig]):
    """Notes while reading."""

    name = "chain_of_agents"
    version = "1"
    summary = "read everything chunk by chunk, pass notes on, answer from the last notes"
    paper = "Zhang et al. 2024 (arXiv 2406.02818), Algorithms 1 and 2"
    family = "the whole text"
    Config = ChainOfAgentsConfig

    def __init__(self, config: ChainOfAgentsConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options; raises ConfigError for a window without room, or larger than the model's."""
        super().__init__(config, geometry, seed)
        least, most = 2 * self.note_tokens + LEAST_ROOM, geometry.input_limit
        if config.window is not None and not least <= config.window <= most:
            raise ConfigError(
                f"window={config.window}: the notes before and after take {2 * self.note_tokens} of it, and "
                f"the model takes {most} tokens; give {least} to {most}."
            )

    @property
    def note_tokens(self) -> int:
        """Most tokens of the notes."""  # our choice
        return 2 * self.geometry.chunk_tokens

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer from the last worker's notes; the trace has all notes."""
        lm, written, cut, over = models.lm(), [""], False, False
        window = self.config.window or lm.geometry.window
        texts = [chunk.text for chunk in reversed(self._chunks(question, lm))]
        while texts:
            text = texts.pop()
            prompt = PROMPT.format(text=text, notes=written[-1], question=question.text)
            if not fits(prompt, lm, self.note_tokens, lm.geometry.input_limit):
                # Joined, the parts may have more tokens than they were counted with.
                halves = _halves(text, lm)
                if len(halves) > 1:
                    texts += reversed(halves)
                    continue
            over = over or not fits(prompt, lm, self.note_tokens, window)
            notes = await lm.generate(prompt, self.note_tokens)
            cut = cut or notes.finish != "stop"
            written.append(notes.text or written[-1])
        context = [ContextItem(text=written[-1], node="notes")] if written[-1] else []
        flags = [] if len(written) > 1 else ["empty_document"]
        flags += ["cut_notes"] * cut + ["over_window"] * over
        answer = await read(context, question, lm, self.config.prompt, flags=flags)
        return replace(answer, trace={"notes": written[1:]})

    def _chunks(self, question: Question, lm: LanguageModel) -> list[Chunk]:
        """Pieces of whole sentences that fit a worker's window beside question and notes, old and new."""
        frame = lm.chat_overhead + lm.count_tokens(PROMPT.format(text="", notes="", question=question.text))
        room = (self.config.window or lm.geometry.window) - frame - 2 * self.note_tokens
        return split_into_leaves(question.documents, lm.tokenize, max(LEAST_CHUNK, room), join=True)


def _halves(text: str, lm: LanguageModel) -> list[str]:
    """A text in two or more; in one where it is short already."""
    half = max(LEAST_CHUNK, -(-lm.count_tokens(text) // 2))
    leaves = split_into_leaves(DocumentSet((Document("", text),)), lm.tokenize, half)
    return [leaf.text for leaf in leaves]
