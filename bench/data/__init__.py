"""Benchmark data: from the shipped samples, the hub or any local file to typed examples.

A file is a stream of raw entries (:mod:`bench.data.entries`); a format (:mod:`bench.data.formats`)
recognises them and turns them into examples; a source (:mod:`bench.data.source`) is a path whose format
is known. :func:`load` returns a data set's examples and stops at the first problem; :func:`check` lists
every problem.
"""

from bench.data.checking import Report, check
from bench.data.loading import LoadedData, load

__all__ = ["LoadedData", "Report", "check", "load"]
