"""RAPTOR's clustering of similar texts (Sec. 3; released code, ``cluster_utils.py``).

UMAP to ten dimensions over all texts, a Gaussian mixture whose size BIC chooses, and the same again inside
each large cluster. :func:`soft_clusters` assigns a text to every cluster with enough probability, as in
RAPTOR; :func:`hard_clusters` assigns each text to one, for trees in which a node has one parent.

Differences from the released code: UMAP is seeded too, so that the same seed gives the same groups; texts are
identified by position, so that equal embeddings are no problem; a text below the threshold in every cluster
joins the likeliest one; a cluster that is too long and cannot be divided by similarity is cut in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.method import filled_in_order

REDUCED_DIMENSIONS = 10
SMALL = REDUCED_DIMENSIONS + 1
"""Up to this many texts form one group."""
MIN_FOR_UMAP = 5
"""Minimum number of texts for UMAP: int(sqrt(n - 1)) neighbours must be two or more."""
MAX_CLUSTERS = 50
LOCAL_NEIGHBOURS = 10
THRESHOLD = 0.1
"""A text joins the clusters whose probability for it exceeds this."""

UMAP_EPOCHS = 500
"""UMAP's own number for up to 10,000 texts; for more it takes 200, and the start keeps a few edges more."""
ROWS = 1024
"""Texts whose distances to all are held at once: 8 MB for every thousand texts there are."""
DENSE = 1024
"""Up to this many texts, the spectral start is found exactly."""
DECIMALS = 6
"""Of distances and of UMAP's start (relative to its largest coordinate): arithmetic differs far below."""

log = logging.getLogger(__name__)

Group = tuple[int, ...]
Floats = NDArray[np.float64]


def soft_clusters(
    embeddings: NDArray[np.float32], tokens: Sequence[int], *, max_tokens: int, seed: int
) -> list[Group]:
    """Positions of the texts in each group, in order; a text is in one or more groups.

    embeddings: shape (texts, dim); tokens: length of each text; max_tokens: maximum length of a group, which
    only a single text may exceed. Groups with the same members are merged. Deterministic for a given seed.
    """
    return _Clustering(embeddings, tokens, max_tokens, seed, THRESHOLD).groups()


def hard_clusters(
    embeddings: NDArray[np.float32], tokens: Sequence[int], *, max_tokens: int, seed: int
) -> list[Group]:
    """Like :func:`soft_clusters`, but every text is in exactly one group, its likeliest cluster's."""
    return _Clustering(embeddings, tokens, max_tokens, seed, None).groups()


@dataclass(frozen=True)
class _Clustering:
    """The inputs of one clustering."""

    embeddings: NDArray[np.float32]
    tokens: Sequence[int]
    max_tokens: int
    seed: int
    threshold: float | None
    """None: every text joins only its likeliest cluster."""

    def groups(self) -> list[Group]:
        """All groups, sorted by their members."""
        from threadpoolctl import threadpool_limits

        everything = tuple(range(len(self.tokens)))
        # Numba, used by UMAP, sets OpenMP's threads, and with them torch's, to the number of cores on its
        # first run. The context manager restores the previous numbers.
        with threadpool_limits(limits=1):
            return sorted(set(self._divided(everything, least=SMALL + 1)))

    def _divided(self, members: Group, least: int) -> list[Group]:
        """Groups of these members within the length; fewer than ``least`` members are only cut in order."""
        if len(members) < least:
            return self._cut_in_order(members)
        groups: list[Group] = []
        for group in self._clusters(members):
            if sum(self.tokens[i] for i in group) <= self.max_tokens:
                groups.append(group)
            elif len(group) < len(members):
                groups += self._divided(group, least=MIN_FOR_UMAP)
            else:
                groups += self._cut_in_order(group)
        return groups

    def _cut_in_order(self, members: Group) -> list[Group]:
        """Groups of consecutive members, each as long as ``max_tokens`` allows."""
        return filled_in_order(members, (self.tokens[member] for member in members), self.max_tokens)

    def _clusters(self, members: Group) -> list[Group]:
        """RAPTOR's two steps: clusters over all members, then inside each large cluster."""
        clusters: list[Group] = []
        for group in self._mixture(members, int((len(members) - 1) ** 0.5)):
            clusters += [group] if len(group) <= SMALL else self._mixture(group, LOCAL_NEIGHBOURS)
        return clusters

    def _mixture(self, members: Group, neighbours: int) -> list[Group]:
        """Non-empty clusters of a Gaussian mixture over the reduced embeddings."""
        points = reduced(self.embeddings[list(members)], neighbours, self.seed)
        labels = cluster_labels(points, self.threshold, self.seed)
        groups: dict[int, list[int]] = {}
        for member, its in zip(members, labels, strict=True):
            for label in its:
                groups.setdefault(label, []).append(member)
        return [tuple(groups[label]) for label in sorted(groups)]


