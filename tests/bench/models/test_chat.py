from __future__ import annotations

import datetime as dt

import pytest

from bench.errors import ConfigError
from bench.models.chat import chat_format, render, stop_tokens
from bench.models.loader import load_tokenizer
from bench.models.spec import resolve
from bench.models.tokenizer import TextTokenizer
from tests.bench.models.builders import TEMPLATE, byte_fallback_tokenizer, causal_model, text_tokenizer

# Asks for today's date by function alone, as some templates do.
DATE_BY_FUNCTION = TEMPLATE.replace(
    "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}",
    "{% set date_string = strftime_now('%d %b %Y') %}",
)
WITHOUT_BOS = TEMPLATE.replace("{{ bos_token }}", "")
WITH_TWO_BOS = "{{ bos_token }}" + TEMPLATE


def _ids(tokenizer: TextTokenizer, text: str) -> tuple[int, ...]:
    return tokenizer.encode(text).ids


@pytest.mark.parametrize("template", [TEMPLATE, WITHOUT_BOS, WITH_TWO_BOS])
def test_a_context_opens_with_exactly_one_bos(template: str) -> None:
    tokenizer = text_tokenizer(template)
    chat = chat_format(tokenizer)
    bos = tokenizer.hf.bos_token_id
    assert chat.opening[0] == bos
    everything = chat.opening + chat.closing + chat.reply_opening + chat.next_turn
    assert everything.count(bos) == 1


CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|eot_id|>system\nYou help.<|end_of_text|>\n{% endif %}"
    "{% for m in messages %}<|eot_id|>{{ m['role'] }}\n{{ m['content'] }}<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|eot_id|>assistant\n{% endif %}"
)
"""Laid out like SmolLM2's, where the token that begins each turn is also called BOS."""


def test_a_bos_that_begins_every_turn_stays_where_the_template_writes_it() -> None:
    tokenizer = text_tokenizer(CHATML)
    tokenizer.hf.bos_token = "<|eot_id|>"
    chat = chat_format(tokenizer)
    assert chat.opening.count(tokenizer.hf.bos_token_id) == 2
    whole = render(tokenizer, [{"role": "user", "content": "Who?"}])
    assert chat.opening + _ids(tokenizer, "Who?") + chat.closing == tokenizer.encode_template(whole)


def test_a_model_whose_tokenizer_and_template_write_no_bos_gets_none() -> None:
    tokenizer = byte_fallback_tokenizer()  # has a BOS token, but nothing that adds it
    tokenizer.hf.chat_template = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    assert tokenizer.hf.bos_token_id not in chat_format(tokenizer).opening


@pytest.mark.parametrize("template", [TEMPLATE, DATE_BY_FUNCTION])
def test_the_date_in_the_prompt_is_fixed(template: str) -> None:
    tokenizer = text_tokenizer(template)
    messages = [{"role": "user", "content": "x"}]
    assert "Today is 26 Jul 2024." in tokenizer.hf.decode(chat_format(tokenizer).opening)
    today = dt.datetime.now(tz=dt.UTC).strftime("%d %b %Y")
    assert today in tokenizer.hf.apply_chat_template(messages, tokenize=False)  # what would be written else
    assert "26 Jul 2024" in render(tokenizer, messages)


@pytest.mark.parametrize("model", ["", "tiny"])
def test_the_pieces_put_together_are_the_template_of_the_whole_conversation(model: str) -> None:
    tokenizer = load_tokenizer(resolve(model)) if model else text_tokenizer()
    chat = chat_format(tokenizer)
    turns = ["Can it be answered?", "Yes", "Then answer it."]
    asked, reply, then = (_ids(tokenizer, turn) for turn in turns)
    built = chat.opening + asked + chat.reply_opening + reply + chat.next_turn + then + chat.closing
    roles = ["user", "assistant", "user"]
    whole = render(tokenizer, [{"role": r, "content": c} for r, c in zip(roles, turns, strict=True)])
    assert built == tokenizer.encode_template(whole)


def test_answers_stop_at_every_eos_and_at_the_end_of_the_turn() -> None:
    tokenizer = text_tokenizer()
    chat = chat_format(tokenizer)
    config = causal_model("llama").generation_config
    config.eos_token_id = [1, 300]
    ends = tokenizer.hf.convert_tokens_to_ids(["<|end_of_text|>", "<|eot_id|>"])
    assert stop_tokens(tokenizer, chat, config) == {*ends, 1, 300}


def test_the_end_of_a_text_ends_an_answer_although_no_config_says_so() -> None:
    """A converted Qwen answered on behind it."""
    tokenizer = text_tokenizer()
    before = stop_tokens(tokenizer, chat_format(tokenizer))
    tokenizer.hf.add_special_tokens({"additional_special_tokens": ["<|endoftext|>"]})
    added = tokenizer.hf.convert_tokens_to_ids("<|endoftext|>")
    assert stop_tokens(tokenizer, chat_format(tokenizer)) == {*before, added}


def test_a_model_without_a_template_gets_the_plain_format(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = text_tokenizer(None)
    chat = chat_format(tokenizer)
    assert chat.opening == (tokenizer.hf.bos_token_id,)
    assert chat.closing == _ids(tokenizer, "\n\nAnswer:")
    assert chat.answer_prefix == " " and chat == chat_format(tokenizer, "answer")
    assert stop_tokens(tokenizer, chat) == {tokenizer.hf.eos_token_id}
    (record,) = caplog.records
    assert "has no chat template: it gets the plain prompt followed by 'Answer:'" in record.getMessage()


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    rewriting = TEMPLATE.replace("Today is", "{{ messages | length }} messages. Today is")
    with pytest.raises(ConfigError, match="rewrites earlier turns when later ones follow"):
        chat_format(text_tokenizer(rewriting))


def test_a_chat_template_reaches_nothing() -> None:
    reaching = TEMPLATE + "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ConfigError, match=r"its chat template fails: .*unsafe"):
        chat_format(text_tokenizer(reaching))
