from pathlib import Path

from click.testing import CliRunner

from bench.cli.main import command
from bench.run.cell import CellRequest
from tests.bench.report.finished import finish


def listed(*arguments: str) -> str:
    return CliRunner().invoke(command, ["list", *arguments], catch_exceptions=False).output


def test_finished_cells_with_their_folders(tmp_path: Path) -> None:
    assert "no finished cell" in listed("cells", "--results", str(tmp_path))
    cell = finish(tmp_path, CellRequest("bm25", "hotpotqa", limit=2), (1, 0))
    heading, line, _ = listed("cells", "--results", str(tmp_path)).splitlines()
    assert heading == "hotpotqa (sample), tiny"
    assert line.split("  ")[1:] == ["bm25", f"2 questions, {cell.folder(tmp_path)}"]
