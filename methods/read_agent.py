"""ReadAgent: remember a gist of every page, look up the pages that the question needs, answer from both.

Lee et al. 2024 (arXiv 2402.09727). Once per document: the model chooses where to pause reading, which makes
the pages (episode pagination), and shortens each page (memory gisting). Once per question: it sees all gists
and names the pages to read again (parallel look-up, ReadAgent-P); the answer is read from the gists with
those pages in full, in the order of the text. Gists are for all questions, so their cost is the index's.

The authors' code (read-agent.github.io): a page has 280 to 600 words, the rest of a text below 350 is one
page; a reply that names no possible pause ends the page at its limit; pages are looked up as they are named
in brackets. Pauses are offered between pieces of whole sentences, not paragraphs, which many texts do not
have, and lengths are in tokens, 1.3 for a word; prompts are in our words  # our choices.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

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
    join_passages,
    passages,
    read,
    restored,
    stored,
    summarize,
)
from bench.schema import Chunk, ContextItem, DocumentSet, Index, JsonValue, Prediction, Question
from methods.raptor.leaves import split_into_leaves

PAGE_CHUNKS = 2.6
"""Chunks of a page at most: 600 words of 1.3 tokens in chunks of 300."""
FROM, REST = 280 / 600, 350 / 600
"""Shares of a page: from where it may end, and below which the rest of a text is one page."""
PIECES = 8
"""Pieces of a page at most, between which it may end.  # our choice"""
PAUSE = (
    "{before}{text}{after}\n\nThe text above has numbers in angle brackets. At which of them is it most "
    "natural to pause reading, such as after a scene or an argument? Write only that number, such as "
    "<{example}>."
)
GIST = "Text:\n{text}\n\nWrite a shortened version of the text, and nothing else."
LOOK_UP = (
    "What is remembered of each page of a text:\n{gists}\n\nQuestion:\n{question}\n\nWhich pages have to be "
    "read again to answer the question? Name at most {most}, and no more than needed, such as [1] or [2, 5]. "
    "Do not answer the question."
)
PAUSE_TOKENS, REPLY_TOKENS = 16, 32
"""Most tokens of the replies that name a pause, and pages.  # our choice"""


