"""Where the names of points go."""

from __future__ import annotations

import itertools

from bench.figures.labels import Anchor, Box, place_labels

PAGE = Box(0, 0, 200, 150)


def anchor(x: float, y: float) -> Anchor:
    return Anchor(x, y, radius=4, width=50, height=9)


def overlap(one: Box, other: Box) -> float:
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    return max(0.0, width) * max(0.0, height)


def marker(point: Anchor) -> Box:
    r = point.radius
    return Box(point.x - r, point.y - r, point.x + r, point.y + r)


def inside(box: Box) -> bool:
    return 0 <= box.left and box.right <= 200 and 0 <= box.bottom and box.top <= 150


def test_a_lone_point_has_its_name_beside_it() -> None:
    (label,) = place_labels([anchor(100, 75)], PAGE)
    assert label.leader is None
    assert overlap(label.box, marker(anchor(100, 75))) == 0
    assert min(abs(label.box.left - 100), abs(label.box.right - 100), abs(label.box.bottom - 75)) < 6


def test_names_of_a_cluster_do_not_overlap_and_stay_on_the_page() -> None:
    anchors = [anchor(100 + 3 * (n % 3), 70 + 3 * (n // 3)) for n in range(9)]
    boxes = [label.box for label in place_labels(anchors, PAGE)]
    assert all(map(inside, boxes))
    assert all(overlap(one, other) == 0 for one, other in itertools.combinations(boxes, 2))
    assert all(overlap(box, marker(point)) == 0 for box, point in itertools.product(boxes, anchors))


def test_a_far_name_has_a_line_from_its_point_to_it() -> None:
    around = [Box(40, 40, 160, 71), Box(40, 79, 160, 110), Box(40, 60, 94, 90), Box(106, 60, 160, 90)]
    (label,) = place_labels([anchor(100, 75)], PAGE, around)
    assert label.leader is not None
    (x, y), (to_x, to_y) = label.leader
    assert abs(x - 100) <= 4 and abs(y - 75) <= 4
    assert label.box.left <= to_x <= label.box.right and label.box.bottom <= to_y <= label.box.top


def test_a_line_to_a_name_passes_by_the_other_points() -> None:
    anchors = [anchor(100, 75), anchor(112, 75), anchor(88, 75), anchor(100, 87), anchor(100, 63)]
    for label, own in zip(place_labels(anchors, PAGE), anchors, strict=True):
        if label.leader is None:
            continue
        (x0, y0), (x1, y1) = label.leader
        for step in range(21):
            x, y = x0 + (x1 - x0) * step / 20, y0 + (y1 - y0) * step / 20
            assert not any(
                abs(x - other.x) < 4 and abs(y - other.y) < 4 for other in anchors if other is not own
            )


def test_a_name_at_the_edge_stays_inside() -> None:
    for corner in itertools.product((0, 200), (0, 150)):
        (label,) = place_labels([anchor(*corner)], PAGE)
        assert inside(label.box)


def test_the_same_points_give_the_same_places() -> None:
    anchors = [anchor(90 + n, 70 + (7 * n) % 5) for n in range(12)]
    assert place_labels(anchors, PAGE) == place_labels(anchors, PAGE)
