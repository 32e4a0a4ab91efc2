from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bench.errors import ConfigError
from bench.method.chunking import chunk_documents, restored, stored
from bench.models.api import Tokenization
from bench.schema import Document, DocumentSet
from tests.bench.models.builders import byte_fallback_tokenizer, text_tokenizer

BYTE_LEVEL = text_tokenizer()
BYTE_FALLBACK = byte_fallback_tokenizer()


def _words(text: str) -> Tokenization:
    """Words without the white space between them, as BERT's tokenizer leaves it out."""
    ids, offsets, at = [], [], 0
    for word in text.split():
        at = text.index(word, at)
        ids.append(len(ids))
        offsets.append((at, at + len(word)))
        at += len(word)
    return Tokenization(tuple(ids), tuple(offsets))


def _one(text: str) -> DocumentSet:
    return DocumentSet((Document("", text),))


_TEXT = st.text(
    st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.sampled_from("\n\t 日本é🎉👨‍👩‍👧\u0301\u200b\x00\ufeff"),
        st.characters(),
    ),
    max_size=120,
)


@pytest.mark.parametrize("tokenize", [BYTE_LEVEL.encode, BYTE_FALLBACK.encode, _words])
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(_TEXT, min_size=1, max_size=3), title=_TEXT, chunk_tokens=st.integers(1, 9))
def test_the_chunks_are_the_text(tokenize: object, texts: list[str], title: str, chunk_tokens: int) -> None:
    documents = DocumentSet(tuple(Document(title if i == 0 else "", text) for i, text in enumerate(texts)))
    chunks = chunk_documents(documents, tokenize, chunk_tokens)  # type: ignore[arg-type]
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for position, document in enumerate(documents.documents):
        own = [chunk for chunk in chunks if chunk.document == position]
        whole = document.full_text
        assert "".join(chunk.text for chunk in own) == (whole if whole.strip() else "")
        tokens = tokenize(whole)  # type: ignore[operator]
        assert sum(chunk.tokens for chunk in own) == (len(tokens.ids) if own else 0)
        for chunk in own:
            assert chunk.text == whole[chunk.start : chunk.end] != ""
        if tokenize == _words:
            assert all(chunk.tokens == chunk_tokens for chunk in own[:-1])
    positions = [chunk.document for chunk in chunks]
    assert positions == sorted(positions)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK])
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60), chunk_tokens=st.integers(1, 5))
def test_a_chunk_is_too_long_only_where_nothing_cuts_it(tokenizer: Any, text: str, chunk_tokens: int) -> None:
    tokens = tokenizer.encode(text)
    at = 0
    for chunk in chunk_documents(_one(text), tokenizer.encode, chunk_tokens):
        offsets = tokens.offsets[at : at + chunk.tokens]
        assert all(chunk.start <= begin and end <= chunk.end for begin, end in offsets)
        at += chunk.tokens
        if chunk.tokens > chunk_tokens:
            for i, (begin, _) in enumerate(offsets):
                assert not i or begin <= chunk.start or begin < max(end for _, end in offsets[:i])


def test_ids_are_cut_at_the_given_number_of_tokens() -> None:
    text = "Mara Feld hid the red kite in the old mill. " * 20
    tokens = BYTE_LEVEL.encode(text)
    chunks = chunk_documents(_one(text), BYTE_LEVEL.encode, 24)
    full, rest = divmod(len(tokens.ids), 24)
    assert [chunk.tokens for chunk in chunks] == [24] * full + [rest] * (rest > 0)
    assert [chunk.start for chunk in chunks] == [tokens.offsets[i][0] for i in range(0, len(tokens.ids), 24)]


def test_tokens_that_share_a_character_stay_together() -> None:
    text = "ab🎉hi"  # the emoji is four byte tokens
    for tokenizer in (BYTE_LEVEL, BYTE_FALLBACK):
        chunks = chunk_documents(_one(text), tokenizer.encode, 2)
        assert "🎉" in [chunk.text for chunk in chunks]
        (party,) = [chunk for chunk in chunks if chunk.text == "🎉"]
        assert party.tokens == 4


def test_a_lone_surrogate_keeps_its_place() -> None:
    text = "kite \ud83d mill"
    chunks = chunk_documents(_one(text), BYTE_LEVEL.encode, 3)
    assert "".join(chunk.text for chunk in chunks) == text


