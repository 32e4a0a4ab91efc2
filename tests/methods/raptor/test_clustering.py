from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from methods.raptor import clustering
from methods.raptor.clustering import cluster_labels, hard_clusters, soft_clusters

LONG = 10**6


def _texts(n: int, kind: str, dim: int = 16) -> NDArray[np.float32]:
    if kind in ("equal", "zero"):
        return np.full((n, dim), kind == "equal", np.float32)
    return np.random.default_rng(7).normal(size=(n, dim)).astype(np.float32)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP out of the way: a text's own first coordinate is its reduced embedding."""
    monkeypatch.setattr(
        clustering, "reduced", lambda embeddings, neighbours, seed: embeddings[:, :1].astype(np.float64)
    )


def _on_line(*places: float) -> NDArray[np.float32]:
    return np.array([[place, 1.0] for place in places], np.float32)


@pytest.mark.parametrize("kind", ["random", "equal", "zero"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 11, 12, 14, 40])
@pytest.mark.parametrize("max_tokens", [LONG, 35])
def test_every_text_has_a_group_and_no_group_is_too_long(n: int, kind: str, max_tokens: int) -> None:
    embeddings, tokens = _texts(n, kind), [10] * n
    soft = soft_clusters(embeddings, tokens, max_tokens=max_tokens, seed=3)
    hard = hard_clusters(embeddings, tokens, max_tokens=max_tokens, seed=3)
    assert {i for group in soft for i in group} == set(range(n))
    assert sorted(i for group in hard for i in group) == list(range(n)), "one group a text"
    for groups in (soft, hard):
        assert groups == sorted(set(groups))
        assert all(list(group) == sorted(set(group)) for group in groups)
        assert all(len(group) * 10 <= max_tokens for group in groups)


def test_up_to_eleven_texts_are_one_group_and_twelve_are_clustered() -> None:
    two_topics = np.concatenate([_texts(6, "random"), -_texts(6, "random")]) + 0.01 * _texts(12, "random")
    assert soft_clusters(two_topics[:11], [1] * 11, max_tokens=LONG, seed=0) == [tuple(range(11))]
    assert len(soft_clusters(two_topics, [1] * 12, max_tokens=LONG, seed=0)) > 1


def test_umap_is_compiled_for_any_processor() -> None:
    # With the instructions of the processor at hand, 8 of 20 drawn sets of texts were clustered otherwise.
    clustering.reduced(_texts(12, "random"), 3, seed=0)
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    assert (name, features) == ("generic", "")


def test_symmetric_texts_are_laid_out_the_same_each_time() -> None:
    # Lanczos steps break down on them; scipy goes on from a vector drawn from the system's entropy.
    turn = np.arange(24) * np.pi / 12
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=1).astype(np.float32)
    assert len({clustering.reduced(ring, 3, seed=0).tobytes() for _ in range(3)}) == 1


