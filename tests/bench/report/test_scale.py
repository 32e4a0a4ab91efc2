"""What must not grow with the store: open files are allowed for, records stay on disk, names stay linear."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.files.atomic import allow_open_files
from bench.results.records import Record, RecordStore, read_records
from performance.scale import _large_cell

MANY_CELLS = """
import resource, sys
sys.modules.update(sklearn=None, pandas=None)  # NLTK imports them if it can, which takes seconds
from pathlib import Path
from bench.results.index_store import IndexStore
from tests.stand_ins import run_cells
from tests.stand_ins import WordModels, examples, stand_in_cell
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))
cell, folder = stand_in_cell(examples(1)), Path(sys.argv[1])
found = run_cells([(cell, folder / str(at)) for at in range(150)], IndexStore(folder / "i"), WordModels)
assert len(found) == 150 and all(result.answered == 1 for result in found)
"""


def test_more_cells_than_a_process_may_hold_open_by_default(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY_CELLS, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_more_than_the_system_allows_is_an_error_that_says_so() -> None:
    with pytest.raises(BenchError, match="and the system allows .* Run fewer"):
        allow_open_files(2**40)


def test_an_open_store_holds_no_record(tmp_path: Path) -> None:
    def records() -> int:
        return sum(isinstance(item, Record) for item in gc.get_objects())

    folder = _large_cell(tmp_path / "cell", 200, 0)
    gc.collect()
    before = records()
    with RecordStore(folder) as store:
        assert records() == before and len(store.done) == 200
        assert store.done["q199"].question == "question 199?"
        store.put_in_order([f"q{at}" for at in reversed(range(200))])
        assert records() == before
    assert [record.example_id for record in read_records(folder / "records.jsonl")][:2] == ["q199", "q198"]
