from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.metrics.auroc import auroc


def test_it_is_the_area_under_the_curve_with_ties_as_half() -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(200) < 0.4
    confidences = np.round(rng.random(200) * 0.7 + 0.3 * truth, 1)
    documents = [str(at // 4) for at in range(200)]
    area = auroc(confidences, truth.tolist(), documents, rng=rng)
    assert area.mean == pytest.approx(roc_auc_score(truth, confidences))
    assert area.low < area.mean < area.high


def test_the_interval_is_that_of_resampled_documents() -> None:
    """Against drawing documents one by one, as its definition has it."""
    rng = np.random.default_rng(5)
    truth = rng.random(60) < 0.5
    confidences = rng.random(60) + 0.5 * truth
    document = np.repeat(np.arange(12), 5)
    interval = auroc(confidences, truth.tolist(), document.astype(str).tolist(), rng=rng)
    drawn = []
    for _ in range(2000):
        picked = np.concatenate([np.flatnonzero(document == d) for d in rng.integers(0, 12, 12)])
        yes, no = confidences[picked][truth[picked]], confidences[picked][~truth[picked]]
        if len(yes) and len(no):
            drawn.append(np.mean(yes[:, None] > no))
    assert (interval.low, interval.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)


def test_pairs_are_of_one_stratum_without_one_there_is_no_area_and_of_one_document_no_interval() -> None:
    rng, cases = np.random.default_rng(0), ([0.1, 0.2, 0.8, 0.9], [False, True] * 2, list("abcd"))
    assert [auroc(*cases, strata, rng=rng).mean for strata in (0, [0, 0, 1, 1])] == [0.75, 1.0]
    assert auroc([0.1, 0.9], [True, True], ["a", "b"], rng=rng) is None
    one = auroc([0.1, 0.9], [False, True], ["a", "a"], rng=rng)
    assert one is not None and (one.mean, one.low) == (1.0, None) and "share one document" in one.reason
