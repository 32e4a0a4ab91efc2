"""Full context with a prefix cache: the document is prefilled once, its keys and values serve every question.

What serving engines do today (vLLM, SGLang: automatic prefix caching), and APIs bill apart. The reader gets
the same prompt as in :mod:`methods.full_context`, so the answers are those. Only the accounting differs: the
document's p tokens are the index, a question costs its own n - p tokens on p cached ones. Both are closed
forms of these counts; what an engine really kept of the document is in the records as ``tokens.computed``.

Of a text that fits, index and question add up to full context's parameter term 2*N*n. Their attention is
lower by p*(n - p) pairs, since the convention counts the full rectangle of every forward
(:mod:`bench.flops.formulas`).

A prefix is cached up to the first token that differs. So of a text over the limit, whose middle is cut to
make room for the question, only the beginning counts as cached. The index knows no question: it is
credited with up to half a question and its answer more than is reused, and of a text that fits only without
them with all of it. The lines that LongBench's templates put before the context count as the question's.

``ratio`` drops that share of the document's keys and values before any question is known, by the rule
``evict`` (:mod:`bench.engine.eviction`): KVzip has the model repeat the document, which the index pays for;
Expected Attention reads it once. A question then attends to the keys that are left, a choice for each layer
and head, and to its own tokens, and pays for these. What it saves is attention alone, next to nothing for a
document that is short beside the model's width; and since keys are masked here, no memory is saved. The
answers of ``ratio=0`` are full context's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bench.method import (
    DEFAULT_PROMPT,
    PROMPT_CHOICES,
    Eviction,
    Generation,
    Geometry,
    LanguageModel,
    Meter,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    Role,
    Usage,
    current_meter,
    join_passages,
    kept_keys,
    metered,
    reader_prompt,
)
from bench.method.prompts import question_prompt
from bench.schema import DocumentSet, Index, JsonValue, Prediction, Question
from methods.full_context import FullContext, FullContextConfig


class CachedContextConfig(MethodConfig):
    """Those of full_context that keep the beginning of the document."""

    max_tokens: Annotated[int, Field(ge=64)] | Literal["window"] | None = Field(
        None, description="most tokens of template, prompt and answer, as max_tokens of full_context"
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)
    ratio: float = Field(
        0,
        ge=0,
        lt=1,
        exclude_if=lambda chosen: chosen == 0,
        description="share of the document's keys and values that is dropped before any question is known",
    )
    evict: Eviction = Field(
        "kvzip",
        exclude_if=lambda chosen: chosen == "kvzip",
        description="which are dropped: kvzip, those that repeating the document attends to least, over all "
        "layers and heads; expected, those of each head that later queries are expected to attend to least",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.ratio and self.prompt != DEFAULT_PROMPT:
            raise ValueError(
                f"ratio={self.ratio:g} drops keys of what every prompt begins with, and prompt={self.prompt} "
                f"has lines of its own before the document; set prompt={DEFAULT_PROMPT}, or ratio=0"
            )
        if self.evict != "kvzip" and not self.ratio:
            raise ValueError(f"evict={self.evict} drops nothing at ratio=0; set ratio, such as 0.5")
        return self


class CachedContext(Method[CachedContextConfig]):
    """Read everything, and pay for the document once."""

    name = "cached_context"
    version = "1"
    summary = "full_context with the document prefilled once for all its questions"
    paper = "prefix caching as in vLLM and SGLang; the answers are full_context's"
    family = "the whole text"
    Config = CachedContextConfig

    def __init__(self, config: CachedContextConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options, and make the method that reads everything."""
        super().__init__(config, geometry, seed)
        whole = FullContextConfig(max_tokens=config.max_tokens, prompt=config.prompt)
        self.whole = FullContext(whole, geometry, seed)
        ours = config.prompt == DEFAULT_PROMPT
        self._lead = question_prompt(_MARK, "").partition(_MARK)[0] if ours else ""
        """What stands before the document in every prompt, as far as an index can know it."""

    def inner(self) -> Sequence[Method[Any]]:
        """The method that reads everything."""
        return (self.whole,)

    def roles(self) -> Mapping[str, Role]:
        """The run's reader; one whose keys are dropped runs in this process."""
        return {"reader": Role().needing("attention", EVICTION) if self.config.ratio else Role()}

    def index_options(self) -> Mapping[str, JsonValue]:
        """The lines before the document, how much of a long one stays in every prompt, whose keys go."""
        scored = {"evict": self.config.evict} if self.config.ratio else {}
        return {"prompt": self.config.prompt, "max_tokens": self.config.max_tokens, **scored}

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """How much of the text is cached, credited as one prefill; nothing is forwarded.

        With a ratio the text is forwarded, and the index has each key's score.
        """
        lm = models.lm()
        text = self._lead + join_passages([document.full_text for document in documents.documents])
        tokens = lm.tokenize(text)
        limit = self.whole.limit(lm)
        if self.config.ratio:  # then the context is opened here, with room to read on
            limit = min(limit, lm.max_positions - lm.chat_overhead - SPARE)
        kept = len(tokens.ids) if len(tokens.ids) <= limit else limit // 2  # a longer text loses its middle
        characters = tokens.offsets[kept - 1][1] if kept else 0
        async with await lm.open(lm.chat_overhead + (kept + SPARE if self.config.ratio else 0)) as context:
            opening = context.length
            data: dict[str, JsonValue] = {"opening": opening, "characters": characters}
            if self.config.ratio:
                await context.extend(text[:characters])
                await context.settle()
                return Index(data, {"scores": await context.importance(self.config.evict)})
        p = opening + kept
        lm.credit(current_meter(), "prefill", Usage(calls=1, new_tokens=p, attended=p * p))
        return Index(data)

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """Full context's answer, with the tokens that are cached taken off its cost."""
        if self.config.ratio:
            return await _WithFewerKeys(self, index).answer(Index(), question, models)
        lm, style = models.lm(), self.config.prompt
        with metered(Meter()) as meter:
            prediction = await self.whole.answer(Index(), question, models)
        whole = join_passages([document.full_text for document in question.documents.documents])
        read = "".join(whole[start:end] for start, end in self.whole.kept(whole, question, lm))
        prompt = reader_prompt(style, read, question)
        start = len(reader_prompt(style, _MARK, question).partition(_MARK)[0]) - len(self._lead)
        prefix = (self._lead + whole)[: index.data["characters"]]
        end = start + len(commonprefix([prompt[start:], prefix]))
        offsets = lm.tokenize(prompt).offsets
        cached = index.data["opening"] + sum(start <= first and last <= end for first, last in offsets)
        n = meter.usage.pop((lm.name, "prefill")).new_tokens
        new = n - cached
        usage = Usage(calls=1, new_tokens=new, attended=new * n, logit_rows=1, cached=cached)
        lm.credit(meter, "prefill", usage)
        meter.reused_tokens -= cached  # what is no longer among the credited tokens cannot be reused ones
        current_meter().add(meter)
        return replace(prediction, trace={**prediction.trace, "cached_tokens": cached})


