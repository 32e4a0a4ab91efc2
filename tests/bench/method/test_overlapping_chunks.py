from __future__ import annotations

import pytest

from bench.errors import ConfigError
from bench.method.chunking import chunk_documents
from bench.schema import Document, DocumentSet
from tests.bench.models.builders import byte_fallback_tokenizer, text_tokenizer
from tests.methods.writers import Writer


def words(n: int) -> str:
    return " ".join(f"w{i}" for i in range(n))


def cut(text: str, chunk: int, overlap: int) -> list[str]:
    writer = Writer(lambda prompt: "")
    chunks = chunk_documents(DocumentSet((Document("", text),)), writer.tokenize, chunk, overlap)
    assert all(c.text == text[c.start : c.end] for c in chunks)
    assert [c.index for c in chunks] == list(range(len(chunks)))
    return [c.text.strip() for c in chunks]


def test_each_chunk_begins_a_step_after_the_last_and_shares_the_overlap() -> None:
    assert cut(words(10), 4, 1) == ["w0 w1 w2 w3", "w3 w4 w5 w6", "w6 w7 w8 w9"]
    assert cut(words(11), 4, 1) == ["w0 w1 w2 w3", "w3 w4 w5 w6", "w6 w7 w8 w9", "w9 w10"]
    assert cut(words(8), 4, 0) == ["w0 w1 w2 w3", "w4 w5 w6 w7"]


@pytest.mark.parametrize("length", [1, 3, 4])
def test_what_fits_a_chunk_is_one(length: int) -> None:
    assert cut(words(length), 4, 1) == [words(length)]


def test_documents_share_no_chunk_and_blank_ones_have_none() -> None:
    writer = Writer(lambda prompt: "")
    documents = DocumentSet((Document("Title", words(3)), Document("", " \n "), Document("", words(5))))
    chunks = chunk_documents(documents, writer.tokenize, 4, 2)
    expected = [(0, "Title\nw0 w1 w2"), (2, "w0 w1 w2 w3"), (2, "w2 w3 w4")]
    assert [(c.document, c.text.strip()) for c in chunks] == expected
    assert chunk_documents(DocumentSet(()), writer.tokenize, 4, 2) == []


@pytest.mark.parametrize("text", ["東京の本屋。👨‍👩‍👧 naïve e\u0301 " * 9, "hi hi é hi 🧁 " * 12])
@pytest.mark.parametrize("tokenizer", [text_tokenizer(), byte_fallback_tokenizer()])
def test_every_character_is_in_a_chunk_and_every_chunk_is_the_source(text: str, tokenizer: object) -> None:
    chunks = chunk_documents(DocumentSet((Document("", text),)), tokenizer.encode, 20, 5)  # type: ignore[attr-defined]
    assert len(chunks) > 2
    assert chunks[0].start == 0 and chunks[-1].end == len(text)
    for one, other in zip(chunks, chunks[1:], strict=False):
        assert one.start < other.start <= one.end < other.end
        assert one.text == text[one.start : one.end]


@pytest.mark.parametrize("overlap", [4, 5, -1])
def test_an_overlap_that_leaves_no_step_is_refused(overlap: int) -> None:
    with pytest.raises(ConfigError, match="overlap_tokens"):
        cut(words(9), 4, overlap)
