"""Names beside their points: where each label goes so that it covers no point, no line and no other label.

Plain geometry in one unit (here points, 1/72 inch, with y upwards): the same input gives the same places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SIDES = tuple(
    (across / 4, up / 4) for across in range(-4, 5) for up in range(-4, 5) if max(abs(across), abs(up)) == 4
)
"""Where a label is tried: along the edges of a square from -1 to 1."""
_DISTANCES = (1.0, 5.0, 10.0, 16.0, 23.0, 31.0, 40.0, 50.0, 62.0, 76.0)
"""Gaps between marker and label that are tried."""
_NEAR = 6.0
"""A label farther from its marker than this gets a line to it."""
_ROUNDS = 12
_CROSSING = 150.0
"""The price of a leader that crosses a point or a label, in units of distance."""
_CLEAR = 3.0
"""The margin around a marker in which another's label would seem to be its own."""
_COVERED = 4.0
"""The price of a unit of covered area."""


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def grown(self, by: float) -> Box:
        """The rectangle with that margin on every side."""
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the rectangle that is nearest to a point."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)


@dataclass(frozen=True)
class Anchor:
    """A point that has a label, with the size of the label."""

    x: float
    y: float
    radius: float
    """Of the marker."""
    width: float
    height: float

    @property
    def marker(self) -> Box:
        """The square around the marker."""
        r = self.radius
        return Box(self.x - r, self.y - r, self.x + r, self.y + r)


@dataclass(frozen=True)
class Label:
    """The place of a label."""

    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None
    """From the marker to the label; None: the label stands right beside its marker."""


def place_labels(anchors: Sequence[Anchor], bounds: Box, obstacles: Sequence[Box] = ()) -> list[Label]:
    """A place for the label of each anchor, in their order.

    A label moves to its cheapest place while the others stay, round after round, until none moves. It must
    not leave ``bounds``, and should cover neither markers, other labels nor ``obstacles``.
    """
    markers = [anchor.marker for anchor in anchors]
    candidates = [
        [(_fixed_price(label, anchor, markers, obstacles), label) for label in _places(anchor, bounds)]
        for anchor in anchors
    ]
    chosen = [min(places, key=lambda place: place[0])[1] for places in candidates]
    for _ in range(_ROUNDS):
        before = list(chosen)
        for i, places in enumerate(candidates):
            others = [label for at, label in enumerate(chosen) if at != i]
            chosen[i] = min(places, key=lambda place: place[0] + _price_beside(place[1], others))[1]
        if chosen == before:
            break
    return chosen


def _places(anchor: Anchor, bounds: Box) -> list[Label]:
    """Places around the marker that lie within the bounds; the one nearest to them if there is none."""
    inside: list[tuple[float, Label]] = []
    outside: list[tuple[float, Label]] = []
    for gap in _DISTANCES:
        for across, up in _SIDES:
            x = anchor.x + across * (anchor.radius + gap + anchor.width / 2)
            y = anchor.y + up * (anchor.radius + gap + anchor.height / 2)
            half, high = anchor.width / 2, anchor.height / 2
            box = Box(x - half, y - high, x + half, y + high)
            start = anchor.marker.nearest(*box.nearest(anchor.x, anchor.y))
            end = box.nearest(*start)
            label = Label(box, (start, end) if math.dist(start, end) > _NEAR else None)
            excess = max(
                bounds.left - box.left, box.right - bounds.right,
                bounds.bottom - box.bottom, box.top - bounds.top,
            )  # fmt: skip
            (inside if excess <= 0 else outside).append((excess, label))
    return [label for _, label in inside] or [min(outside, key=lambda place: place[0])[1]]


def _fixed_price(label: Label, anchor: Anchor, markers: Sequence[Box], obstacles: Sequence[Box]) -> float:
    """What a place costs wherever the other labels are."""
    price = math.dist(label.box.nearest(anchor.x, anchor.y), (anchor.x, anchor.y))
    strangers = [marker for marker in markers if marker != anchor.marker]
    price += _COVERED * sum(label.box.overlap(marker.grown(_CLEAR)) for marker in strangers)
    price += sum(label.box.overlap(obstacle) for obstacle in obstacles)
    return price + _CROSSING * sum(_crosses(label.leader, marker) for marker in strangers)


def _price_beside(label: Label, others: Sequence[Label]) -> float:
    """What a place costs because of the other labels and their leaders."""
    return sum(
        _COVERED * label.box.overlap(other.box)
        + _CROSSING * (_crosses(other.leader, label.box) + _crosses(label.leader, other.box))
        for other in others
    )


def _crosses(line: tuple[tuple[float, float], tuple[float, float]] | None, box: Box) -> bool:
    """Whether a straight line enters the inside of a box (Liang and Barsky's clipping)."""
    if line is None:
        return False
    (x0, y0), (x1, y1) = line
    enters, leaves = 0.0, 1.0
    for towards, room in (
        (x0 - x1, x0 - box.left), (x1 - x0, box.right - x0),
        (y0 - y1, y0 - box.bottom), (y1 - y0, box.top - y0),
    ):  # fmt: skip
        if towards == 0:
            if room <= 0:
                return False
        elif towards < 0:
            enters = max(enters, room / towards)
        else:
            leaves = min(leaves, room / towards)
    return enters < leaves
