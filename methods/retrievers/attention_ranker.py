"""Attention as ranker: how much a question's tokens attend to each chunk, and the best k are read.

In-context reranking (ICR; Chen et al. 2024, arXiv 2410.02642) reads all chunks at once with the question
behind them. A token's score is the attention that the question's tokens pay to it, on average over heads,
less what a content-free query, "N/A", pays to it in the question's place. A chunk's score is the sum over
its tokens, but for those below the mean by more than two standard deviations. QRHead (Zhang et al. 2025,
arXiv 2506.09944) does the same with a few heads that look for evidence, ``heads=1.0+1.1``, which
``python -m training.heads`` finds for a model. Prompt and details are those of QRHead's code; the question's
tokens are its instruction, the query and the end of the turn.

The chunks and the pass with "N/A" are the index. A question costs its own tokens over the cached chunks, and
the reading of k of them in a prompt of their own. As in :mod:`methods.cached_context` both are closed forms:
what an engine really kept is in the records as ``tokens.computed``.

A text that is longer than the model's window is scored in windows of whole chunks, each with its own pass of
"N/A", and flagged ``scored_in_windows``; shares of attention in different windows are compared as they are
# our choice. Attention to single tokens takes memory by the square of a window's tokens, 256 MB for 8K: so a
window is the model's and not all that it can take. Scores are means over heads where the papers have sums,
which changes no order, and each chunk's tokens are those that it has by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import (
    LanguageModel,
    Meter,
    ModelSet,
    RankConfig,
    RankedChunks,
    RankThenRead,
    Role,
    Span,
    beginning,
    current_meter,
    metered,
)
from bench.schema import Chunk, Index, JsonValue, Question
from methods.pecan.heads import ALL, HeadsOption, heads_of

HEAD = "Here are some paragraphs:"
PARAGRAPH = "\n\n[{number}] {text}"
TAIL = (
    "\n\nPlease find information that are relevant to the following query in the paragraphs above.\n\n"
    "Query: {query}"
)  # the authors' own words
NULL_QUERY = "N/A"
ATTENTION = (
    "attention_ranker ranks by attention, which no server gives. Two ways out: a model in this process, "
    "--model with a preset, hub id or folder; or another ranker, such as rerank."
)
Floats = NDArray[np.float64]


class AttentionRankerConfig(RankConfig):
    """Whose attention ranks."""

    heads: HeadsOption = Field(
        ALL,
        description="the attention heads that are averaged over: all of all layers (ICR); top_layers, those "
        "of the last third of the layers, rounded up; or a list of layer.head, both from 0, such as 3.1+4.0 "
        "(QRHead)",
    )


class AttentionRanker(RankThenRead[AttentionRankerConfig]):
    """Rank chunks by the question's attention to them."""

    name = "attention_ranker"
    version = "2"
    summary = "rank chunks by the attention that the question pays to them, read the best k"
    paper = "Chen et al. 2024 (ICR, arXiv 2410.02642); heads: Zhang et al. 2025 (QRHead, arXiv 2506.09944)"
    Config = AttentionRankerConfig

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, whose attention ranks."""
        return {"reader": Role().needing("attention", ATTENTION)}

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and whose attention to it was recorded."""
        return {**super().index_options(), "heads": self.config.heads}

    def choices(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and whose attention ranks."""
        return {**super().choices(), "heads": self.config.heads}

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """How many chunks are in each window, and the null query's attention to each of their tokens."""
        lm, texts = models.lm(), [chunk.text for chunk in chunks]
        windows = list(windows_of(texts, lm))
        null = [await self.attention(window, NULL_QUERY, lm, current_meter()) for window in windows]
        attention = np.concatenate([np.zeros(0), *itertools.chain.from_iterable(null)])
        return {"windows": [len(window) for window in windows]}, {"null": attention}

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """The chunks from best to worst, flagged where they were not all scored at once."""
        ranked = await super().rank(index, question, models)
        flags = ("scored_in_windows",) if len(index.data["windows"]) > 1 else ()
        return replace(ranked, flags=flags)

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> Floats:
        """Calibrated attention of the question to every chunk, in -1..1, shape (chunks,)."""
        lm, scores, first, at = models.lm(), list[float](), 0, 0
        for count in index.data["windows"]:
            texts, cached = [chunk.text for chunk in chunks[first : first + count]], Meter()
            attended = await self.attention(texts, question.query, lm, cached)
            # What is not among the credited tokens cannot be among the reused ones.
            current_meter().reused_tokens += cached.reused_tokens - cached.new_tokens
            for part in attended:
                null = index.arrays["null"][at : at + len(part)].astype(np.float64)
                scores.append(without_outliers(part - null))
                at += len(part)
            first += count
        return np.array(scores)

    async def attention(
        self, texts: Sequence[str], query: str, lm: LanguageModel, reading: Meter
    ) -> list[Floats]:
        """What the query's tokens pay to each token of each text: the mean over heads and over them.

        All texts are read at once; an array (tokens,) for each, in 0..1. query: as much of it counts as a
        chunk has, since windows leave that room. reading: is credited with the texts, the current meter with
        the query over them.
        """
        heads, asked_for = heads_of(self.config.heads, lm), beginning(lm, query, lm.geometry.chunk_tokens)
        if len(asked_for) < len(query.rstrip()):
            current_meter().events.add("question_cut")
        tail = TAIL.format(query=asked_for)
        room = lm.chat_overhead + sum(map(lm.count_tokens, [HEAD, *_paragraphs(texts), tail])) + 1
        async with await lm.open(room) as context:
            await context.extend(HEAD)
            spans = [await context.extend(one, focus=(2, len(one))) for one in _paragraphs(texts)]
            with metered(reading):
                await context.settle()
            for span in spans:
                for token in range(span.start, span.end):
                    context.watch(Span(token, token + 1), heads)
            asked = await context.extend(tail, focus=(2, len(tail)))
            await context.generate(1)  # forwards the end of the turn as well, and not what it generates
            paid = context.recorded(Span(asked.start, context.length)).mean(axis=0, dtype=np.float64)
        return np.split(paid, np.cumsum([len(span) for span in spans])[:-1])


def windows_of(texts: Sequence[str], lm: LanguageModel) -> Iterator[list[str]]:
    """The texts in runs that fit the model's window, with room for a question as long as a chunk.

    A text that does not fit is a run by itself.
    """
    room = lm.geometry.window - lm.chat_overhead - lm.count_tokens(HEAD + TAIL) - lm.geometry.chunk_tokens
    run, used = list[str](), 0
    for text in texts:
        tokens = lm.count_tokens(PARAGRAPH.format(number=len(run) + 1, text=text))
        if run and used + tokens > room:
            yield run
            run, used = [], 0
            tokens = lm.count_tokens(PARAGRAPH.format(number=1, text=text))
        run.append(text)
        used += tokens
    if run:
        yield run


def without_outliers(attention: Floats) -> float:
    """The sum over a chunk's tokens, those more than two standard deviations below their mean left out.

    attention: calibrated, shape (tokens,). ICR; the deviation is the sample's, as in QRHead's code.
    """
    deviation = attention.std(ddof=1) if len(attention) > 1 else 0.0
    return float(attention[attention >= attention.mean() - 2 * deviation].sum())


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [PARAGRAPH.format(number=number, text=text) for number, text in enumerate(texts, start=1)]