class ReadAgentConfig(MethodConfig):
    """How long pages are, who ends them, and how many are read again."""

    pages: Literal["chosen", "fixed"] = Field(
        "chosen", description="where pages end: where the model pauses (the paper), or at their limit"
    )
    page_tokens: int | None = Field(
        None,
        ge=16,
        description="most tokens of a page; default: 2.6 chunks of the geometry (the authors' code: "
        "600 words)",
    )
    look_ups: int = Field(
        2,
        ge=0,
        description="most pages that are read again; 0: the gists alone (the authors: 2 on NarrativeQA and "
        "QMSum, 5 on QuALITY)",
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


class ReadAgent(Method[ReadAgentConfig]):
    """Gists of pages, and a look at some pages again."""

    name = "read_agent"
    version = "1"
    summary = "remember a gist of every page, read again the pages that the question needs"
    paper = "Lee et al. 2024 (ReadAgent, arXiv 2402.09727)"
    family = "the whole text"
    Config = ReadAgentConfig

    def __init__(self, config: ReadAgentConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep the options; raises ConfigError for pages of which the model cannot read two."""
        super().__init__(config, geometry, seed)
        most = (geometry.input_limit - self.gist_tokens) // 2
        if self.page_tokens > most:
            raise ConfigError(f"page_tokens={self.page_tokens}: two are read at once; give {most} or fewer.")

    @property
    def page_tokens(self) -> int:
        """Most tokens of a page."""
        return self.config.page_tokens or round(PAGE_CHUNKS * self.geometry.chunk_tokens)

    @property
    def gist_tokens(self) -> int:
        """Most tokens of a gist."""  # our choice
        return self.geometry.chunk_tokens

    def index_options(self) -> Mapping[str, JsonValue]:
        """Lengths, and who ends a page."""
        return {"pages": self.config.pages, "page_tokens": self.page_tokens, "gist_tokens": self.gist_tokens}

    def choices(self) -> Mapping[str, JsonValue]:
        """Who ends a page, and how many are read again."""
        return {"pages": self.config.pages, "look_ups": self.config.look_ups}

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The pages as spans, their gists, and how often a gist or a pause was not as asked."""
        lm, events = models.lm(), Counter[str]()
        pieces = split_into_leaves(documents, lm.tokenize, max(8, self.page_tokens // PIECES), join=True)
        pages = await self._pages(pieces, documents, lm, events)
        texts = [page.text for page in pages]
        gists = await asyncio.gather(
            *(summarize(lm, GIST.format(text=text), text, self.gist_tokens, events) for text in texts)
        )
        counted = {name: count for name, count in sorted(events.items()) if count}
        return Index({"pages": [stored(page) for page in pages], "gists": list(gists), "events": counted})

    async def _pages(
        self, pieces: Sequence[Chunk], documents: DocumentSet, lm: LanguageModel, events: Counter[str]
    ) -> list[Chunk]:
        """The pieces put together to pages, one after the other: a page begins where the last one paused."""
        pages: list[Chunk] = []
        start = 0
        while start < len(pieces):
            end, tokens = start, 0
            possible = []
            while end < len(pieces) and (end == start or tokens + pieces[end].tokens <= self.page_tokens):
                tokens += pieces[end].tokens
                end += 1
                if tokens >= FROM * self.page_tokens:
                    possible.append(end)
            rest = end == len(pieces) and tokens < REST * self.page_tokens
            if self.config.pages == "chosen" and len(possible) > 1 and not rest:
                end = await self._pause(pieces[start:end], [at - start for at in possible], pages, lm, events)
                end += start
            pages.append(_together(pieces[start:end], len(pages), documents))
            start = end
        return pages

    async def _pause(
        self,
        pieces: Sequence[Chunk],
        possible: Sequence[int],
        pages: Sequence[Chunk],
        lm: LanguageModel,
        events: Counter[str],
    ) -> int:
        """After how many of the pieces the model pauses: one of ``possible``, else all."""
        text = " ".join(
            f"{piece.text} <{at}>" if at in possible else piece.text for at, piece in enumerate(pieces, 1)
        )
        before = f"...\n{pages[-1].text}\n" if pages else ""
        prompt = PAUSE.format(before=before, text=text, after="\n...", example=possible[-1])
        named = None
        if fits(prompt, lm, PAUSE_TOKENS, lm.geometry.input_limit):
            named = re.search(r"<?(\d{1,4})>?", (await lm.generate(prompt, PAUSE_TOKENS)).text)
        if named and int(named[1]) in possible:
            return int(named[1])
        events["no_pause_named"] += 1
        return len(pieces)

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer from all gists, with the pages that were looked up in their place."""
        lm, pages = models.lm(), restored(index.data["pages"], question.documents)
        chosen, reply = await self._look_up(index.data["gists"], question, lm)
        context: list[ContextItem] = []
        gists: list[int] = []
        for at, (page, gist) in enumerate(zip(pages, index.data["gists"], strict=True)):
            if at in chosen:
                context += passages(page, question)
                continue
            gists.append(len(context))
            context.append(ContextItem(text=gist, node=f"page {at + 1}"))
        others = [at for at in range(len(context)) if at not in gists]
        flags = [f"gist_{name}" for name in index.data["events"]]
        flags += [] if pages else ["empty_document"]
        drop_order = [*reversed(gists), *reversed(others)]
        answer = await read(context, question, lm, self.config.prompt, drop_order=drop_order, flags=flags)
        return replace(answer, trace={"pages": len(pages), "looked_up": chosen, "reply": reply})

    async def _look_up(
        self, gists: Sequence[str], question: Question, lm: LanguageModel
    ) -> tuple[list[int], str]:
        """The pages to read again, from 0, in the order in which the reply names them; and the reply.

        Of more gists than fit the reader, the last ones are not shown.
        """
        shown, most = len(gists), self.config.look_ups
        while most and shown:
            listed = join_passages([f"<Page {at}>\n{gist}" for at, gist in enumerate(gists[:shown], 1)])
            prompt = LOOK_UP.format(gists=listed, question=question.text, most=most)
            if fits(prompt, lm, REPLY_TOKENS, lm.geometry.input_limit):
                reply = (await lm.generate(prompt, REPLY_TOKENS)).text
                return named_pages(reply, shown)[:most], reply
            shown -= 1
        return [], ""


def named_pages(reply: str, pages: int) -> list[int]:
    """The pages in the reply's first brackets, or in all of it where it has none; from 0, each once.

    Numbers that are no page's are passed over.
    """
    inside = re.search(r"\[([^\]]*)\]", reply)
    numbers = (int(number) - 1 for number in re.findall(r"\d{1,6}", inside[1] if inside else reply))
    return list(dict.fromkeys(number for number in numbers if 0 <= number < pages))


def _together(pieces: Sequence[Chunk], index: int, documents: DocumentSet) -> Chunk:
    """Consecutive pieces as one chunk, with what stands between them in their documents."""
    spans: dict[int, tuple[int, int]] = {}
    for piece in pieces:
        for document, start, end in piece.spans:
            spans[document] = (spans.get(document, (start, end))[0], end)
    texts = [documents.documents[document].full_text[start:end] for document, (start, end) in spans.items()]
    first, *others = [(document, start, end) for document, (start, end) in spans.items()]
    tokens = sum(piece.tokens for piece in pieces)
    return Chunk(*first[:1], index, *first[1:], join_passages(texts), tokens, tuple(others))
