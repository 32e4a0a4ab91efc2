"""The leaves of a tree: as many whole sentences as fit, each leaf a span of its document.

RAPTOR's code (``split_text``) assembles leaves from split sentences and loses full stops, question marks
and newlines; here the document is only cut, never rewritten.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.method import JoinedDocuments, Tokenization, chunk_documents
from bench.schema import Chunk, Document, DocumentSet

_BREAKS = (
    re.compile(r"[.!?][\"'”’)\]]*(?=\s)|(?<!\n)(?=\n)|[。！？][”’）」』]*"),
    re.compile(r"[,;:](?=\s)|[，；：、]"),
    re.compile(r"(?<!\s)(?=\s)"),
)
"""Where to cut a text, best first: after a sentence or line, after a clause, between words."""


def split_into_leaves(
    documents: DocumentSet, tokenize: Callable[[str], Tokenization], leaf_tokens: int, *, join: bool = False
) -> list[Chunk]:
    """Leaves of at most ``leaf_tokens`` tokens, document by document, in order (RAPTOR, Sec. 3).

    A leaf takes whole sentences until the next one would not fit; a sentence that is too long by itself is
    cut after a clause, else between words, else between tokens, and shares no leaf with others. Leaves
    neither start nor end with white space; together they contain everything else exactly once. A leaf is
    longer than allowed only if a single character is. No leaf crosses a document boundary, unless ``join``
    splits the documents as one text. Tokens are counted within the whole document; offsets refer to
    ``Document.full_text``.
    """
    if join:
        joined = JoinedDocuments(documents)
        return joined.chunks(split_into_leaves(joined.as_one, tokenize, leaf_tokens))
    leaves: list[Chunk] = []
    for position, document in enumerate(documents.documents):
        text = document.full_text
        if not text.strip():
            continue
        splitter = _Splitter(text, tokenize(text), leaf_tokens)
        for start, end in splitter.leaves(0, len(text), _BREAKS):
            start, end = _trimmed(text, start, end)
            if start < end:
                tokens = splitter.count(start, end)
                leaves.append(Chunk(position, len(leaves), start, end, text[start:end], tokens))
    return leaves


@dataclass(frozen=True)
class _Splitter:
    """A text with its tokens."""

    text: str
    tokens: Tokenization
    most: int

    def count(self, start: int, end: int) -> int:
        """Tokens that start within the characters ``start`` to ``end``; at least 1."""
        first, last = (bisect_left(self.tokens.offsets, (at, -1)) for at in (start, end))
        return max(1, last - first)

    def leaves(self, start: int, end: int, breaks: tuple[re.Pattern[str], ...]) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that are short enough, without gaps."""
        if not breaks:
            yield from self._between_tokens(start, end)
            return
        open_ = start
        for low, high in self._units(start, end, breaks[0]):
            if self.count(open_, high) <= self.most:
                continue
            if open_ < low:
                yield open_, low
            open_ = low
            if self.count(low, high) > self.most:
                yield from self.leaves(low, high, breaks[1:])
                open_ = high
        if open_ < end:
            yield open_, end

    def _units(self, start: int, end: int, break_: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        low = start
        for match in break_.finditer(self.text, start, end):
            if low < match.end() < end:
                yield low, match.end()
                low = match.end()
        yield low, end

    def _between_tokens(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges cut between tokens, for text without spaces."""
        first, last = (bisect_left(self.tokens.offsets, (at, -1)) for at in (start, end))
        inside = Tokenization(
            self.tokens.ids[first:last],
            tuple((low - start, high - start) for low, high in self.tokens.offsets[first:last]),
        )
        piece = DocumentSet((Document("", self.text[start:end]),))
        for chunk in chunk_documents(piece, lambda _: inside, self.most):
            yield start + chunk.start, start + chunk.end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The range without white space at its ends; empty if there is nothing else."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), max(start, start + len(piece.rstrip()))
