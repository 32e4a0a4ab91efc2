"""A model whose replies are a function of the prompt, and an encoder of words."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.engine.sampling import Sampling
from bench.flops.meter import Usage, current_meter
from bench.models.api import Generation, Geometry
from tests.stand_ins import WordModel

GEOMETRY = Geometry(chunk_tokens=30, window=1024, input_limit=2048, summary_tokens=200)
needs_gensim = pytest.mark.skipif(find_spec("gensim") is None, reason="gensim has no wheel for Python 3.14")


class Writer(WordModel):
    """Tokens are words and marks; ``reply`` is asked for every prompt, and every prompt is kept."""

    name = "writer"
    chat_overhead = 3
    token = r"\w+|[^\w\s]"

    def __init__(self, reply: Callable[[str], str], geometry: Geometry = GEOMETRY) -> None:
        self.reply, self.geometry = reply, geometry
        self.prompts: list[str] = []
        self.limits: list[int] = []
        self.samplings: list[Sampling | None] = []
        self.waiting = self.most_waiting = 0

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Generation:
        self.samplings.append(sampling)
        self.prompts.append(prompt)
        self.limits.append(max_new_tokens)
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        n = self.count_tokens(prompt) + self.chat_overhead
        whole = self.reply(prompt).strip()
        tokens = self.tokenize(whole)
        text = whole[: tokens.offsets[max_new_tokens - 1][1]] if len(tokens.ids) > max_new_tokens else whole
        finish: Literal["stop", "length"] = "stop" if text == whole else "length"
        ids, out = self.tokenize(text).ids, len(self.tokenize(text).ids)
        current_meter().credit(self.name, "prefill", Usage(1, n, n * n, 1, n))
        current_meter().credit(self.name, "decode", Usage(out, out, n * out, out, out))
        return Generation(text, ids, finish, n)


class WordEncoder:
    """A text is the sum of the fixed random vectors of its words."""

    name, max_tokens, dim = "word-encoder", 64, 16

    def truncated(self, texts: Sequence[str]) -> int:
        return sum(len(text.split()) > self.max_tokens for text in texts)

    async def embed(self, texts: Sequence[str], *, exact: bool = False) -> NDArray[np.float32]:
        current_meter().credit(self.name, "embed", Usage(1, len(texts), len(texts), 0, len(texts)))
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row += np.random.default_rng(zlib.crc32(word.encode())).normal(size=self.dim)
        return out


class Models:
    """A writer and an encoder."""

    def __init__(self, reply: Callable[[str], str], geometry: Geometry = GEOMETRY) -> None:
        self.writer, self.encoder = Writer(reply, geometry), WordEncoder()

    def lm(self, role: str = "reader") -> Writer:
        return self.writer

    def embedder(self, role: str = "embedder", *, pooling: Any = None) -> WordEncoder:
        return self.encoder