def reduced(embeddings: NDArray[np.float32], neighbours: int, seed: int) -> Floats:
    """UMAP of the embeddings by cosine, shape (texts, min(10, texts - 2)); needs at least five texts.

    UMAP's hundreds of steps amplify a difference in the last bit into another layout. So that processors
    agree, what goes into them is rounded (distances and the spectral start), and they are compiled for any
    processor instead of this one. Neighbours are exact for any number of texts: UMAP's own search
    approximates them above 4,096, and needs all distances at once below.
    """
    umap_ = _umap()
    from umap.spectral import spectral_layout

    n = len(embeddings)
    neighbours, dimensions = min(neighbours, n - 1), min(REDUCED_DIMENSIONS, n - 2)
    nearest, distances = nearest_neighbours(embeddings, neighbours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about its fallbacks for small or equal inputs
        random = np.random.RandomState(seed)
        graph, *_ = umap_.fuzzy_simplicial_set(
            embeddings, neighbours, random, "cosine", knn_indices=nearest, knn_dists=distances
        )
        with _exact_eigenvectors():
            start = spectral_layout(embeddings, _without_faint(graph), dimensions, random, metric="cosine")
        start = np.round(start / np.abs(start).max(), DECIMALS)
        a, b = umap_.find_ab_params(spread=1.0, min_dist=0.1)
        points, _ = umap_.simplicial_set_embedding(  # the arguments are UMAP's defaults
            embeddings,
            graph,
            dimensions,
            initial_alpha=1.0,
            a=a,
            b=b,
            gamma=1.0,
            negative_sample_rate=5,
            n_epochs=None,
            init=umap_.noisy_scale_coords(start, random).astype(np.float32),
            random_state=np.random.RandomState(seed),
            metric="cosine",
            metric_kwds={},
            densmap=False,
            densmap_kwds={},
            output_dens=False,
        )
    return np.asarray(points, dtype=np.float64)


def nearest_neighbours(
    embeddings: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Positions and rounded cosine distances of each text's nearest, itself included, shapes (texts, count).

    Of equally near ones the first counts. Distances are held for :data:`ROWS` texts at a time.
    """
    from sklearn.metrics.pairwise import cosine_distances

    vectors = embeddings.astype(np.float64)
    nearest, distances = [], []
    for first in range(0, len(vectors), ROWS):
        block = np.round(cosine_distances(vectors[first : first + ROWS], vectors), DECIMALS)
        rows = np.arange(len(block))
        block[rows, first + rows] = 0  # a text to itself; products leave a rest
        nearest.append(np.argsort(block, axis=1, kind="stable")[:, :count].astype(np.int32))
        distances.append(np.take_along_axis(block, nearest[-1], axis=1))
    return np.concatenate(nearest), np.concatenate(distances)


def _without_faint(graph: Any) -> Any:
    """The graph as UMAP lays it out: without the edges that none of its epochs would follow."""
    kept = graph.copy()
    kept.data[kept.data < kept.data.max() / UMAP_EPOCHS] = 0.0
    kept.eliminate_zeros()
    return kept


@contextlib.contextmanager
def _exact_eigenvectors() -> Iterator[None]:
    """Within it, ``scipy.sparse.linalg.eigsh`` has one result for one matrix, up to :data:`DENSE` rows.

    Its Lanczos steps end early on small or symmetric graphs, and it goes on from a vector that scipy draws
    from the system's entropy: other signs and rotations at each call. Here, the largest entry is positive.
    """
    from scipy.sparse import linalg

    def eigsh(matrix: Any, k: int, **options: Any) -> Any:
        if matrix.shape[0] > DENSE:
            return lanczos(matrix, k, **options)
        values, vectors = np.linalg.eigh(matrix.toarray())
        largest = np.argmax(np.round(np.abs(vectors), DECIMALS), axis=0)
        vectors *= np.where(vectors[largest, range(len(vectors))] < 0, -1, 1)
        return values[:k], vectors[:, :k]

    lanczos, linalg.eigsh = linalg.eigsh, eigsh
    try:
        yield
    finally:
        linalg.eigsh = lanczos


@cache
def _umap() -> Any:
    """UMAP's module ``umap_``, compiled for any processor.

    The functions that it compiles on first use are kept on disk: ten seconds for each process. Its search for
    neighbours, pynndescent, is not used and not compiled: that takes longer than all the rest.
    """
    # Numba compiles for the processor at hand; wider or fused instructions round otherwise. Read when the
    # first function is compiled, so that a process that has compiled one before keeps its own target.
    os.environ.update(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_DISABLE_JIT="1")
    from numba.core import config
    from numba.core.registry import cpu_target

    config.reload_config()  # type: ignore[no-untyped-call]
    import pynndescent  # noqa: F401

    del os.environ["NUMBA_DISABLE_JIT"]
    config.reload_config()  # type: ignore[no-untyped-call]
    from umap import umap_

    if features := cpu_target.target_context.codegen().magic_tuple()[2]:
        log.warning("numba compiled for %s before UMAP was loaded: clusters may differ elsewhere", features)
    for function in (umap_.smooth_knn_dist, umap_.compute_membership_strengths):
        # Numba's switch for a function that exists; without it, or without a folder to write to, all is
        # compiled as before.
        with contextlib.suppress(AttributeError, RuntimeError):
            function.enable_caching()
    return umap_


def cluster_labels(points: Floats, threshold: float | None, seed: int) -> list[list[int]]:
    """The clusters of each point: those with a probability above ``threshold``, or else the likeliest.

    Their number is the one in 1..min(50, n) - 1 with the lowest BIC. points: shape (n, dim), n >= 2.
    """
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means warns if equal points leave fewer points than clusters
        sizes = range(1, min(MAX_CLUSTERS, len(points)))
        mixtures = [GaussianMixture(n_components=n, random_state=seed).fit(points) for n in sizes]
        best = min(mixtures, key=lambda mixture: mixture.bic(points))
    probabilities = best.predict_proba(points)
    likeliest = probabilities.argmax(axis=1)
    if threshold is None:
        return [[int(label)] for label in likeliest]
    return [
        np.flatnonzero(row > threshold).tolist() or [int(label)]
        for row, label in zip(probabilities, likeliest, strict=True)
    ]
