from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from bench.schema import Chunk, Document, DocumentSet
from methods.raptor.leaves import split_into_leaves
from tests.bench.models.builders import byte_fallback_tokenizer, text_tokenizer
from tests.methods.writers import Writer

WORDS = Writer(lambda prompt: "").tokenize  # words and marks are one token each


def _split(text: str, leaf_tokens: int, title: str = "") -> list[str]:
    return [leaf.text for leaf in split_into_leaves(_documents((title, text)), WORDS, leaf_tokens)]


def _documents(*texts: tuple[str, str]) -> DocumentSet:
    return DocumentSet(tuple(Document(title, text) for title, text in texts))


def test_whole_sentences_are_gathered_while_they_fit() -> None:
    text = "One two. Three four! Five six? Seven."
    assert _split(text, 3) == ["One two.", "Three four!", "Five six?", "Seven."]
    assert _split(text, 5) == ["One two.", "Three four!", "Five six? Seven."]
    assert _split(text, 6) == ["One two. Three four!", "Five six? Seven."]
    assert _split(text, 100) == [text]


def test_marks_and_newlines_stay_and_a_line_end_is_an_end() -> None:
    assert _split('He said "go!" Then\nA heading\n\nMr. X paid $3.50 (all).', 6) == [
        'He said "go!"',
        "Then\nA heading\n\nMr.",
        "X paid $3.50",  # a sentence of ten tokens is cut between words, not within the sum
        "(all).",
    ]


def test_a_long_sentence_is_cut_after_clauses_and_shares_no_leaf() -> None:
    text = "Hi. One two, three four; five six: seven eight nine ten. Bye."
    assert _split(text, 6) == ["Hi.", "One two, three four;", "five six:", "seven eight nine ten.", "Bye."]


def test_the_longest_word_is_cut_between_tokens() -> None:
    tokenize = text_tokenizer().encode
    word = "Pneumonoultramicroscopic" * 3
    leaves = split_into_leaves(_documents(("", f"A {word} b.")), tokenize, 4)
    assert all(leaf.tokens <= 4 for leaf in leaves)
    assert "".join(leaf.text for leaf in leaves).replace(" ", "") == f"A{word}b."


_TEXT = st.text(st.sampled_from("ab é🎉。.,!?;\n \t\"'）日\u0301\ud83d"), max_size=80)


@pytest.mark.parametrize("tokenize", [text_tokenizer().encode, byte_fallback_tokenizer().encode, WORDS])
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(_TEXT, max_size=3), title=_TEXT, leaf_tokens=st.integers(1, 9))
def test_leaves_are_exact_spans_that_leave_out_nothing_but_white_space(
    tokenize: object, texts: list[str], title: str, leaf_tokens: int
) -> None:
    documents = _documents(*((title if i == 0 else "", text) for i, text in enumerate(texts)))
    leaves = split_into_leaves(documents, tokenize, leaf_tokens)  # type: ignore[arg-type]
    assert [leaf.index for leaf in leaves] == list(range(len(leaves)))
    for position, document in enumerate(documents.documents):
        own = [leaf for leaf in leaves if leaf.document == position]
        _check(own, document.full_text)


def _check(leaves: list[Chunk], text: str) -> None:
    assert all(leaf.text == text[leaf.start : leaf.end] == leaf.text.strip() != "" for leaf in leaves)
    assert all(a.end <= b.start for a, b in zip(leaves, leaves[1:], strict=False))
    between = [0, *(edge for leaf in leaves for edge in (leaf.start, leaf.end)), len(text)]
    for start, end in zip(between[::2], between[1::2], strict=True):
        assert not text[start:end].strip()


@settings(max_examples=150, deadline=None)
@given(text=_TEXT.filter(lambda t: "\ud83d" not in t), leaf_tokens=st.integers(1, 9))
def test_a_leaf_is_longer_than_allowed_only_where_one_character_is(text: str, leaf_tokens: int) -> None:
    for leaf in split_into_leaves(_documents(("", text)), byte_fallback_tokenizer().encode, leaf_tokens):
        assert leaf.tokens <= leaf_tokens or len(leaf.text) == 1
