"""The formats in which data sets are distributed: one module per format or family.

``FORMATS`` is the registry, most specific first: the first format that recognises an entry wins, unless a
card names another one that does.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.data.entries import Entry
from bench.data.format import Format
from bench.data.formats import (
    academic_eval,
    bench_lines,
    booksum,
    document_summary,
    hotpotqa,
    longbench,
    longbench_v2,
    musique,
    narrativeqa,
    qasper,
    qmsum,
    squality,
    wcep,
)

FORMATS: tuple[Format, ...] = (
    bench_lines.BENCH,
    longbench_v2.LONGBENCH_V2,
    longbench.LONGBENCH,
    musique.MUSIQUE,
    qasper.QASPER_COLUMNAR,
    qasper.QASPER_RELEASE,
    narrativeqa.NARRATIVEQA_HUB,
    narrativeqa.NARRATIVEQA_RELEASE,
    hotpotqa.HOTPOTQA_COLUMNAR,
    hotpotqa.HOTPOTQA,
    qmsum.QMSUM,
    qmsum.QMSUM_SPEAKERS,
    squality.SQUALITY,
    booksum.BOOKSUM,
    wcep.WCEP,
    academic_eval.ACADEMIC_EVAL,
    document_summary.DOCUMENT_SUMMARY,
)


def recognise(entry: Entry, named: Sequence[str] = ()) -> Format | None:
    """The format of an entry, one of the ``named`` if it can be; None if no format recognises it."""
    candidates = [format for format in FORMATS if format.recognises(entry)]
    return next((one for one in candidates if one.name in named), candidates[0] if candidates else None)
