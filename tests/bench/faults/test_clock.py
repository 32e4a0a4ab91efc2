"""A clock that jumps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import bench.run.cell_folder
from bench.errors import BenchError
from bench.results.records import Record, read_records
from bench.run.hooks import RunHooks
from tests.bench.faults.runs import rows, run
from tests.stand_ins import examples, stand_in_cell


def test_a_clock_that_jumps_back_changes_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[dict[str, Any]]
) -> None:
    moments = iter(range(2_000_000_000, 0, -86_400))

    class Backwards(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(next(moments), UTC)

    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    monkeypatch.setattr(bench.run.cell_folder, "datetime", Backwards)

    class StopAtTwo(RunHooks):
        answered = 0

        def on_record(self, record: Record) -> None:
            self.answered += 1
            if self.answered == 2:
                raise BenchError("stopped")

    with pytest.raises(BenchError, match="stopped"):
        run(stand_in_cell(examples(6)), tmp_path, hooks=[StopAtTwo()], in_flight=1, timeout_s=60)
    assert run(stand_in_cell(examples(6)), tmp_path, timeout_s=60).answered == 4
    assert rows(tmp_path) == undisturbed
    records = read_records(tmp_path / "cell" / "records.jsonl")
    assert all(0 <= record.wall_s < 60 for record in records), "seconds are of a clock that only goes forward"
