"""The generated set for summarisation: the committed bytes, its shape, and references that are true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training.generator import write_summary_samples
from training.generator.summaries import DATASET, PARTS, summary_rows

COMMITTED = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.fixture(scope="module")
def parts() -> dict[str, list[dict[str, Any]]]:
    return {part: summary_rows(part) for part in PARTS}


def full_text(row: dict[str, Any]) -> str:
    return "\n\n".join(f"{d['title']}\n{d['text']}" for d in row["documents"])


def test_writing_twice_gives_the_committed_bytes(tmp_path: Path) -> None:
    first, second = write_summary_samples(tmp_path / "a"), write_summary_samples(tmp_path / "b")
    assert [path.stem for path in first] == ["chronicles", "chronicles_train"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes() == (COMMITTED / one.name).read_bytes()
    assert summary_rows(DATASET, seed=1)[0]["answers"] != summary_rows(DATASET)[0]["answers"]


def test_every_name_of_a_reference_is_told_in_the_documents(parts: dict[str, list[dict[str, Any]]]) -> None:
    for row in (row for rows in parts.values() for row in rows):
        text = full_text(row)
        for answer in row["answers"]:
            names = {word for word in answer.replace(".", "").replace(",", "").split() if word[0].isupper()}
            assert names and all(name in text for name in names)
