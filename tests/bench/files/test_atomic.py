from __future__ import annotations

from pathlib import Path

import pytest

from bench.files.atomic import replacing, write_json


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"k": 1})
    with pytest.raises(RuntimeError), replacing(path) as handle:
        handle.write("half of it")
        raise RuntimeError
    assert path.read_text() == '{\n  "k": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_numbers_that_json_has_no_word_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"k": float("nan")})
    assert list(tmp_path.iterdir()) == []
