"""MLflow as a mirror: the records under ``results/`` are the truth, a tracking store shows them.

One finished cell folder (``cell.json``, ``records.jsonl``, ``summary.json``) becomes one MLflow run::

    cell finished ──hooks──▶ python -m bench.tracking.sync ──content, mirror──▶ MLflow store ──ui──▶ browser

MLflow is only imported in a separate process: the run can abandon a tracking server that hangs, and a run
that has nothing to report does not pay for the import.
"""
