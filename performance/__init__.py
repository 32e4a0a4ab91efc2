"""Speed and memory, measured: ``make performance``, or ``python -m performance [NAME ...]``.

One module per subject, each with ``measure(quick)``, a list of :class:`~performance.report.Measurement`; its
docstring is what the report says about it. They share :mod:`measuring <performance.measuring>` (time by
turns, peak memory, processes of their own), :mod:`drawn <performance.drawn>` (random models and searches),
:mod:`workloads <performance.workloads>` (questions of the sample sets),
:mod:`plain <performance.plain>` (the same work on plain transformers) and :mod:`report <performance.report>`
(``results/NAME.json`` and ``RESULTS.md``).

What is compared runs in one process, by turns, so that a busy machine slows both sides. Nothing here is a
test: a missed target is reported as missed, and fails nothing.
"""

NAMES = (
    "capture",
    "serving",
    "real_reader",
    "prefix",
    "grid",
    "straight",
    "raptor",
    "ranking",
    "longllmlingua",
    "imports",
    "contention",
    "gpu",
)
"""What ``make performance`` runs, in the order of the report."""

LONG = ("scale", "long_document", "memory", "table1", "passes", "engines")
"""Benchmarks that are run by name only, as they take long; so does ``python -m performance.crashes``."""
