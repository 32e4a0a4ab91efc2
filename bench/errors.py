"""Errors that a user can cause and repair; each says what was given, what was expected, what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BenchError(Exception):
    """An error with a message for the user; the CLI prints the message alone and exits with code 2."""


class UnknownNameError(BenchError, ValueError):
    """A name that no registry entry, card or preset carries; in a definition, a fault of the key it is at."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        """Build the message, with the nearest known name when one is near.

        kind: the kind of thing named ("method", "data set"); name: as typed; known: every valid
        name; hint: a last sentence, for example the command that lists them.
        """
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5 if len(name) <= 2 else 0.7)
        near = near or [one for one in names if name and one.startswith(name)]
        guess = f" Did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(names) if names else "none"
        super().__init__(f"Unknown {kind} {name!r}.{guess} Known: {listed}.{' ' + hint if hint else ''}")


class DataError(BenchError):
    """A data file or card that cannot be used; the message names ``file:line`` where a line is at fault."""


class ModelUnavailableError(BenchError):
    """A model whose files are missing; the message says what was tried and how to get them."""


class ConfigError(BenchError):
    """An option or ``--set`` value that does not fit; the message names the option and its range."""


class NoAttentionError(ConfigError):
    """A model asked for the attention of its tokens that does not give it."""


class QuestionError(Exception):
    """An error that fails one question and never the run: the set-up itself is sound."""


class WindowExceededError(QuestionError):
    """A text, prompt or answer that exceeds the model's positions; the message says how many it needs."""


class InvalidLogitsError(QuestionError):
    """A forward pass with logits that are not numbers; it never becomes an answer."""
