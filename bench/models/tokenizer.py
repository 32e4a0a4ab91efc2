"""Text to token ids and back: plain text stays plain text, control tokens come from templates only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from bench.errors import ModelUnavailableError
from bench.models.api import Span, Tokenization

RECENT = 8
"""Texts whose tokens are remembered: a prompt is counted before it is read."""

LONG = 40_000
"""Characters of a text that is not worth the memory."""

_NO_TEXT = "\ufffe \ufffe"
"""Before a piece: no text has this, since SentencePiece's vocabularies write blanks otherwise."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class TextTokenizer:
    """A Hugging Face fast tokenizer in two halves: one for untrusted text, one for template pieces.

    The half for text has no added tokens (except runs of white space, which some vocabularies add there),
    so that ``<|eot_id|>`` inside a document is ordinary characters.
    """

    def __init__(self, name: str, tokenizer: Any) -> None:
        """name: the model, for messages; tokenizer: a ``PreTrainedTokenizerFast``, stored as ``hf``.

        Raises ModelUnavailableError for a tokenizer without a fast backend, which has no offsets.
        """
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ModelUnavailableError(
                f"{name}: its tokenizer ({type(tokenizer).__name__}) has no tokenizer.json and so no"
                " character offsets. Save it once as a fast tokenizer."
            )
        self.name = name
        self.hf = tokenizer
        state = json.loads(backend.to_str())
        for token in state["added_tokens"]:
            token["special"] = bool(token["content"].strip())
        if state["model"]["type"] == "Unigram":  # it has them as pieces too, of the best score
            added = {token["content"] for token in state["added_tokens"] if token["special"]}
            pieces = state["model"]["vocab"]
            state["model"]["vocab"] = [[_NO_TEXT * (name in added) + name, score] for name, score in pieces]
        state["post_processor"] = state["truncation"] = state["padding"] = None
        self._text = Tokenizer.from_str(json.dumps(state))
        self._text.encode_special_tokens = True  # encoded as ordinary characters
        self._encoded = lru_cache(RECENT)(self._encode)

    def encode(self, text: str) -> Tokenization:
        """Ids and character offsets of plain text: no BOS, no control tokens, whatever the text contains.

        A lone surrogate is read as U+FFFD, character for character, since it has no UTF-8 form.
        """
        return self._encoded(text) if len(text) <= LONG else self._encode(text)

    def _encode(self, text: str) -> Tokenization:
        encoding = self._text.encode(_SURROGATES.sub("\ufffd", text), add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    def encode_template(self, piece: str) -> tuple[int, ...]:
        """Ids of a piece of a chat template: control tokens keep their function."""
        return tuple(self.hf.encode(piece, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, without control tokens and otherwise untouched."""
        return str(self.hf.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def decode_with_offsets(self, ids: Sequence[int]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Text of generated ids, surrounding white space removed, and the character range of each token.

        Tokens that only together make a character share its range; a control token, and white space that
        was removed, has an empty one.
        """
        from tokenizers.decoders import DecodeStream

        decoded = self.decode(ids)
        stream = DecodeStream(skip_special_tokens=True)
        ends: list[int] = []
        written = 0
        for id_ in ids:
            written += len(stream.step(self.hf.backend_tokenizer, id_) or "")
            ends.append(written)
        if written > len(decoded) or (ends and written < len(decoded) and not decoded.endswith("\ufffd")):
            raise ValueError(
                f"{self.name}: its decoder writes {written} characters piecewise, {len(decoded)} at once"
            )
        ranges: list[tuple[int, int]] = []
        start = 0
        for at, end in enumerate(ends):
            # A token that wrote nothing yet belongs to the character that the next ones complete.
            complete = next((e for e in ends[at:] if e > start), len(decoded))
            ranges.append((start, complete if end == start else end))
            start = end
        text = decoded.strip()
        lead = len(decoded) - len(decoded.lstrip())
        clipped = [(min(max(a - lead, 0), len(text)), min(max(b - lead, 0), len(text))) for a, b in ranges]
        return text, tuple(clipped)


def token_span(tokens: Tokenization, start: int, end: int) -> Span:
    """Positions of the tokens that touch the characters ``start`` to ``end``; empty where none does."""
    touching = [i for i, (a, b) in enumerate(tokens.offsets) if a < end and b > start]
    if start < end and touching:
        return Span(touching[0], touching[-1] + 1)
    before = sum(1 for _, b in tokens.offsets if b <= start)
    return Span(before, before)
