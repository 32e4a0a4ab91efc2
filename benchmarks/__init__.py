"""Speed and memory, measured: ``make bench``, or ``python -m benchmarks [NAME ...]``.

One module per subject, each with ``measure(quick)``, a list of :class:`~benchmarks.report.Measurement`; its
docstring is what the report says about it. They share :mod:`measuring <benchmarks.measuring>` (time by
turns, peak memory, processes of their own), :mod:`workloads <benchmarks.workloads>` (models and questions),
:mod:`plain <benchmarks.plain>` (the same work on plain transformers) and :mod:`report <benchmarks.report>`
(``results/NAME.json`` and ``RESULTS.md``).

What is compared runs in one process, by turns, so that a busy machine slows both sides. Nothing here is a
test: a missed target is reported as missed, and fails nothing.
"""

NAMES = (
    "capture",
    "serving",
    "grid",
    "straight",
    "raptor",
    "ranking",
    "longllmlingua",
    "imports",
    "gpu",
)
"""What ``make bench`` runs, in the order of the report."""

LONG = ("scale", "long_document")
"""Benchmarks that are run by name only, as they take long; so does ``python -m benchmarks.crashes``."""
