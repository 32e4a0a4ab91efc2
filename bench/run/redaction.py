"""Remove secrets from texts of other origin, such as library messages, before they are stored or shown."""

from __future__ import annotations

import os
import re

from bench.results.curves import cut

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)$", re.I
)
_SHORTEST = 6
"""Minimum length in characters; a shorter value may be an ordinary word."""
_SECRET_FORM = re.compile(
    r"(?<=://)[^/\s@]+(?=@)"  # user and password in an address
    r"|\bhf_[A-Za-z0-9]{16,}|\bsk-[\w-]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}"
)


def redacted(text: str) -> str:
    """The text without secrets: values of environment variables named like one, and known token forms."""
    secrets = {v for name, v in os.environ.items() if _SECRET_NAME.search(name) and len(v) >= _SHORTEST}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _SECRET_FORM.sub(HIDDEN, text)


def fault_text(fault: BaseException) -> str:
    """``Kind: message`` of an exception, as records store it.

    Secrets are removed, characters that UTF-8 cannot encode replaced; at most 2,000 characters.
    """
    try:
        message = str(fault)
    except Exception:
        message = "(its message cannot be read)"
    return cut(redacted(f"{type(fault).__name__}: {message}"), 2_000)
