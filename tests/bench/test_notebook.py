"""The notebook of the docs runs from top to bottom, and its tables hold what the summaries say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "own_plots.ipynb"


def test_it_runs_and_agrees_with_the_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), "clear the outputs: they are somebody's machine"
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("QUESTIONS = 24", "QUESTIONS = 6")
            exec(compile(source, str(NOTEBOOK), "exec"), names)
    means = names["questions"].groupby("method")[["F1", "GFLOPs"]].mean()
    for label, result in names["cells"].items():
        assert means.loc[label, "F1"] == pytest.approx(100 * result.summary.metrics["f1"].mean)
        assert means.loc[label, "GFLOPs"] == pytest.approx(1e3 * result.summary.tflops)
    labels = {text.get_text() for text in names["axes"].texts}
    assert labels == set(names["METHODS"])
