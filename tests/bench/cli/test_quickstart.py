from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import command as bench
from bench.figures import make
from bench.tables import definition
from bench.tables.definition import Row, TableDefinition

SMALL = TableDefinition(
    id="small",
    title="One way to read",
    source="this test",
    datasets=("hotpotqa",),
    questions={"hotpotqa": 2},
    metrics=("f1",),
    notes=("BM25 reads one passage",),
    rows=(
        Row(id="bm25", label="BM25", method="bm25", set={"k": 1}),
        Row(id="closed_book", label="Nothing", method="closed_book"),
    ),
)


def test_the_first_table_its_explanation_one_question_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (definition, make):
        monkeypatch.setattr(module, "load_table", lambda name: SMALL)
    done = CliRunner().invoke(bench, ["quickstart", "--results", str(tmp_path), "--no-track"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    row = next(line for line in lines if line.startswith("BM25 "))
    assert row.split()[-1] == "2"
    assert "BM25 reads one passage" in lines
    after = lines[next(at for at, line in enumerate(lines) if line.startswith("One of the questions")) :]
    assert [line.split()[0] for line in after[1:4]] == ["reference", "BM25", "Nothing"]
    assert (tmp_path / "figures" / "quickstart.png").is_file()
