"""A generated summary taken apart: its bullets, and the generated tokens that each consists of.

Bullet markers and line ends belong to no bullet, neither as text nor as tokens, so that attention is
averaged over what a bullet says.
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

_SET_IN = 2
"""Columns from which an item stands below the one before it, not beside it."""

CharRange = tuple[int, int]


@dataclass(frozen=True)
class Bullet:
    """One summary point: its text on one line, and positions among the generated tokens."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Bullets:
    """What a generated text was found to hold."""

    bullets: tuple[Bullet, ...]
    """In order; empty when the text says nothing."""
    marker: Marker
    """What they were marked with; ``none``: the text's lines were taken."""
    outside: bool
    """Whether there was text before, between or after them that belongs to none; it is dropped."""
    nested: int = 0
    """Bullets that stood below another and took its words along."""
    headings: int = 0
    """Items that only introduced those below them, and are no bullets themselves."""


def parse_bullets(generation: Generation) -> Bullets:
    """The bullets of a generated summary.

    Lines that begin with ``*``; failing these with ``-``, ``•`` or a number; failing these every line.
    A line without a marker goes on with the bullet above it, unless an empty line lies between them.
    A bullet without a letter or digit is none, nor is one that is only the number of an item.
    An item set in below another (by two columns, with any marker) takes that one's words along, and an
    item that is no sentence and has such below it is no bullet: "LSU Honors College" over "Founded in
    1992" becomes "LSU Honors College: Founded in 1992".
    # our choice, all of it: the papers show clean lists only
    """
    text = generation.text
    for marker, pattern in _MARKERS:
        items, outside = _marked(text, pattern)
        if not items:
            continue
        spoken = [item for item in items if not _only_introduces(item, text)]
        nested = [item for item in spoken if item.above]
        chains = [item.chain() for item in spoken]
        return Bullets(
            _bullets(chains, generation), marker, outside, len(nested), headings=len(items) - len(spoken)
        )
    lines = [[[line]] for line in _lines(text) if _says_something(text[slice(*line)])]
    return Bullets(_bullets(lines, generation), "none", False)


def whole_text(generation: Generation) -> Bullets:
    """The generated text as one bullet, for a summary that is not a list."""
    lines = [line for line in _lines(generation.text) if line[0] < line[1]]
    found = [[lines]] if _says_something(generation.text) else []
    return Bullets(_bullets(found, generation), "none", False)


@dataclass
class _Item:
    """A marked line with those that go on with it, and the item below which it stands."""

    indent: int
    lines: list[CharRange]
    says_something: bool
    above: _Item | None = None
    has_below: bool = False

    def outermost(self) -> _Item:
        """The item at the left under which it stands, or itself."""
        return self.above.outermost() if self.above else self

    def chain(self) -> list[list[CharRange]]:
        """The lines of the items above it, from the outermost, and its own."""
        return [*(self.above.chain() if self.above else []), self.lines]


def _only_introduces(item: _Item, text: str) -> bool:
    end = item.lines[-1][1]
    return item.has_below and not text[:end].rstrip("*_\"')").endswith((".", "!", "?"))


def _marked(text: str, pattern: re.Pattern[str]) -> tuple[list[_Item], bool]:
    """The marked items that say something, and whether other text was left out."""
    items: list[_Item] = []
    open_, outside = False, False
    lines = _lines(text)
    indents = [len(text[text.rfind("\n", 0, start) + 1 : start].expandtabs(4)) for start, _ in lines]
    for at, ((start, end), indent) in enumerate(zip(lines, indents, strict=True)):
        line = text[start:end]
        marker = pattern.match(line)
        if marker is None:
            below = bool(items) and indent >= items[-1].outermost().indent + _SET_IN
            following = next((n for n in range(at + 1, len(lines)) if lines[n][0] < lines[n][1]), at)
            introduces = indents[following] >= indent + _SET_IN and pattern.match(text, lines[following][0])
            if below or introduces:
                marker = next((found for _, other in _MARKERS if (found := other.match(line))), None)
        if marker:
            above = items[-1] if items else None
            while above is not None and (indent < above.indent + _SET_IN or not above.says_something):
                above = above.above
            says = _says_something(line[marker.end() :])
            if above is not None and says:
                above.has_below = True
            items.append(_Item(indent, [(start + marker.end(), end)], says, above))
            open_ = True
        elif not line:
            open_ = False
        elif open_:
            items[-1].lines.append((start, end))
            items[-1].says_something |= _says_something(line)
        else:
            outside = True
    return [item for item in items if item.says_something], outside


def _lines(text: str) -> list[CharRange]:
    """Character range of every line without the white space around it."""
    lines, at = list[CharRange](), 0
    for line in text.split("\n"):
        start = at + len(line) - len(line.lstrip())
        lines.append((start, max(start, at + len(line.rstrip()))))
        at += len(line) + 1
    return lines


def _bullets(found: list[list[list[CharRange]]], generation: Generation) -> tuple[Bullet, ...]:
    """Texts and tokens of items, each with those above it; a token belongs to every range that it touches."""
    if len(generation.offsets) != len(generation.token_ids):
        raise RuntimeError(
            f"a generation of {len(generation.token_ids)} tokens came with {len(generation.offsets)} "
            "offsets; the model must say which characters each token wrote"
        )
    offsets = np.asarray(generation.offsets, dtype=np.int64).reshape(-1, 2)
    bullets = []
    for chain in found:
        inside = np.zeros(len(offsets), dtype=bool)
        for start, end in (line for lines in chain for line in lines):
            inside |= (offsets[:, 0] < end) & (offsets[:, 1] > start)
        *above, own = [" ".join(" ".join(generation.text[a:b] for a, b in lines).split()) for lines in chain]
        text = "".join(_introducing(words) for words in above) + own
        bullets.append(Bullet(text, tuple(np.flatnonzero(inside).tolist())))
    return tuple(bullets)


def _introducing(words: str) -> str:
    """The words of an item as they stand before an item below it."""
    if words.endswith((".", "!", "?")):
        return f"{words} "
    return f"{words.replace(':**', '**').rstrip(' :')}: "


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text) and not _NUMBER_ALONE.fullmatch(text)
