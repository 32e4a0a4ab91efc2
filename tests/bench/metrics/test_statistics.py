import numpy as np
import pytest

from bench.metrics.bleu import bleu_statistics, corpus_bleu_4
from bench.metrics.statistics import clustered_bootstrap, clustered_bootstrap_of


def _rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def _questions(rng: np.random.Generator, documents: int, share: float) -> tuple[np.ndarray, list[str]]:
    """Scores whose document effect has variance ``share``, with 1 to 6 questions a document."""
    values, ids = [], []
    for d in range(documents):
        effect = rng.normal(scale=share**0.5)
        for _ in range(rng.integers(1, 7)):
            values.append(effect + rng.normal(scale=(1 - share) ** 0.5))
            ids.append(f"d{d}")
    return np.array(values), ids


def test_the_interval_is_that_of_a_plain_loop_over_resampled_documents() -> None:
    values, ids = _questions(_rng(1), documents=12, share=0.5)
    documents = sorted(set(ids))
    by_document = [[v for v, i in zip(values, ids, strict=True) if i == d] for d in documents]
    rng = _rng()
    means = []
    for _ in range(300):
        picked = rng.integers(len(documents), size=len(documents))
        means.append(np.mean([v for p in picked for v in by_document[p]]))
    interval = clustered_bootstrap(values, ids, rng=_rng(), n_resamples=300)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(np.quantile(means, 0.025))
    assert interval.high == pytest.approx(np.quantile(means, 0.975))
    assert interval.reason == ""


def test_95_percent_intervals_cover_the_truth_where_questions_share_documents() -> None:
    rng = _rng(3)
    covered = naive = 0
    for _ in range(300):
        values, ids = _questions(rng, documents=40, share=0.6)
        ours = clustered_bootstrap(values, ids, rng=rng, n_resamples=400)
        alone = clustered_bootstrap(values, [str(i) for i in range(len(ids))], rng=rng, n_resamples=400)
        covered += ours.low <= 0 <= ours.high
        naive += alone.low <= 0 <= alone.high
    assert 0.90 <= covered / 300 <= 0.98
    assert naive / 300 < 0.85  # resampling questions claims more than it knows


def test_the_order_of_the_questions_does_not_matter_and_the_seed_decides() -> None:
    values, ids = _questions(_rng(5), documents=15, share=0.5)
    order = _rng(6).permutation(len(ids))
    once = clustered_bootstrap(values, ids, rng=_rng())
    shuffled = clustered_bootstrap(values[order], [ids[i] for i in order], rng=_rng())
    assert (shuffled.low, shuffled.high) == (pytest.approx(once.low), pytest.approx(once.high))
    assert clustered_bootstrap(values, ids, rng=_rng()) == once
    assert clustered_bootstrap(values, ids, rng=_rng(8)).low != once.low


@pytest.mark.parametrize(
    ("values", "reason"), [([0, 1, 1, 0], "all 4 questions share one document"), ([1], "one question only")]
)
def test_one_document_gives_a_mean_and_a_reason_for_no_interval(values: list[float], reason: str) -> None:
    interval = clustered_bootstrap(values, ["d"] * len(values), rng=_rng())
    assert interval.mean == np.mean(values)
    assert interval.low is None and interval.high is None and reason in interval.reason


def test_bleu_intervals_rescore_the_resampled_corpus() -> None:
    rng = _rng(11)
    words = "the old mill by river stone Anna".split()
    references = [" ".join(rng.choice(words, size=8)) for _ in range(20)]
    predictions = [" ".join(r.split()[: rng.integers(0, 9)]) for r in references]
    ids = [f"d{i % 6}" for i in range(20)]
    counts = [bleu_statistics(p, [r]) for p, r in zip(predictions, references, strict=True)]
    draws, rng = [], _rng()
    for _ in range(200):
        picked = [f"d{p}" for p in rng.integers(6, size=6)]
        resampled = [counts[q] for d in picked for q in range(20) if ids[q] == d]
        draws.append(corpus_bleu_4(np.sum(resampled, axis=0)))
    interval = clustered_bootstrap_of(counts, ids, corpus_bleu_4, rng=_rng(), n_resamples=200)
    assert interval.mean == float(corpus_bleu_4(np.sum(counts, axis=0)))
    assert (interval.low, interval.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]))
    assert interval.low < interval.high


@pytest.mark.parametrize(
    ("values", "ids", "message"),
    [
        ([], [], "Cannot average zero questions"),
        ([1, 2], ["a"], "2 questions but 1 document ids"),
        ([1, float("nan")], ["a", "b"], "question 1 is not finite"),
    ],
)
def test_wrong_arguments_are_refused(values: list[float], ids: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clustered_bootstrap(values, ids, rng=_rng())
