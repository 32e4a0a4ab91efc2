"""Full context: the reader gets the whole document (PECAN Table 1, the reader alone).

LongBench order (document, then question). A text over the limit loses its **middle**, as in LongBench: half
of the allowed tokens are taken from its beginning and half from its end; PECAN cuts at 100K tokens and does
not say where. The cut is recorded.

Two more ways to cut come from Graph of Records (Sec. 3.1): ``cut=end`` keeps the beginning, like its
long-context LLMs with ``max_tokens=window`` (8K); ``cut=spans`` answers from several random spans that fill
the limit and averages their scores, like its full-context row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from bench.method import (
    DEFAULT_PROMPT,
    PASSAGE_SEPARATOR,
    PROMPT_CHOICES,
    Generation,
    LanguageModel,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    join_passages,
    reader_prompt,
)
from bench.schema import ContextItem, Index, Prediction, Question


class FullContextConfig(MethodConfig):
    """The limit and the prompt."""

    max_tokens: Annotated[int, Field(ge=64)] | Literal["window"] | None = Field(
        None,
        description="most tokens of template, prompt and answer, 64 or more; window: the geometry's window "
        "(8K in the papers); default: the model's input limit",
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)
    cut: Literal["middle", "end", "spans"] = Field(
        "middle",
        exclude_if=lambda chosen: chosen == "middle",
        description="what a text over the limit loses: middle (LongBench), end, or all but a random span, "
        "several times (Graph of Records)",
    )
    draws: int = Field(
        5,
        ge=1,
        le=100,
        exclude_if=lambda chosen: chosen == 5,
        description="answers from random spans, whose scores are averaged, with cut=spans",
    )  # our choice: the paper says several

    @model_validator(mode="after")
    def _draws_are_of_spans(self) -> Self:
        if self.draws != type(self).model_fields["draws"].default and self.cut != "spans":
            raise ValueError(f"draws={self.draws} does nothing with cut={self.cut}; set cut=spans")
        return self


class FullContext(Method[FullContextConfig]):
    """Read everything."""

    name = "full_context"
    version = "1"
    summary = "read the whole document, with its middle cut if it is too long"
    paper = "PECAN, Table 1 (the reader alone); truncation as in LongBench"
    family = "the whole text"
    Config = FullContextConfig

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer from the whole text, or from what is left after the cut.

        With ``cut=spans``, the text is the first of several answers and the others are in ``drawn``; context
        and tokens are the first one's.
        """
        lm, style = models.lm(), self.config.prompt
        texts = [document.full_text for document in question.documents.documents]
        whole = join_passages(texts)
        starts: list[float | None] = [None]
        if self.config.cut == "spans":
            rng = np.random.default_rng([self.seed, int(question.documents.id, 16)])
            starts = list(rng.random(self.config.draws))
        cuts = [self.kept(whole, question, lm, at) for at in starts]
        if cuts[0] == [(0, len(whole))]:
            cuts = cuts[:1]  # a text that fits is read once; otherwise equal draws all count

        async def read(cut: list[tuple[int, int]]) -> Generation:
            text = "".join(whole[start:end] for start, end in cut)
            return await self.generate(reader_prompt(style, text, question), question, lm)

        answers = await asyncio.gather(*map(read, cuts))
        pieces, flags = cuts[0], [] if whole.strip() else ["empty_document"]
        if not any(whole[start:end].strip() for start, end in pieces):
            flags.append("empty_context")
        if len(cuts) > 1:
            flags.append(f"mean_of_{len(cuts)}_spans")
        return Prediction(
            text=answers[0].text.strip(),
            context=_as_items(texts, question, pieces),
            prompt_tokens=answers[0].prompt_tokens,
            completion_tokens=len(answers[0].token_ids),
            truncated=pieces != [(0, len(whole))],
            flags=tuple(flags),
            trace={"kept_characters": sum(end - start for start, end in pieces), "characters": len(whole)},
            drawn=tuple(answer.text.strip() for answer in answers[1:]),
        )

    async def generate(self, prompt: str, question: Question, lm: LanguageModel) -> Generation:
        """The reader's answer to the prompt."""
        return await lm.generate(prompt, question.max_new_tokens)

    def kept(
        self, whole: str, question: Question, lm: LanguageModel, start: float | None = None
    ) -> list[tuple[int, int]]:
        """The character ranges of the text that are read; start: relative start of a random span, in 0..1."""
        return _fit(whole, question, lm, self.config.prompt, self.limit(lm), self._head(start))

    def limit(self, lm: LanguageModel) -> int:
        """Most tokens of template, prompt and answer."""
        option = self.config.max_tokens
        limit = lm.geometry.window if option == "window" else option or lm.geometry.input_limit
        return min(limit, lm.geometry.input_limit)

    def _head(self, start: float | None) -> _Head:
        """How to divide the token budget; start: relative start of a random span, in 0..1."""
        if start is not None:
            return lambda budget, tokens: (int(start * (tokens - budget + 1)), budget)
        if self.config.cut == "end":
            return lambda budget, tokens: (0, budget)
        return lambda budget, tokens: (0, budget // 2)


_Head: TypeAlias = Callable[[int, int], tuple[int, int]]
"""(token budget, tokens of the text) -> start and length of the first piece; the rest of the budget is taken
from the text's end."""


def _fit(
    whole: str, question: Question, lm: LanguageModel, style: PromptStyle, limit: int, shape: _Head
) -> list[tuple[int, int]]:
    """The character ranges of ``whole`` that are read: all of it, or the pieces that ``shape`` chooses."""
    frame = lm.chat_overhead + lm.count_tokens(reader_prompt(style, "", question)) + question.max_new_tokens
    tokens = lm.tokenize(whole)
    budget = limit - frame
    while True:
        if budget >= len(tokens.ids):
            pieces = [(0, len(whole))]
        else:
            first, head = shape(max(0, budget), len(tokens.ids))
            tail = budget - head
            head_start = tokens.offsets[first][0] if first > 0 and head > 0 else 0
            head_end = tokens.offsets[first + head - 1][1] if head > 0 else 0
            tail_start = tokens.offsets[len(tokens.ids) - tail][0] if tail > 0 else len(whole)
            pieces = [(head_start, head_end), (max(head_end, tail_start), len(whole))]
        prompt = reader_prompt(style, "".join(whole[a:b] for a, b in pieces), question)
        over = lm.chat_overhead + lm.count_tokens(prompt) + question.max_new_tokens - limit
        if over <= 0 or budget <= 0:
            return pieces
        budget = max(0, min(budget, len(tokens.ids)) - over)  # cut edges may tokenise into more tokens


def _as_items(texts: list[str], question: Question, pieces: list[tuple[int, int]]) -> list[ContextItem]:
    """The character ranges that were read, document by document."""
    items: list[ContextItem] = []
    offset = 0
    for position, (document, text) in enumerate(zip(question.documents.documents, texts, strict=True)):
        for start, end in pieces:
            first, last = max(start - offset, 0), min(end - offset, len(text))
            if first < last:
                items.append(
                    ContextItem(
                        text=text[first:last], document=position, title=document.title, start=first, end=last
                    )
                )
        offset += len(text) + len(PASSAGE_SEPARATOR)
    return items
