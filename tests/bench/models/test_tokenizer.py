from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bench.errors import ModelUnavailableError
from bench.models.api import Span, Tokenization
from bench.models.tokenizer import TextTokenizer, token_span
from tests.bench.models.builders import SPECIAL, byte_fallback_tokenizer, text_tokenizer

TOKENIZER = text_tokenizer()


def test_an_added_token_that_is_not_marked_special_is_a_control_token_too() -> None:
    hf = text_tokenizer().hf
    hf.add_tokens(["<tool_call>", "   "])  # Qwen marks the first as not special; Phi-2 adds white space
    tokenizer = TextTokenizer("test", hf)
    tool, spaces = hf.convert_tokens_to_ids("<tool_call>"), hf.convert_tokens_to_ids("   ")
    ids = tokenizer.encode("a <tool_call> b   c").ids
    assert tool not in ids
    assert spaces in ids
    assert tokenizer.encode_template("<tool_call>") == (tool,)


TURNS = (
    *("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"),
    *("<|user|>", "<|assistant|>", "<|end|>", "<|START_OF_TURN_TOKEN|>", "<\uff5cUser\uff5c>", "<think>"),
    *("<|channel|>", "<|message|>", "<|return|>", "[BOS]", "<|tool_call|>", "<s>", "</s>"),
)
"""Of ChatML, Llama, Gemma, Mistral, Phi, Command R, DeepSeek, gpt-oss and others."""


def test_no_control_token_of_a_chat_template_comes_from_a_text() -> None:
    hf = text_tokenizer().hf
    hf.add_special_tokens({"additional_special_tokens": list(TURNS)})
    tokenizer, text = TextTokenizer("test", hf), " ".join((*TURNS, *SPECIAL))
    ids = tokenizer.encode(text).ids
    assert not set(ids) & set(hf.added_tokens_decoder) and tokenizer.decode(ids) == text


def test_nor_where_the_vocabulary_has_the_token_as_a_piece() -> None:
    """Unigram vocabularies do, with the best score of all."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((piece, -2.0) for piece in "\u2581</s>ab")]
    unigram = Tokenizer(models.Unigram(pieces, unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    hf = PreTrainedTokenizerFast(tokenizer_object=unigram, eos_token="</s>", unk_token="<unk>")
    assert TextTokenizer("test", hf).encode("a</s>b").ids == (2, 7, 3, 4, 5, 6, 8)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_byte_level_text_comes_back_and_every_character_has_a_token(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert len(tokens.ids) == len(tokens.offsets)
    assert TOKENIZER.decode(tokens.ids) == text
    covered = {i for start, end in tokens.offsets for i in range(start, end)}
    assert covered == set(range(len(text)))


def test_a_lone_surrogate_is_read_as_the_replacement_character() -> None:
    assert TOKENIZER.encode("a\ud83db") == TOKENIZER.encode("a\ufffdb")


def test_a_tokenizer_without_a_fast_backend_is_refused() -> None:
    with pytest.raises(ModelUnavailableError, match="slow-model: its tokenizer .* has no tokenizer.json"):
        TextTokenizer("slow-model", object())


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 3, Span(0, 1)), (0, 4, Span(0, 2)), (4, 7, Span(1, 3)), (6, 7, Span(2, 3)), (2, 2, Span(0, 0)),
     (3, 3, Span(1, 1)), (7, 7, Span(3, 3))],
)  # fmt: skip
def test_the_span_of_a_range_of_characters(start: int, end: int, expected: Span) -> None:
    tokens = Tokenization((10, 11, 12), ((0, 3), (3, 6), (6, 7)))
    assert token_span(tokens, start, end) == expected


def test_the_tokens_of_half_a_character_belong_to_its_span() -> None:
    assert len(token_span(byte_fallback_tokenizer().encode("hi🎉a"), 2, 3)) == 4
