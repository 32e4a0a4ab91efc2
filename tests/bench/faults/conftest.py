from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.faults.runs import rows, run
from tests.stand_ins import examples, stand_in_cell


@pytest.fixture
def undisturbed(tmp_path: Path) -> list[dict[str, Any]]:
    run(stand_in_cell(examples(6)), tmp_path / "undisturbed")
    return rows(tmp_path / "undisturbed")