class _WithFewerKeys(FullContext):
    """Full context after a document of which keys were dropped."""

    def __init__(self, method: CachedContext, index: Index) -> None:
        super().__init__(method.whole.config, method.geometry, method.seed)
        self._method, self._index = method, index

    def limit(self, lm: LanguageModel) -> int:
        """As for full context, with room for the spare tokens within the model's positions."""
        return min(super().limit(lm), lm.max_positions - SPARE)

    async def generate(self, prompt: str, question: Question, lm: LanguageModel) -> Generation:
        """The answer to the prompt, whose beginning, as far as the index has it, is read before keys go."""
        config, index = self._method.config, self._index
        whole = join_passages([document.full_text for document in question.documents.documents])
        same = len(commonprefix([prompt, (self._method._lead + whole)[: index.data["characters"]]]))
        tokens = lm.tokenize(prompt).offsets
        end = max((last for _, last in tokens if last <= same), default=0)
        room = lm.chat_overhead + len(tokens) + question.max_new_tokens + SPARE
        async with await lm.open(room) as context:
            await context.extend(prompt[:end])
            with metered(Meter()) as reading:
                await context.settle()
            # What is not among the credited tokens cannot be among the reused ones.
            current_meter().reused_tokens += reading.reused_tokens - context.length
            stays = kept_keys(index.arrays["scores"].astype(np.float32), config.ratio, config.evict)
            context.keep(stays[..., : context.length])
            await context.extend(prompt[end:])
            return await context.generate(question.max_new_tokens)


SPARE = 8
"""Tokens that a text may have more than it is cut into as a whole, where it is cut elsewhere."""
EVICTION = (
    "cached_context drops keys, which no server tells apart. Two ways out: a model in this process, --model "
    "with a preset, hub id or folder; or ratio=0."
)
_MARK = "\0"
"""Stands for the context, to find what is before it."""
