"""Chunks that share some tokens with the one before: 256 tokens, 32 of them shared (Graph of Records).

Tokens are those of the model that writes the records, as all lengths here; the released code counts GPT-2's
(LangChain's TokenTextSplitter). And it cuts a document set as one text, where chunks here never leave their
document, so that a passage has a source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import groupby

from bench.chunking import chunk_documents
from bench.errors import ConfigError
from bench.models.api import Tokenization
from bench.schema import Chunk, DocumentSet


def overlapping_chunks(
    documents: DocumentSet,
    tokenize: Callable[[str], Tokenization],
    chunk_tokens: int,
    overlap_tokens: int,
) -> list[Chunk]:
    """Chunks of ``chunk_tokens`` tokens, each but a document's last one ending in the start of the next.

    The text is cut every ``chunk_tokens - overlap_tokens`` tokens as :func:`bench.chunking.chunk_documents`
    cuts it, and every piece is prolonged by ``overlap_tokens`` tokens; a piece that the prolonged one before
    it holds already is dropped. Chunks that hold only white space are left out. Offsets refer to
    ``Document.full_text``. Raises ConfigError for an overlap that leaves no step.
    """
    step = chunk_tokens - overlap_tokens
    if step < 1 or overlap_tokens < 0:
        raise ConfigError(
            f"overlap_tokens={overlap_tokens} with chunk_tokens={chunk_tokens}: expected 0 or more, and less "
            "than a chunk."
        )
    chunks: list[Chunk] = []
    pieces = chunk_documents(documents, tokenize, step)
    for position, of_document in groupby(pieces, key=lambda piece: piece.document):
        text = documents.documents[position].full_text
        offsets = tokenize(text).offsets
        for piece in of_document:
            first, after = (bisect_left(offsets, (at, -1)) for at in (piece.start, piece.end))
            last = min(after + overlap_tokens, len(offsets))
            end = piece.end
            if last > after:
                end = len(text) if last == len(offsets) else offsets[last - 1][1]
            if text[piece.start : end].strip():
                chunks.append(
                    Chunk(position, len(chunks), piece.start, end, text[piece.start : end], last - first)
                )
            if end == len(text):
                break
    return chunks