@pytest.mark.parametrize("part", ["distances", "start"])
def test_differences_below_rounding_miss_the_layout(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.metrics import pairwise
    from umap import spectral

    texts = _texts(30, "random")
    places = {"distances": (pairwise, "cosine_distances"), "start": (spectral, "spectral_layout")}
    module, name = places[part]
    exact, noise = getattr(module, name), np.random.default_rng(1)

    def on_another_processor(*args: object, **options: object) -> NDArray[np.float64]:
        values = exact(*args, **options)
        return values + noise.uniform(-1e-14, 1e-14, values.shape) * np.abs(values)

    points = clustering.reduced(texts, 5, seed=0)
    monkeypatch.setattr(module, name, on_another_processor)
    assert np.array_equal(clustering.reduced(texts, 5, seed=0), points)
    monkeypatch.setattr(clustering, "DECIMALS", 17)
    assert not np.array_equal(clustering.reduced(texts, 5, seed=0), points), "unrounded, it is amplified"


def test_the_layout_is_the_one_that_umaps_own_class_makes() -> None:
    umap = pytest.importorskip("umap")
    from sklearn.metrics.pairwise import cosine_distances

    texts, start = _texts(30, "random"), np.random.default_rng(3).normal(size=(30, 10)).astype(np.float32)
    umap_ = clustering._umap()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(umap_, "noisy_scale_coords", lambda *_: start)
        points = clustering.reduced(texts, 5, seed=4)
    distances = np.round(cosine_distances(texts.astype(np.float64)), clustering.DECIMALS)
    settings = {"n_neighbors": 5, "n_components": 10, "metric": "precomputed"}
    own = umap.UMAP(**settings, init=start, random_state=4, n_jobs=1).fit_transform(distances)
    assert np.array_equal(points, own.astype(np.float64))


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_keeps_its_number_of_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # When numba first runs it leaves OpenMP, and so torch, with a thread per core: on a busy machine
    # generation became 60 times slower. It does so once a process, hence the stand-in.
    import torch

    def as_numba_does(embeddings: NDArray[np.float32], neighbours: int, seed: int) -> NDArray[np.float64]:
        torch.set_num_threads(7)
        return embeddings[:, :2].astype(np.float64)

    monkeypatch.setattr(clustering, "reduced", as_numba_does)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        soft_clusters(_texts(14, "random"), [1] * 14, max_tokens=LONG, seed=0)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threshold", "joined"),
    [(0.1, 2), (None, 1), (0.9, 1)],  # no cluster claims it with more than 0.9: it joins the likeliest
)
def test_a_text_between_two_clusters_joins_both_and_none_is_left_out(
    threshold: float | None, joined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two clusters of the same shape around -4 and 4: the point at 0 belongs to either with 0.5.
    monkeypatch.setattr(clustering, "range", lambda low, high: [2], raising=False)
    around = [-6.0, -5.0, -4.0, -3.0, -2.0]
    points = np.array([*around, 0.0, *(-x for x in reversed(around))])[:, None]
    labels = cluster_labels(points, threshold, 0)
    assert len(labels[5]) == joined and set(labels[0] + labels[10]) == {0, 1}
    assert len(labels[0]) == len(labels[10]) == 1


def test_bic_finds_the_number_of_clusters() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(center, 0.1, size=(20, 2)) for center in (0.0, 5.0, 10.0)])
    labels = cluster_labels(points, 0.1, 0)
    assert len({tuple(its) for its in labels}) == 3
    assert all(labels[i] == labels[20 * (i // 20)] for i in range(60))


@pytest.mark.usefixtures("line")
def test_large_clusters_are_clustered_once_more_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three blobs of 13; the first look at everything is blurred, so that it sees two of them as one.
    blurred: list[int] = []

    def labels(points: NDArray[np.float64], threshold: float | None, seed: int) -> list[list[int]]:
        blurred.append(len(points))
        return [[int(place > (50 if len(points) == 39 else 25))] for place in points[:, 0]]

    monkeypatch.setattr(clustering, "cluster_labels", labels)
    embeddings = _on_line(*range(13), *range(30, 43), *range(100, 113))
    groups = soft_clusters(embeddings, [1] * 39, max_tokens=LONG, seed=0)
    assert groups == [tuple(range(13)), tuple(range(13, 26)), tuple(range(26, 39))]
    assert blurred == [39, 26, 13], "all of them, then each cluster of more than eleven"


@pytest.mark.usefixtures("line")
@pytest.mark.parametrize(
    ("sizes", "max_tokens", "expected"),
    [
        ([3, 3, 3, 3, 3], 6, [(0, 1), (2, 3), (4,)]),
        ([9, 1, 1], 5, [(0,), (1, 2)]),  # a single text may be longer
        ([5, 5], 10, [(0, 1)]),
    ],
)
def test_a_long_group_is_cut(sizes: list[int], max_tokens: int, expected: list[tuple[int, ...]]) -> None:
    assert hard_clusters(_on_line(*range(len(sizes))), sizes, max_tokens=max_tokens, seed=0) == expected


@pytest.mark.usefixtures("line")
def test_a_long_cluster_is_divided_by_similarity_and_by_length_where_that_does_not_divide_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def labels(points: NDArray[np.float64], threshold: float | None, seed: int) -> list[list[int]]:
        calls.append(len(points))
        if len(points) == 14:  # everything: 8 and 6
            return [[int(place > 7)] for place in points[:, 0]]
        if len(points) == 8:  # the long one again: 5 and 3
            return [[int(place > 4)] for place in points[:, 0]]
        return [[0] for _ in points]  # 5 of them do not divide further

    monkeypatch.setattr(clustering, "cluster_labels", labels)
    groups = soft_clusters(_on_line(*range(14)), [10] * 8 + [1] * 6, max_tokens=30, seed=0)
    assert groups == [(0, 1, 2), (3, 4), (5, 6, 7), (8, 9, 10, 11, 12, 13)]
    assert calls == [14, 8, 5]
