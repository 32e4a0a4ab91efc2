"""One generated summary, as trees of summaries need it."""

from __future__ import annotations

from collections import Counter

from bench.models.conversation import LanguageModel


async def summarize(
    lm: LanguageModel, prompt: str, source: str, max_new_tokens: int, events: Counter[str]
) -> str:
    """The model's answer to ``prompt``; falls back to the beginning of ``source`` if the answer is empty.

    So no node of a tree is empty, and the nodes below it can be found.  # our choice
    Counts ``cut_summary`` (the token limit was reached) and ``empty_summary`` in ``events``.
    """
    answer = await lm.generate(prompt, max_new_tokens)
    events["cut_summary"] += answer.finish != "stop"
    if answer.text:
        return answer.text
    events["empty_summary"] += 1
    return beginning(lm, source, max_new_tokens)


def beginning(lm: LanguageModel, text: str, tokens: int) -> str:
    """The first ``tokens`` tokens of the text, as source text."""
    return text[: max((end for _, end in lm.tokenize(text).offsets[:tokens]), default=0)]
