"""Text of others on a terminal or a page: nothing in it is a command."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]|\r(?!\n)")


def printable(text: str) -> str:
    """The text without control characters and lone surrogates; line ends and tabs stay."""
    return _UNPRINTABLE.sub("\ufffd", text)
