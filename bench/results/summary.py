"""The summary of a finished cell: means with intervals, cost, and counts of failures, cuts and flags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from bench.metrics import CorpusMetric, QuestionMetric, get_metrics
from bench.metrics.retrieval import RETRIEVAL_MEASURES
from bench.metrics.scoring import question_counts, question_scores
from bench.metrics.statistics import Interval, clustered_bootstrap, clustered_bootstrap_of
from bench.results.models import Summary, TokenMeans
from bench.results.records import Record, error_kind, index_costs

SUMMARY_VERSION = 4


def summarize(
    records: Sequence[Record], metrics: Sequence[str], *, cell_id: str = "", records_sha256: str = ""
) -> Summary:
    """The summary of a cell's records; a pure function of them.

    Intervals are 95 %, documents resampled. Means of FLOPs and tokens are over all questions, failed ones
    included with what they spent. ``index_flops`` is the mean over document sets, each counted once.
    cell_id, records_sha256: the cell and the hash of its records file. Raises ValueError if there are no
    records. Scores are over the questions that have a reference answer; where none has, there are none.
    """
    if not records:
        raise ValueError("Cannot summarize zero records.")
    clusters = [" ".join(record.document_ids) for record in records]
    scored = [record for record in records if record.answers]
    unscored = len(records) - len(scored)
    scored_clusters = [" ".join(record.document_ids) for record in scored]
    intervals: dict[str, Interval] = {}
    for metric in get_metrics(metrics) if scored else ():
        if isinstance(metric, CorpusMetric):
            rows = np.stack([question_counts(r.prediction, r.answers, metric, r.drawn) for r in scored])
            rng = np.random.default_rng([0, len(scored)])
            interval = clustered_bootstrap_of(rows, scored_clusters, metric.value, rng=rng)
        else:
            interval = mean_of([_score(r, metric) for r in scored], scored_clusters)
        intervals[metric.name] = interval
    retrieval = {name: _measured(name, records) for name in RETRIEVAL_MEASURES}
    indexes = index_costs(records)
    return Summary(
        summary_version=SUMMARY_VERSION,
        cell_id=cell_id,
        records_sha256=records_sha256,
        n=len(records),
        n_documents=len(indexes),
        n_failed=sum(r.error is not None for r in records),
        n_truncated=sum(r.truncated for r in records),
        **({"n_unscored": unscored} if unscored else {}),
        metrics=intervals,
        retrieval={name: interval for name, interval in retrieval.items() if interval is not None},
        query_flops=mean_of([float(r.flops.query) for r in records], clusters),
        index_flops=float(np.mean([index.index for index in indexes])),
        flop_convention=records[0].flops.convention,
        tokens=TokenMeans(
            prompt=float(np.mean([r.tokens.prompt for r in records])),
            completion=float(np.mean([r.tokens.completion for r in records])),
            forwarded=float(np.mean([r.tokens.forwarded for r in records])),
        ),
        context_items=float(np.mean([len(r.context) for r in records])),
        wall_s=float(np.mean([r.wall_s for r in records])),
        flags=_counted(flag for r in records for flag in r.flags),
        errors=_counted(error_kind(r.error) for r in records if r.error is not None),
    )


def _score(record: Record, metric: QuestionMetric) -> float:
    """The record's score; computed now if the card did not have the metric then."""
    if metric.name in record.scores:
        return record.scores[metric.name]
    return question_scores(record.prediction, record.answers, [metric], record.drawn)[metric.name]


def _measured(name: str, records: Sequence[Record]) -> Interval | None:
    """The interval of a measure of the contexts; ``n`` counts the questions that have it.

    None if no answered question has it. Failed questions, which have no context, count 0 along with answered
    ones.
    """
    defined = [record for record in records if name in record.retrieval]
    if all(record.error is not None for record in defined):
        return None
    clusters = [" ".join(record.document_ids) for record in defined]
    interval = mean_of([record.retrieval[name] for record in defined], clusters)
    return interval.model_copy(update={"n": len(defined)})


def mean_of(values: Sequence[float], clusters: Sequence[str]) -> Interval:
    """The mean of a value per question with its 95 % interval; clusters: the documents of each question."""
    return clustered_bootstrap(values, clusters, rng=np.random.default_rng([0, len(values)]))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
