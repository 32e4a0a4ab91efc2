"""The tokens of a conversation: the model's own chat template, cut into fixed pieces.

A template is rendered once with markers instead of contents and split at them; afterwards pieces and
contents are encoded separately and joined. So a content can neither smuggle in a control token nor change
how the template around it is tokenised, and a cached prefix never changes.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from bench.errors import ConfigError
from bench.models.tokenizer import TextTokenizer

log = logging.getLogger(__name__)

TEMPLATE_DATE = dt.datetime(2024, 7, 26, tzinfo=dt.UTC)
"""The date passed to every template (Llama 3's own default), so that records can be reproduced."""
_MARKERS = ("FIRSTUSERTURNMARKER", "FIRSTREPLYMARKER", "SECONDUSERTURNMARKER")


@dataclass(frozen=True)
class ChatFormat:
    """Token ids around the contents of a conversation that starts and ends with a user turn."""

    opening: tuple[int, ...]
    """BOS (exactly one, if the model has one), system turn if any, header of the first user turn."""
    closing: tuple[int, ...]
    """End of a user turn and header of the answer to be generated."""
    reply_opening: tuple[int, ...]
    """The same before a reply that is put in the assistant's mouth (most templates: ``closing``)."""
    next_turn: tuple[int, ...]
    """End of the assistant's turn and header of the next user turn."""
    answer_prefix: str = ""
    """Text before the answer's first word: empty after a header, a space after ``Output:``."""


@dataclass(frozen=True)
class _Pieces:
    """The same pieces as text."""

    opening: str
    closing: str
    reply_opening: str
    next_turn: str
    answer_prefix: str = ""


PLAIN_FORMATS: Mapping[str, _Pieces] = {
    # Phi-2's model card asks for "Instruct: <prompt>\nOutput:".
    "instruct-output": _Pieces("Instruct: ", "\nOutput:", "\nOutput:", "\nInstruct: ", " "),
    # Any base model: the plain prompt, then "Answer:".  # our choice
    "answer": _Pieces("", "\n\nAnswer:", "\n\nAnswer:", "\n\n", " "),
}


END_OF_TEXT = "<|endoftext|>"
"""Qwen's generation config counts it as an end; a GGUF file has room for one end only."""


def chat_format(tokenizer: TextTokenizer, style: str = "template") -> ChatFormat:
    """The pieces of the tokenizer's chat template, or of a plain format.

    style: ``template``, or a name in PLAIN_FORMATS; a tokenizer that has no template gets ``answer``.
    Raises ConfigError for an unknown style, or a template that rewrites earlier turns.
    """
    if style != "template" and style not in PLAIN_FORMATS:
        raise ConfigError(f"chat style {style!r}: expected template or one of {', '.join(PLAIN_FORMATS)}.")
    if style == "template" and tokenizer.hf.chat_template:
        pieces = _template_pieces(tokenizer)
    else:
        if style == "template":
            log.warning(
                "%s has no chat template: it gets the plain prompt followed by 'Answer:'. It is probably a "
                "base model, which follows instructions poorly; its instruct version has a template.",
                tokenizer.name,
            )
        pieces = PLAIN_FORMATS["answer" if style == "template" else style]
    return ChatFormat(
        opening=_with_one_bos(tokenizer, tokenizer.encode_template(pieces.opening)),
        closing=tokenizer.encode_template(pieces.closing),
        reply_opening=tokenizer.encode_template(pieces.reply_opening),
        next_turn=tokenizer.encode_template(pieces.next_turn),
        answer_prefix=pieces.answer_prefix,
    )


def stop_tokens(tokenizer: TextTokenizer, chat: ChatFormat, *configs: Any) -> frozenset[int]:
    """Ids that end an answer: every EOS of the configs and tokenizer, the end of turn, and END_OF_TEXT."""
    stops: set[int] = set()
    for owner in (tokenizer.hf, *configs):
        eos = getattr(owner, "eos_token_id", None)
        if eos is not None:
            stops.update([eos] if isinstance(eos, int) else eos)
    first = tokenizer.hf.added_tokens_decoder.get(chat.next_turn[0]) if chat.next_turn else None
    if first is not None and first.content.strip():
        stops.add(chat.next_turn[0])
    added = tokenizer.hf.added_tokens_decoder.items()
    stops.update(at for at, token in added if token.special and token.content == END_OF_TEXT)
    return frozenset(stops)


def render(tokenizer: TextTokenizer, messages: list[dict[str, str]]) -> str:
    """The chat template's own text for these messages, with the fixed date, up to the assistant's header.

    Some templates take the date as ``date_string``, others call ``strftime_now``: both are fixed.
    """
    from jinja2 import TemplateError

    try:
        text = tokenizer.hf.apply_chat_template(
            messages,
            chat_template=_fixed_clock() + tokenizer.hf.get_chat_template(),
            tokenize=False,
            add_generation_prompt=True,
            date_string=TEMPLATE_DATE.strftime("%d %b %Y"),
        )
    except TemplateError as error:
        raise ConfigError(f"{tokenizer.name}: its chat template fails: {error}. Mend or remove it.") from None
    return str(text)


def _fixed_clock() -> str:
    """A Jinja macro instead of transformers' ``strftime_now`` (a function cannot be passed in)."""
    filters = "".join(
        f" | replace('%{code}', '{TEMPLATE_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY"
    )
    return f"{{% macro strftime_now(format) %}}{{{{ format{filters} }}}}{{% endmacro +%}}"


def _template_pieces(tokenizer: TextTokenizer) -> _Pieces:
    first, reply, second = _MARKERS
    asked = [{"role": "user", "content": first}]
    more = [{"role": "assistant", "content": reply}, {"role": "user", "content": second}]
    one_turn, three_turns = render(tokenizer, asked), render(tokenizer, asked + more)
    if one_turn.count(first) != 1 or any(three_turns.count(marker) != 1 for marker in _MARKERS):
        raise ConfigError(f"{tokenizer.name}: its chat template drops or repeats a message.")
    opening, closing = one_turn.split(first)
    before, rest = three_turns.split(first)
    reply_opening, rest = rest.split(reply)
    next_turn, after = rest.split(second)
    if (before, after) != (opening, closing):
        raise ConfigError(
            f"{tokenizer.name}: its chat template rewrites earlier turns when later ones follow, so a"
            " conversation cannot grow on a cache. Use a tokenizer whose template only appends."
        )
    return _Pieces(opening, closing, reply_opening, next_turn)


def _with_one_bos(tokenizer: TextTokenizer, opening: tuple[int, ...]) -> tuple[int, ...]:
    """The opening with exactly one leading BOS if template or tokenizer writes one, else unchanged.

    Only leading tokens are BOS: ChatML starts every turn, the user's included, with the same token.
    """
    bos = tokenizer.hf.bos_token_id
    if bos is None:
        return opening
    rest = tuple(dropwhile(lambda id_: id_ == bos, opening))
    adds_bos = bos in tokenizer.hf.encode("", add_special_tokens=True)
    return (bos, *rest) if adds_bos or len(rest) < len(opening) else opening
