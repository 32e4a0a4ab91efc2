"""Where the names of points go."""

from __future__ import annotations

import itertools

from bench.figures.labels import Anchor, Box, place_labels

PAGE = Box(0, 0, 200, 150)


def anchor(x: float, y: float) -> Anchor:
    return Anchor(x, y, radius=4, width=50, height=9)


def inside(box: Box) -> bool:
    return box.overlap(PAGE) == (box.right - box.left) * (box.top - box.bottom)


def test_a_lone_point_has_its_name_beside_it() -> None:
    (label,) = place_labels([anchor(100, 75)], PAGE)
    assert label.leader is None
    assert label.box.overlap(anchor(100, 75).marker) == 0
    assert label.box.left - 100 < 6


def test_names_of_a_cluster_do_not_overlap_and_stay_on_the_page() -> None:
    anchors = [anchor(100 + 3 * (n % 3), 70 + 3 * (n // 3)) for n in range(9)]
    boxes = [label.box for label in place_labels(anchors, PAGE)]
    assert all(map(inside, boxes))
    assert all(one.overlap(other) == 0 for one, other in itertools.combinations(boxes, 2))
    assert all(box.overlap(point.marker) == 0 for box, point in itertools.product(boxes, anchors))


def test_a_far_name_has_a_line_to_its_point() -> None:
    around = [Box(40, 40, 160, 71), Box(40, 79, 160, 110), Box(40, 60, 94, 90), Box(106, 60, 160, 90)]
    (label,) = place_labels([anchor(100, 75)], PAGE, around)
    assert label.leader is not None
    (x, y), end = label.leader
    assert abs(x - 100) <= 4 and abs(y - 75) <= 4
    assert label.box.nearest(*end) == end


def test_a_name_at_the_edge_stays_inside() -> None:
    for corner in itertools.product((0, 200), (0, 150)):
        (label,) = place_labels([anchor(*corner)], PAGE)
        assert inside(label.box)


def test_the_same_points_give_the_same_places() -> None:
    anchors = [anchor(90 + n, 70 + (7 * n) % 5) for n in range(12)]
    assert place_labels(anchors, PAGE) == place_labels(anchors, PAGE)