@pytest.mark.parametrize(
    ("lengths", "message"),
    [((0,), "chunk_tokens must"), ((-5,), "chunk_tokens must be 1 or more")]
    + [((4, overlap), "overlap_tokens") for overlap in (4, 5, -1)],
)
def test_lengths_that_leave_no_step_are_refused(lengths: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chunk_documents(_one("a b c d e f"), _words, *lengths)


@pytest.mark.parametrize(
    ("words", "overlap", "chunks"),
    [
        (10, 1, ["0 1 2 3", "3 4 5 6", "6 7 8 9"]),
        (11, 1, ["0 1 2 3", "3 4 5 6", "6 7 8 9", "9 10"]),
        (8, 0, ["0 1 2 3", "4 5 6 7"]),
        *((length, 1, ["0 1 2 3"[: 2 * length - 1]]) for length in (1, 3, 4)),  # what fits a chunk is one
    ],
)
def test_each_chunk_begins_a_step_after_the_last(words: int, overlap: int, chunks: list[str]) -> None:
    text = " ".join(map(str, range(words)))
    cut = chunk_documents(_one(text), _words, 4, overlap)
    assert [chunk.text.strip() for chunk in cut] == chunks
    assert [chunk.index for chunk in cut] == list(range(len(cut)))


def test_documents_share_no_overlapping_chunk_and_blank_ones_have_none() -> None:
    documents = DocumentSet((Document("Title", "a b c"), Document("", " \n "), Document("", "a b c d e")))
    chunks = chunk_documents(documents, _words, 4, 2)
    expected = [(0, "Title\na b c"), (2, "a b c d"), (2, "c d e")]
    assert [(chunk.document, chunk.text.strip()) for chunk in chunks] == expected
    assert chunk_documents(DocumentSet(()), _words, 4, 2) == []


@pytest.mark.parametrize("text", ["東京の本屋。👨‍👩‍👧 naïve e\u0301 " * 9, "hi hi é hi 🧁 " * 12])
@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK])
def test_every_character_is_in_an_overlapping_chunk_of_the_source(text: str, tokenizer: Any) -> None:
    chunks = chunk_documents(_one(text), tokenizer.encode, 20, 5)
    assert len(chunks) > 2 and chunks[0].start == 0 and chunks[-1].end == len(text)
    for one, other in zip(chunks, chunks[1:], strict=False):
        assert one.start < other.start <= one.end < other.end
        assert one.text == text[one.start : one.end]


PARAGRAPHS = DocumentSet(
    (Document("One", "a b c d"), Document("", " \n"), Document("Two", "e f"), Document("Three", "g h i j k"))
)


def test_joined_paragraphs_are_cut_as_one_text() -> None:
    # PECAN, Table 1: Top-5 of 300 tokens costs 22.9 TFLOPs on HotpotQA, all ten paragraphs 23.7.
    chunks = chunk_documents(PARAGRAPHS, _words, 4, join=True)
    assert [chunk.text for chunk in chunks] == ["One\na b c ", "d\n\nTwo\ne f", "Three\ng h i ", "j k"]
    assert [chunk.tokens for chunk in chunks] == [4, 4, 4, 2]
    spans = [((0, 0, 10),), ((0, 10, 11), (2, 0, 7)), ((3, 0, 12),), ((3, 12, 15),)]
    assert [chunk.spans for chunk in chunks] == spans
    assert len(chunk_documents(PARAGRAPHS, _words, 4)) == 5, "apart, no chunk crosses"


def test_a_joined_chunk_survives_its_way_through_an_index() -> None:
    chunks = chunk_documents(PARAGRAPHS, _words, 5, 2, join=True)
    assert any(chunk.continued for chunk in chunks)
    assert restored(json.loads(json.dumps([stored(chunk) for chunk in chunks])), PARAGRAPHS) == chunks


@given(st.lists(st.text("ab .\n", max_size=30), max_size=4), st.integers(1, 6))
def test_joined_chunks_hold_every_character_of_the_documents_once(texts: list[str], tokens: int) -> None:
    documents = DocumentSet(tuple(Document("", text) for text in texts))
    held = ["" for _ in texts]
    for chunk in chunk_documents(documents, BYTE_LEVEL.encode, tokens, join=True):
        for document, start, end in chunk.spans:
            assert len(held[document]) == start < end
            held[document] += texts[document][start:end]
    assert held == [text if text.strip() else "" for text in texts]
