"""The last step of most methods: the reader answers from passages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from bench.method.prompts import DEFAULT_PROMPT, Prompting, join_passages, reader_prompt
from bench.models.conversation import LanguageModel
from bench.schema import Chunk, ContextItem, Prediction, Question


def passages(chunk: Chunk, question: Question, score: float | None = None) -> list[ContextItem]:
    """A chunk of the question's documents as passages of the context: one for each document that it is of.

    Put one after the other by :func:`read`, they are the chunk's text.
    """
    documents = question.documents.documents
    return [
        ContextItem(
            text=documents[position].full_text[start:end],
            document=position,
            title=documents[position].title,
            start=start,
            end=end,
            score=score,
            chunk=chunk.index,
        )
        for position, start, end in chunk.spans
    ]


def fits(prompt: str, lm: LanguageModel, max_new_tokens: int, limit: int) -> bool:
    """Whether template, prompt and answer stay within ``limit`` tokens of ``lm``."""
    return lm.chat_overhead + lm.count_tokens(prompt) + max_new_tokens <= limit


async def read(
    context: Sequence[ContextItem],
    question: Question,
    lm: LanguageModel,
    style: Prompting = DEFAULT_PROMPT,
    *,
    drop_order: Sequence[int] | None = None,
    flags: Sequence[str] = (),
) -> Prediction:
    """The reader's greedy answer to the question, given the passages in this order.

    If the context exceeds ``lm.geometry.input_limit``, entire passages are dropped in ``drop_order``
    (positions in ``context``; default: from the end) and the prediction is marked truncated.
    Without any passage the question is asked alone and flagged ``empty_context``.
    Raises WindowExceededError if not even the question fits.
    """
    dropping = list(dict.fromkeys([*(drop_order or ()), *range(len(context) - 1, -1, -1)]))

    def without(dropped: int) -> tuple[list[ContextItem], str]:
        gone = set(dropping[:dropped])
        kept = [item for position, item in enumerate(context) if position not in gone]
        return kept, reader_prompt(style, join_passages([item.text for item in kept]), question)

    def suffices(dropped: int) -> bool:
        return fits(without(dropped)[1], lm, question.max_new_tokens, lm.geometry.input_limit)

    few = 0 if suffices(0) else bisect_left(range(len(context)), True, key=suffices)
    passages, prompt = without(few)
    answer = await lm.generate(prompt, question.max_new_tokens)
    return Prediction(
        text=answer.text.strip(),
        context=passages,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=len(answer.token_ids),
        truncated=len(passages) < len(context),
        flags=(*flags, *(() if passages else ("empty_context",))),
    )
