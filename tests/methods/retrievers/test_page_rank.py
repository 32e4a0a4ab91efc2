"""PageRank: the solution of its equation."""

from __future__ import annotations

import numpy as np
import pytest

from methods.retrievers.page_rank import min_max, page_rank


def test_rounding_is_no_difference() -> None:
    assert min_max(np.array([0.66425717, 0.66425711])).tolist() == [1, 1]
    assert min_max(np.array([3.0, 1.0, 2.0])).tolist() == [1, 0, 0.5]


def test_page_rank_solves_its_equation_and_a_lone_node_gives_to_the_restart() -> None:
    first, second, weights = np.array([0, 1]), np.array([1, 2]), np.array([1.0, 3.0])
    restart = np.array([2.0, -1.0, 1.0, 1.0])  # node 3 has no edge
    ranks = page_rank(restart, first, second, weights, damping=0.5)
    start = np.array([0.5, 0, 0.25, 0.25])
    moves = np.array([[0, 0.25, 0, 0.5], [1, 0, 1, 0], [0, 0.75, 0, 0.25], [0, 0, 0, 0.25]])
    np.testing.assert_allclose(ranks, np.linalg.solve(np.eye(4) - 0.5 * moves, 0.5 * start), atol=1e-12)
    assert ranks.sum() == pytest.approx(1)
