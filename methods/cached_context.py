"""Full context with a prefix cache: the document is prefilled once, its keys and values serve every question.

What serving engines do today (vLLM, SGLang: automatic prefix caching), and APIs bill apart. The reader gets
the same prompt as in :mod:`methods.full_context`, so the answers are those. Only the accounting differs: the
document's p tokens are the index, a question costs its own n - p tokens on p cached ones. Both are closed
forms of these counts; what an engine really kept of the document is in the records as ``tokens.computed``.

Index and question add up to full context's parameter term 2*N*n. Their attention is lower by p*(n - p)
pairs, since the convention counts the full rectangle of every forward (:mod:`bench.flops.formulas`).

A prefix is cached up to the first token that differs. So of a text over the limit, whose middle is cut to
make room for the question, only the beginning counts as cached; and the lines that LongBench's templates
put before the context count as the question's, since an index knows only the documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import Annotated, Any, Literal

from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    PROMPT_CHOICES,
    Geometry,
    Meter,
    Method,
    MethodConfig,
    ModelSet,
    PromptStyle,
    Usage,
    current_meter,
    join_passages,
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

    def index_options(self) -> Mapping[str, JsonValue]:
        """The lines before the document, and how much of a long one stays in every prompt."""
        return {"prompt": self.config.prompt, "max_tokens": self.config.max_tokens}

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """How much of the text is cached, credited as one prefill; nothing is forwarded."""
        lm = models.lm()
        text = self._lead + join_passages([document.full_text for document in documents.documents])
        tokens = lm.tokenize(text)
        limit = self.whole.limit(lm)
        kept = len(tokens.ids) if len(tokens.ids) <= limit else limit // 2  # a longer text loses its middle
        async with await lm.open(lm.chat_overhead) as empty:
            opening = empty.length
        p = opening + kept
        lm.credit(current_meter(), "prefill", Usage(calls=1, new_tokens=p, attended=p * p))
        return Index({"opening": opening, "characters": tokens.offsets[kept - 1][1] if kept else 0})

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """Full context's answer, with the tokens that are cached taken off its cost."""
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
        lm.credit(meter, "prefill", Usage(calls=1, new_tokens=new, attended=new * n, logit_rows=1))
        meter.reused_tokens -= cached  # what is no longer among the credited tokens cannot be reused ones
        current_meter().add(meter)
        return replace(prediction, trace={**prediction.trace, "cached_tokens": cached})


_MARK = "\0"
"""Stands for the context, to find what is before it."""
