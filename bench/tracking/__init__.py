"""MLflow as a mirror: the records under ``results/`` are the truth, a tracking store shows them.

One finished cell folder (``cell.json``, ``records.jsonl``, ``summary.json``) becomes one MLflow run::

    cell finished ──hooks──▶ python -m bench.tracking.sync ──content, mirror──▶ MLflow store ──ui──▶ browser

MLflow itself lives in a process of its own: a tracking server that hangs can be left behind, and a run that
has nothing to report never imports it.
"""

from __future__ import annotations

from bench.tracking.store import choose_store, local_store, public_uri

__all__ = ["choose_store", "local_store", "public_uri"]
