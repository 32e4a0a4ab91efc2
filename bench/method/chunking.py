"""Documents cut into chunks of a fixed number of tokens; chunks are substrings of their source.

Cuts are made between token ids, but a chunk is the source text between the offsets, as decoding ids
need not return the same text (methods.md, Sec. 0). The chunks of a document concatenate to exactly
its text.

Several short documents may be joined before they are cut (:class:`JoinedDocuments`): PECAN's retrieval
baselines read HotpotQA's and MuSiQue's paragraphs as one text (PECAN, Table 1: five passages cost nearly
what the whole text does). Spans in the joined text are mapped back to spans of the documents.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby
from typing import TypeVar

from bench.errors import ConfigError
from bench.method.prompts import PASSAGE_SEPARATOR
from bench.models.api import Tokenization
from bench.schema import Chunk, Document, DocumentSet, JsonValue

Tokenize = Callable[[str], Tokenization]
T = TypeVar("T")


def chunk_documents(
    documents: DocumentSet,
    tokenize: Tokenize,
    chunk_tokens: int,
    overlap_tokens: int = 0,
    *,
    join: bool = False,
) -> list[Chunk]:
    """Chunks of at most ``chunk_tokens`` tokens, document by document, in order.

    A cut never falls inside a character: tokens that share one (byte fallback) stay together, so a
    chunk is longer than ``chunk_tokens`` only where a single character is. No chunk crosses from one
    document into the next, unless ``join`` has them cut as one text; a document shorter than a chunk is one
    chunk; a document without text, or with nothing but white space, has none. Characters that no token covers
    (a tokenizer that drops them) belong to the chunk before. Offsets refer to ``Document.full_text``. Linear
    in the tokens.

    overlap_tokens: tokens that a chunk shares with the one before: the text is cut every ``chunk_tokens -
    overlap_tokens`` tokens, and every piece is prolonged by ``overlap_tokens``; a piece that the prolonged
    one before it holds already is dropped, and so is one of nothing but white space.

    Raises ConfigError for ``chunk_tokens`` below 1, or an overlap that leaves no step.
    """
    if chunk_tokens < 1:
        raise ConfigError(f"chunk_tokens must be 1 or more, got {chunk_tokens}.")
    if not 0 <= overlap_tokens < chunk_tokens:
        raise ConfigError(
            f"overlap_tokens={overlap_tokens} with chunk_tokens={chunk_tokens}: expected 0 or more, and less "
            "than a chunk."
        )
    if join:
        joined = JoinedDocuments(documents)
        return joined.chunks(chunk_documents(joined.as_one, tokenize, chunk_tokens, overlap_tokens))
    chunks: list[Chunk] = []
    for position, document in enumerate(documents.documents):
        text = document.full_text
        if not text.strip():
            continue
        for start, end, tokens in _cuts(tokenize(text), len(text), chunk_tokens - overlap_tokens):
            chunks.append(Chunk(position, len(chunks), start, end, text[start:end], tokens))
    return _prolonged(chunks, documents, tokenize, overlap_tokens) if overlap_tokens else chunks


class JoinedDocuments:
    """The documents that hold any text as one, with an empty line between two, and the way back."""

    def __init__(self, documents: DocumentSet) -> None:
        self.documents = documents

    @cached_property
    def as_one(self) -> DocumentSet:
        """One document without a title."""
        return DocumentSet((Document("", PASSAGE_SEPARATOR.join(text for _, text in self._texts)),))

    @property
    def _texts(self) -> list[tuple[int, str]]:
        texts = [document.full_text for document in self.documents.documents]
        return [(position, text) for position, text in enumerate(texts) if text.strip()]

    @cached_property
    def _begins(self) -> list[tuple[int, int, int]]:
        """(position of the document, its first character and the one after its last in the joined text)."""
        places, at = [], 0
        for position, text in self._texts:
            places.append((position, at, at + len(text)))
            at += len(text) + len(PASSAGE_SEPARATOR)
        return places

    def chunks(self, cut: Iterable[Chunk]) -> list[Chunk]:
        """Chunks of the joined text as chunks of the documents; one that held nothing of them is dropped.

        Of the lines between two documents a chunk keeps what stands within it, and not what it begins or
        ends with; its number of tokens stays.
        """
        chunks: list[Chunk] = []
        for chunk in cut:
            start = bisect_right(self._begins, chunk.start, key=lambda place: place[2])
            end = bisect_left(self._begins, chunk.end, key=lambda place: place[1])
            spans = [
                (position, max(chunk.start, first) - first, min(chunk.end, last) - first)
                for position, first, last in self._begins[start:end]
            ]
            if spans:
                chunks.append(_of_spans(self.documents, len(chunks), spans, chunk.tokens))
        return chunks


def stored(chunk: Chunk) -> JsonValue:
    """A chunk as an index keeps it, without its text: :func:`restored` is the way back."""
    return [*chunk.spans[0], chunk.tokens, *map(list, chunk.continued)]


def restored(chunks: Sequence[JsonValue], documents: DocumentSet) -> list[Chunk]:
    """The chunks of an index, their text cut from the documents again."""
    return [
        _of_spans(documents, index, [(document, start, end), *map(tuple, continued)], tokens)
        for index, (document, start, end, tokens, *continued) in enumerate(chunks)
    ]


def filled_in_order(items: Iterable[T], sizes: Iterable[int], most: int) -> list[tuple[T, ...]]:
    """Groups of consecutive items, each as large as ``most`` allows; an item that is larger is alone."""
    groups: list[list[T]] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        total += size
        if not groups or total > most:
            groups.append([])
            total = size
        groups[-1].append(item)
    return [tuple(group) for group in groups]


def _of_spans(
    documents: DocumentSet, index: int, spans: Sequence[tuple[int, int, int]], tokens: int
) -> Chunk:
    texts = [documents.documents[position].full_text[start:end] for position, start, end in spans]
    document, start, end = spans[0]
    return Chunk(document, index, start, end, PASSAGE_SEPARATOR.join(texts), tokens, tuple(spans[1:]))


def _cuts(tokens: Tokenization, length: int, chunk_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Character range and token count of each chunk of a text of ``length`` characters."""
    first, start = 0, 0  # token and character at which the open chunk begins
    fitting: tuple[int, int] | None = None  # the last place where it may end
    for place in chain(_places(tokens), [(len(tokens.ids), length)]):
        if place[0] - first > chunk_tokens and fitting is not None:
            yield start, fitting[1], fitting[0] - first
            first, start = fitting
        fitting = place
    yield start, length, len(tokens.ids) - first


def _places(tokens: Tokenization) -> Iterator[tuple[int, int]]:
    """Token and character positions between two tokens that share no character, from left to right."""
    covered = last = 0
    for token, (begin, end) in enumerate(tokens.offsets):
        if token > 0 and begin >= covered and begin > last:
            last = begin
            yield token, begin
        covered = max(covered, end)


def _prolonged(
    pieces: Sequence[Chunk], documents: DocumentSet, tokenize: Tokenize, overlap_tokens: int
) -> list[Chunk]:
    """Each piece with ``overlap_tokens`` of what follows it in its document."""
    chunks: list[Chunk] = []
    for position, of_document in groupby(pieces, key=lambda piece: piece.document):
        text = documents.documents[position].full_text
        offsets = tokenize(text).offsets
        for piece in of_document:
            first, after = (bisect_left(offsets, (at, -1)) for at in (piece.start, piece.end))
            last = min(after + overlap_tokens, len(offsets))
            end = piece.end
            if last > after:
                end = len(text) if last == len(offsets) else offsets[last - 1][1]
            held = text[piece.start : end]
            if held.strip():
                chunks.append(replace(piece, index=len(chunks), end=end, text=held, tokens=last - first))
            if end == len(text):
                break
    return chunks
