"""``python -m tests.bench.faults.crash_driver FOLDER``: a run cut at every step that leaves a trace.

The work (two cells that share searches and indexes, then their table) is done in forked children. One is
left alone and counts its steps: every system call that changes a file, and every call of the model. Then,
for each step, a child is killed there with SIGKILL, a second one a few steps into going on, and a third
one finishes. The same with a disk that is full from that step on, which must end the run with a clear error.
Prints, as JSON, the number of steps and where something came out differently.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench.run.cell_folder
import tests.cells
from bench.files.atomic import WriteError, write_text
from bench.results.finished import read_finished
from bench.results.index_store import IndexStore
from bench.tables.cells import TableCell
from bench.tables.definition import Row
from bench.tables.render import render
from tests.bench.faults.runs import records_of
from tests.stand_ins import WordModel, WordModels, examples, run_cells, stand_in_cell


def work(folder: Path) -> None:
    """Index, search, write, summarise, render."""
    bench.run.cell_folder.environment = lambda: {"git_commit": "0"}  # the commit may change meanwhile
    cells = []
    for suffix in ("a", "b"):
        cell = stand_in_cell(examples(4), {"suffix": suffix})
        cell.method.index_options = lambda: {}
        cells.append((cell, folder / suffix))
    results = run_cells(cells, IndexStore(folder / "indexes"), WordModels, in_flight=2)
    rows = [Row(id=suffix, label=suffix, method="echo") for suffix in ("a", "b")]
    shown = [TableCell(row, "toy", read_finished(r.folder)) for row, r in zip(rows, results, strict=True)]
    rendered = render(tests.cells.table(*shown), {})
    for suffix, text in (("md", rendered.markdown()), ("tex", rendered.latex()), ("csv", rendered.csv)):
        write_text(folder / "tables" / f"t.{suffix}", text)


FULL = 3
"""Exit status of a child whose disk was full, and that said so."""
_TAKE_ROOM = {"write", "fsync", "write_bytes"}


def counted(die_at: int, full: bool) -> dict[str, int]:
    """From now on steps are counted, and the ``die_at``-th kills this process; 0: none does.

    full: the disk is full from there on, instead.
    """
    steps: dict[str, int] = {}

    def step(name: str, half: Callable[[], Any] | None = None) -> None:
        steps[name] = steps.get(name, 0) + 1
        past = sum(steps.values()) - die_at
        if not die_at or past < 0 or (full and name not in _TAKE_ROOM):
            return
        if half is not None and past == 0:
            half()
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner: Any, name: str, real: Callable[..., Any] | None = None) -> None:
        real = real or getattr(owner, name)

        def stepping(*arguments: Any, **options: Any) -> Any:
            step(name)
            return real(*arguments, **options)

        setattr(owner, name, stepping)

    write = os.write

    def torn(descriptor: int, content: Any) -> int:
        step("write", lambda: write(descriptor, bytes(content)[: len(content) // 2]))
        return write(descriptor, content)

    setattr(os, "write", torn)  # noqa: B010 - the types know better
    before(os, "fsync", lambda descriptor: None)  # a killed process loses nothing that the kernel has
    before(os, "ftruncate")
    before(WordModel, "generate")
    for name in ("replace", "rename", "write_bytes", "unlink"):
        before(Path, name)
    return steps


def child(folder: Path, die_at: int, full: bool = False) -> int:
    """The exit status of a child that works in ``folder``; it leaves its steps there when it is done."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            steps = counted(die_at, full)
            work(folder)
            (folder / "steps.json").write_text(json.dumps(dict(steps)))
            status = 0
        except WriteError:
            status = FULL
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on how often a run was cut."""
    seen: dict[str, Any] = {}
    for cell in ("a", "b"):
        seen[cell] = records_of(folder / cell)
        seen[f"files of {cell}"] = sorted(
            path.name for path in (folder / cell).iterdir() if path.name != "records.damaged.jsonl"
        )
    for table in sorted((folder / "tables").glob("t.*")):
        seen[table.name] = table.read_text("utf-8")
    indexes = (folder / "indexes" / "echo").glob("[!.]*/*")
    seen["indexes"] = sorted((path.parent.name, path.name, path.read_bytes().hex()) for path in indexes)
    return seen


def main(folder: Path) -> None:
    """Cut at every step; print what came out."""
    sys.modules.update(sklearn=None)  # NLTK imports it if it can, which takes seconds
    work(folder / "imports")  # what is imported late is imported here, once for all children
    assert child(folder / "whole", 0) == 0
    expected = outcome(folder / "whole")
    steps = json.loads((folder / "whole" / "steps.json").read_text())
    different = []
    for at in range(1, sum(steps.values()) + 1):
        place = folder / str(at)
        ends = [child(place, at), child(place, 3 + at % 5), child(place, 0)]
        if ends[0] != -signal.SIGKILL or ends[2] != 0 or outcome(place) != expected:
            different.append({"step": at, "ends": ends})
        place = folder / f"full at {at}"
        ends = [child(place, at, full=True), child(place, 0)]
        if ends[0] not in (FULL, 0) or ends[1] != 0 or outcome(place) != expected:
            different.append({"full at": at, "ends": ends})
    json.dump({"steps": steps, "different": different}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
