"""Lines of our own format, and files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def line(number: int, **changes: Any) -> dict[str, Any]:
    """A question about one document."""
    return {
        "id": f"q{number}",
        "dataset": "qasper",
        "task": "qa",
        "question": f"Question {number}?",
        "answers": ["yes"],
        "documents": [{"title": "T", "text": "The same text."}],
        **changes,
    }


def write(path: Path, *lines: dict[str, Any]) -> Path:
    """The file, which holds these lines."""
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path
