"""Parsing of a generated summary into bullets, each with its text and its generated tokens.

Bullet markers and line ends belong to no bullet, neither as text nor as tokens, so that attention is averaged
over the words of a bullet only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.method import Generation

Marker = Literal["asterisk", "other", "none"]

_MARKERS: tuple[tuple[Marker, re.Pattern[str]], ...] = (
    ("asterisk", re.compile(r"\*(?!\*)[ \t]*")),
    ("other", re.compile(r"[-–•][ \t]*|\(?\d{1,3}[.)][ \t]+")),
)

_NUMBER_ALONE = re.compile(r"\(?\d{1,3}[.)]")

_INDENT = 2
"""Minimum indentation, in columns, of an item below another one."""

CharRange = tuple[int, int]


@dataclass(frozen=True)
class Bullet:
    """One summary point: its text on one line, and positions among the generated tokens."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Bullets:
    """The bullets of a generated text."""

    bullets: tuple[Bullet, ...]
    """In order; empty if the text has no words."""
    marker: Marker
    """Kind of their markers; ``none``: every line is a bullet."""
    outside: bool
    """Whether there is text that belongs to no bullet; it is dropped."""
    nested: int = 0
    """Number of nested bullets, which take over the words of those above."""
    headings: int = 0
    """Number of items that only introduce the ones below them, and are not bullets themselves."""


def parse_bullets(generation: Generation) -> Bullets:
    """The bullets of a generated summary.

    Lines that start with ``*``; without any, with ``-``, ``•`` or a number; without any, every line.
    A line without a marker continues the bullet above it, unless there is an empty line between them.
    Bullets without a letter or digit, or with only the number of an item, do not count.
    A nested item (indented by two columns, with any marker) takes over the words of the item above it, and
    an item that is not a sentence and has nested items is not a bullet itself: "LSU Honors College" above
    "Founded in 1992" becomes "LSU Honors College: Founded in 1992".
    # our choice, all of it: the papers show only clean lists
    """
    text = generation.text
    for marker, pattern in _MARKERS:
        items, outside = _marked(text, pattern)
        if not items:
            continue
        points = [item for item in items if not _only_introduces(item, text)]
        nested = [item for item in points if item.above]
        chains = [item.chain() for item in points]
        return Bullets(
            _bullets(chains, generation), marker, outside, len(nested), headings=len(items) - len(points)
        )
    lines = [[[line]] for line in _lines(text) if _has_words(text[slice(*line)])]
    return Bullets(_bullets(lines, generation), "none", False)


def whole_text(generation: Generation) -> Bullets:
    """The generated text as a single bullet, for a summary that is not a list."""
    lines = [line for line in _lines(generation.text) if line[0] < line[1]]
    chains = [[lines]] if _has_words(generation.text) else []
    return Bullets(_bullets(chains, generation), "none", False)


@dataclass
class _Item:
    """A marked line with its continuation lines, and the item above it if it is nested."""

    indent: int
    lines: list[CharRange]
    has_words: bool
    above: _Item | None = None
    has_below: bool = False

    def outermost(self) -> _Item:
        """The outermost item above it, or itself."""
        return self.above.outermost() if self.above else self

    def chain(self) -> list[list[CharRange]]:
        """The lines of the items above it, outermost first, and its own."""
        return [*(self.above.chain() if self.above else []), self.lines]


def _only_introduces(item: _Item, text: str) -> bool:
    end = item.lines[-1][1]
    return item.has_below and not text[:end].rstrip("*_\"')").endswith((".", "!", "?"))


def _marked(text: str, pattern: re.Pattern[str]) -> tuple[list[_Item], bool]:
    """The marked items that have words, and whether other text was dropped."""
    items: list[_Item] = []
    open_, outside = False, False
    lines = _lines(text)
    indents = [len(text[text.rfind("\n", 0, start) + 1 : start].expandtabs(4)) for start, _ in lines]
    for at, ((start, end), indent) in enumerate(zip(lines, indents, strict=True)):
        line = text[start:end]
        marker = pattern.match(line)
        if marker is None:
            below = bool(items) and indent >= items[-1].outermost().indent + _INDENT
            following = next((n for n in range(at + 1, len(lines)) if lines[n][0] < lines[n][1]), at)
            introduces = indents[following] >= indent + _INDENT and pattern.match(text, lines[following][0])
            if below or introduces:
                marker = next((match for _, other in _MARKERS if (match := other.match(line))), None)
        if marker:
            above = items[-1] if items else None
            while above is not None and (indent < above.indent + _INDENT or not above.has_words):
                above = above.above
            has_words = _has_words(line[marker.end() :])
            if above is not None and has_words:
                above.has_below = True
            items.append(_Item(indent, [(start + marker.end(), end)], has_words, above))
            open_ = True
        elif not line:
            open_ = False
        elif open_:
            items[-1].lines.append((start, end))
            items[-1].has_words |= _has_words(line)
        else:
            outside = True
    return [item for item in items if item.has_words], outside


def _lines(text: str) -> list[CharRange]:
    """Character range of every line, without surrounding white space."""
    lines, at = list[CharRange](), 0
    for line in text.split("\n"):
        start = at + len(line) - len(line.lstrip())
        lines.append((start, max(start, at + len(line.rstrip()))))
        at += len(line) + 1
    return lines


def _bullets(chains: list[list[list[CharRange]]], generation: Generation) -> tuple[Bullet, ...]:
    """The bullets of chains of items; a token belongs to every range that it touches."""
    if len(generation.offsets) != len(generation.token_ids):
        raise RuntimeError(
            f"a generation of {len(generation.token_ids)} tokens came with {len(generation.offsets)} "
            "offsets; the model must return the character range of each token"
        )
    offsets = np.asarray(generation.offsets, dtype=np.int64).reshape(-1, 2)
    bullets = []
    for chain in chains:
        inside = np.zeros(len(offsets), dtype=bool)
        for start, end in (line for lines in chain for line in lines):
            inside |= (offsets[:, 0] < end) & (offsets[:, 1] > start)
        *above, own = [" ".join(" ".join(generation.text[a:b] for a, b in lines).split()) for lines in chain]
        text = "".join(_as_heading(words) for words in above) + own
        bullets.append(Bullet(text, tuple(np.flatnonzero(inside).tolist())))
    return tuple(bullets)


def _as_heading(words: str) -> str:
    """The words of an item as a prefix of the items below it."""
    if words.endswith((".", "!", "?")):
        return f"{words} "
    return f"{words.replace(':**', '**').rstrip(' :')}: "


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text) and not _NUMBER_ALONE.fullmatch(text)
