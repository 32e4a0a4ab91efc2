import json
from pathlib import Path
from typing import Any

from training.card import joined


def logged(step: int, share: float) -> dict[str, Any]:
    return {"step": step, "tokens": step * 100_000, "seconds": step * 72, "right": {"one@256": [share, 40]}}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    return path


def test_what_was_done_again_replaces_what_was_logged_before(tmp_path: Path) -> None:
    first = written(tmp_path / "a", [logged(25, 0.1), logged(50, 0.2), logged(75, 0.3), logged(50, 0.25)])
    branch = written(tmp_path / "b", [logged(75, 0.9)])

    assert [(x["step"], x["right"]["one@256"][0]) for x in joined([first, branch])] == [
        (25, 0.1),
        (50, 0.25),
        (75, 0.9),
    ]


def test_a_run_from_exported_weights_counts_on(tmp_path: Path) -> None:
    first = written(tmp_path / "a", [logged(25, 0.1), logged(50, 0.2)])
    next_ = written(tmp_path / "b", [logged(25, 0.3), logged(50, 0.4)])

    assert [(x["step"], x["tokens"], x["seconds"]) for x in joined([first, next_])] == [
        (25, 2_500_000, 1800),
        (50, 5_000_000, 3600),
        (75, 7_500_000, 5400),
        (100, 10_000_000, 7200),
    ]
