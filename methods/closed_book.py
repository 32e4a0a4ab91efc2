"""Closed book: the reader answers from its own knowledge; the lower bound of every table.

It gets the same prompt as in every other method, without any context. So its score owes nothing to the
document: guesses, memorised data, answers that the question gives away.
"""

from __future__ import annotations

from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    PROMPT_CHOICES,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    reader_prompt,
)
from bench.schema import Index, Prediction, Question


class ClosedBookConfig(MethodConfig):
    """The prompt."""

    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


class ClosedBook(Method[ClosedBookConfig]):
    """Read nothing."""

    name = "closed_book"
    version = "1"
    summary = "answer without reading anything (the lower bound)"
    paper = "closed-book question answering, Roberts et al. 2020"
    family = "the whole text"
    Config = ClosedBookConfig

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The reader's answer to the question alone."""
        prompt = reader_prompt(self.config.prompt, "", question)
        answer = await models.lm().generate(prompt, question.max_new_tokens)
        has_text = any(document.full_text.strip() for document in question.documents.documents)
        return Prediction(
            text=answer.text.strip(),
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=len(answer.token_ids),
            flags=() if has_text else ("empty_document",),
        )
