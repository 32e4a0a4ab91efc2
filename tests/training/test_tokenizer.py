import io

import pytest
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer

from bench.files.paths import ASSETS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
PIECES = st.text(st.sampled_from(" \n\tab,.é😀\u0301\r1\u00a0"), max_size=30)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    loaded = Tokenizer.from_file(str(ASSETS / "tiny" / "tokenizer.json"))
    loaded.encode_special_tokens = True
    return loaded


@given(text=TEXT | PIECES)
@example(" leading").via("spaces and newlines are where the normaliser works")
@example("\n\n x\n  y \n")
@example("<|eot_id|> is text here")
@example("e\u0301 and \u1e9b\u0323 stay as they are written")
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@given(text=TEXT | PIECES)
def test_pieces_that_end_in_a_newline_can_be_encoded_one_by_one(tokenizer: Tokenizer, text: str) -> None:
    pieces = io.StringIO(text, newline="\n").readlines()
    assert [i for piece in pieces for i in tokenizer.encode(piece).ids] == tokenizer.encode(text).ids


@given(text=TEXT | PIECES)
def test_offsets_are_ordered_characters_of_the_source(tokenizer: Tokenizer, text: str) -> None:
    offsets = tokenizer.encode(text).offsets
    assert all(0 <= a < b <= len(text) for a, b in offsets)
    assert [b for _, b in offsets] == sorted(b for _, b in offsets)
    covered = {i for a, b in offsets for i in range(a, b)}
    assert covered == set(range(len(text)))
