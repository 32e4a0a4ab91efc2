"""Small models are recognised as unfit for text that their generator did not write."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bench.data.format import Parsed
from bench.data.source import open_source
from bench.errors import ConfigError
from bench.files.paths import SAMPLE_SETS
from bench.models.spec import resolve
from bench.results.finished import FinishedCell
from bench.run.cell import CellRequest, plan_cell
from bench.run.fitness import MAX_TOKENS_PER_WORD, tokens_per_word, unfit_models
from bench.run.session import Session
from bench.schema import Document, DocumentSet
from tests.cells import description, summary

REPOSITORY = Path(__file__).parents[3]
PROSE = (REPOSITORY / "README.md").read_text()


def of(text: str) -> list[DocumentSet]:
    return [DocumentSet((Document("", text),))]


@pytest.mark.parametrize("path", sorted(SAMPLE_SETS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_generated_documents_are_read_by_the_small_models(path: Path) -> None:
    items = [item for item in open_source(path).examples() if isinstance(item, Parsed)]
    sets = [item.example.documents for item in items[::10]]
    worst = max(tokens_per_word("\n".join(d.text for d in group.documents)[:2_000]) for group in sets)
    assert worst < MAX_TOKENS_PER_WORD - 0.1
    assert unfit_models([resolve("tiny")], sets) == ()


@pytest.mark.parametrize("path", ["README.md", "LICENSE"])
def test_other_text_is_not(path: str) -> None:
    text = (REPOSITORY / path).read_text()
    assert tokens_per_word(text) > MAX_TOKENS_PER_WORD + 0.3
    assert unfit_models([resolve("tiny"), resolve("tiny-s")], of(text)) == ("tiny", "tiny-s")
    assert unfit_models([resolve("qwen2.5-coder-0.5b")], of(text)) == ()


def test_real_data_are_not(real_data: Path) -> None:
    for path in sorted(real_data.glob("*.jsonl")):
        items = (item for item in open_source(path).examples() if isinstance(item, Parsed))
        documents = [item.example.documents for _, item in zip(range(5), items, strict=False)]
        assert unfit_models([resolve("tiny")], documents), path


def test_the_default_reader_refuses_foreign_text_and_a_named_one_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "bench.run.session.run_group",
        lambda cells, *_: [FinishedCell(cells[0].folder(tmp_path), description(), summary())],
    )
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"question": "What is it?", "documents": [PROSE]}))
    session = Session(tmp_path)
    unnamed = plan_cell(CellRequest(data=str(path), model_named=False).of("bm25", ""))
    with pytest.raises(ConfigError, match=r"tiny reads only text like(.|\n)*--model qwen2.5-coder-0.5b"):
        session.run(unnamed)
    named = plan_cell(CellRequest(data=str(path)).of("bm25", ""))
    with caplog.at_level(logging.WARNING):
        session.run(named)
    assert "so the answers mean nothing" in caplog.text
    assert named.unfit == ("tiny",)
    assert plan_cell(CellRequest(limit=1, model_named=False).of("bm25", "qasper")).unfit == ()
    path.write_text(json.dumps({"dataset": "qasper", "question": "What is it?", "documents": [PROSE]}))
    monkeypatch.setattr("bench.data.hub.fetch", lambda *_, **__: [path])
    assert plan_cell(CellRequest(data="hub").of("bm25", "qasper")).unfit == ("tiny",)
