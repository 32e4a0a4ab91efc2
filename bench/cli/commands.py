"""The subcommands of ``bench``, each in a module of its own name."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "ask": "ask about files of your own: the answer, and where it stands",
    "run": "answer the questions of one data set with one method",
    "sweep": "run methods, data sets and models over grids of options, with a cost estimate first",
    "table": "run the missing cells of a paper's table, then render it",
    "figure": "draw the papers' figures and the Pareto plot, as PNG, SVG and PDF",
    "list": "list methods with their options, datasets, models, tables, or finished cells",
    "report": "write finished cells as one HTML page, with every question",
    "compare": "compare two methods on the same questions: difference, interval, cost, or a judge",
    "show": "print one record in readable form",
    "rm": "remove cells with their records, after listing them",
    "data": "check a file or folder of data, or fetch the full sets",
    "score": "score a file of predictions",
    "model": "describe a model, fetch its files, or count the FLOPs of a forward pass",
    "doctor": "check packages, memory and device, answer one question; or check a served model",
    "ui": "show the finished cells in MLflow on 127.0.0.1",
}
"""Subcommand -> its one-line help; the code is ``bench.cli.<name>.command``."""
