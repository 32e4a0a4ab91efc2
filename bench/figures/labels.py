"""Names beside their points: where each label goes so that it covers no point, no line and no other label.

Plain geometry in one unit (here points, 1/72 inch, with y upwards): the same input gives the same places.
Inside, a rectangle is ``left, bottom, right, top`` and a straight line ``x0, y0, x1, y1``, in arrays (n, 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.float64]

_SIDES = np.array(
    [(across / 4, up / 4) for across in range(-4, 5) for up in range(-4, 5) if max(abs(across), abs(up)) == 4]
)
"""Where a label is tried: along the edges of a square from -1 to 1."""
_DISTANCES = (1.0, 5.0, 10.0, 16.0, 23.0, 31.0, 40.0, 50.0, 62.0, 76.0)
"""Gaps between marker and label that are tried."""
_NEAR = 6.0
"""A label farther from its marker than this gets a line to it, its leader."""
_ROUNDS = 12
_CROSSING = 150.0
"""The price of a leader that crosses a marker or a label, in units of distance."""
_ALONG = 6.0
"""The price of a leader that crosses an obstacle, or runs along it."""
_COVERED = 4.0
"""The price of a unit of covered area."""
_ON_LINE = 0.4
"""The price of a unit of an obstacle's area; a label has a ground of its own."""
_CLEAR = 3.0
"""The margin around a marker in which another's label would seem to be its own."""


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True)
class Anchor:
    """A point that has a label, with the size of the label."""

    x: float
    y: float
    radius: float
    """Of the marker."""
    width: float
    height: float


@dataclass(frozen=True)
class Label:
    """The place of a label."""

    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None
    """From the marker to the label; None: the label stands right beside its marker."""


@dataclass(frozen=True)
class _Places:
    """The places of one label that are tried."""

    boxes: Numbers
    leaders: Numbers
    """A line of no length, which crosses nothing, where there is none."""
    prices: Numbers
    """What each costs wherever the other labels are."""


def place_labels(anchors: Sequence[Anchor], bounds: Box, obstacles: Sequence[Box] = ()) -> list[Label]:
    """A place for the label of each anchor, in their order.

    A label moves to its cheapest place while the others stay, round after round, until none moves. It must
    not leave ``bounds``, and should cover neither markers, other labels nor ``obstacles``.
    """
    markers = np.array([[a.x - a.radius, a.y - a.radius, a.x + a.radius, a.y + a.radius] for a in anchors])
    covered = np.array([[b.left, b.bottom, b.right, b.top] for b in obstacles]).reshape(-1, 4)
    places = [_places(i, anchor, markers, bounds, covered) for i, anchor in enumerate(anchors)]
    chosen = [int(np.argmin(one.prices)) for one in places]
    for _ in range(_ROUNDS):
        before = list(chosen)
        for i, one in enumerate(places):
            others = [at for at in range(len(places)) if at != i]
            if others:
                boxes = np.stack([places[at].boxes[chosen[at]] for at in others])
                leaders = np.stack([places[at].leaders[chosen[at]] for at in others])
                chosen[i] = int(np.argmin(one.prices + _price_beside(one, boxes, leaders)))
        if chosen == before:
            break
    return [_label(one, at) for one, at in zip(places, chosen, strict=True)]


def _label(places: _Places, at: int) -> Label:
    x0, y0, x1, y1 = map(float, places.leaders[at])
    leader = None if (x0, y0) == (x1, y1) else ((x0, y0), (x1, y1))
    return Label(Box(*map(float, places.boxes[at])), leader)


def _places(i: int, anchor: Anchor, markers: Numbers, bounds: Box, obstacles: Numbers) -> _Places:
    """Places around marker ``i`` that lie within the bounds; the one nearest to them if there is none."""
    point, half = np.array([anchor.x, anchor.y]), np.array([anchor.width, anchor.height]) / 2
    centres = np.concatenate([point + _SIDES * (anchor.radius + gap + half) for gap in _DISTANCES])
    boxes = np.hstack([centres - half, centres + half])
    limits = np.array([bounds.left, bounds.bottom, bounds.right, bounds.top])
    excess = np.maximum((limits - boxes)[:, :2].max(axis=1), (boxes - limits)[:, 2:].max(axis=1))
    boxes = boxes[excess <= max(0.0, float(excess.min()))]

    ends = np.clip(point, boxes[:, :2], boxes[:, 2:])
    starts = np.clip(ends, markers[i, :2], markers[i, 2:])
    far = np.linalg.norm(ends - starts, axis=1) > _NEAR
    leaders = np.hstack([starts, np.where(far[:, None], ends, starts)])

    strangers = np.delete(markers, i, axis=0)
    prices = np.linalg.norm(ends - point, axis=1) + _ON_LINE * _overlaps(boxes, obstacles).sum(axis=1)
    prices += _COVERED * _overlaps(boxes, strangers + np.array([-1, -1, 1, 1]) * _CLEAR).sum(axis=1)
    prices += _CROSSING * _crossings(leaders, strangers).sum(axis=1)
    prices += _ALONG * _crossings(leaders, obstacles).sum(axis=1)
    return _Places(boxes, leaders, prices)


def _price_beside(places: _Places, boxes: Numbers, leaders: Numbers) -> Numbers:
    """What each place costs because of the other labels, with these boxes and leaders."""
    covered = _overlaps(places.boxes, boxes).sum(axis=1)
    crossed = _crossings(places.leaders, boxes).sum(axis=1) + _crossings(leaders, places.boxes).sum(axis=0)
    return np.asarray(_COVERED * covered + _CROSSING * crossed)


def _overlaps(boxes: Numbers, others: Numbers) -> Numbers:
    """The area that each box (n, 4) shares with each other one (m, 4), as (n, m)."""
    shared = np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - np.maximum(
        boxes[:, None, :2], others[None, :, :2]
    )
    return np.asarray(np.clip(shared, 0, None).prod(axis=2))


def _crossings(lines: Numbers, boxes: Numbers) -> npt.NDArray[np.bool_]:
    """Whether each line (n, 4) enters the inside of each box (m, 4), as (n, m).

    A line enters a box if it is between both pairs of opposite sides at once (Liang and Barsky's clipping).
    """
    start = lines[:, None, :2]
    along = lines[:, None, 2:] - start
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (boxes[None, :, :2] - start) / along, (boxes[None, :, 2:] - start) / along
    between = (start > boxes[None, :, :2]) & (start < boxes[None, :, 2:])
    still = along == 0
    enters = np.where(still, np.where(between, -np.inf, np.inf), np.minimum(one, other)).max(axis=2)
    leaves = np.where(still, np.where(between, np.inf, -np.inf), np.maximum(one, other)).min(axis=2)
    moves = (along != 0).any(axis=2)
    return np.asarray(moves & (np.maximum(enters, 0) < np.minimum(leaves, 1)))
