"""The executor on Ray: the records of a single process, whatever happens to workers, nodes and driver."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import command
from bench.errors import BenchError, ConfigError
from bench.results.records import Record
from bench.run.cell import Cell
from bench.run.executors import open_executor
from bench.run.hooks import RunHooks
from bench.run.ray.cluster import Share, share_out
from bench.schema import Document, DocumentSet, Example
from performance.crashes import rounded
from tests.bench.faults import runs
from tests.bench.faults.runs import REPOSITORY, records_of as rows
from tests.bench.run.ray.ray_stand_ins import IN_FLIGHT, WatchfulModels
from tests.bench.run.test_training import counting_cell
from tests.stand_ins import WordModels, examples, stand_in_cell

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
run = partial(runs.run, in_flight=IN_FLIGHT)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines with a processor each, both of them this one, at 127.0.0.1."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for attempt in (1, 2, 3):
        machines = Cluster()
        try:
            machines.add_node(**NODE, include_dashboard=False)
            machines.add_node(**NODE)
            break
        except Exception:  # Ray gives a node 30 s to start, which a busy machine may not keep
            machines.shutdown()
            if attempt == 3:
                raise
    yield machines
    machines.shutdown()


Executing = Callable[..., Any]


@pytest.fixture
def executor(cluster: Any) -> Iterator[Executing]:
    """Makes executors on the cluster, and closes them."""
    from bench.run.ray.executor import RayExecutor

    made = []

    def make(models: Callable[[Cell], Any], **options: Any) -> Any:
        made.append(RayExecutor(cluster.address, **options, models=models))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="class")
def workers(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """An executor whose workers serve several tests, and the folder that its models watch."""
    from bench.run.ray.executor import RayExecutor

    folder = tmp_path_factory.mktemp("watched")
    executor = RayExecutor(cluster.address, models=partial(WatchfulModels, folder))
    yield executor, folder
    executor.close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def with_faults(n: int) -> list[Example]:
    """Examples among which one question fails and one document cannot be indexed."""
    sample = list(examples(n))
    sample[3] = replace(sample[3], question="please fail now")
    sample[8] = replace(sample[8], documents=DocumentSet((Document("", "unindexable"),)))
    return sample


@pytest.mark.slow
class TestWorkersThatServeOneRunAfterAnother:
    def test_results_are_those_of_one_process(self, workers: tuple[Any, Path], tmp_path: Path) -> None:
        on_ray, watched = workers
        run(stand_in_cell(with_faults(30)), tmp_path / "local")
        (watched / "all_of_2").touch()
        result = run(stand_in_cell(with_faults(30)), tmp_path / "ray", executor=on_ray)
        assert result.answered == 30 and result.summary.n_failed == 2
        assert rows(tmp_path / "ray" / "cell") == rows(tmp_path / "local" / "cell")
        assert files(tmp_path / "ray" / "indexes") == files(tmp_path / "local" / "indexes")
        processes = (watched / "processes").read_text().splitlines()
        assert len(set(processes)) == 2, "both workers took part"
        assert len(processes) == 16 + 28, "each document was indexed once, each question asked once"
        again = run(stand_in_cell(with_faults(30)), tmp_path / "ray", executor=on_ray)
        assert again.answered == 0 and again.summary == result.summary
        (watched / "all_of_2").unlink()

    def test_a_killed_worker_costs_nothing_but_time(self, workers: tuple[Any, Path], tmp_path: Path) -> None:
        on_ray, watched = workers
        for word in ("answer5", "6"):  # the second one is met while a document is indexed
            (watched / f"die_at_{word}").touch()
        run(stand_in_cell(examples(30)), tmp_path / "local")
        run(stand_in_cell(examples(30)), tmp_path / "ray", executor=on_ray)
        assert not list(watched.glob("die_at_*")), "all of them died"
        assert rows(tmp_path / "ray" / "cell") == rows(tmp_path / "local" / "cell")

    def test_what_a_method_learns_is_kept_here(self, workers: tuple[Any, Path], tmp_path: Path) -> None:
        run(counting_cell(examples(6)), tmp_path / "local")
        run(counting_cell(examples(6)), tmp_path / "ray", executor=workers[0])
        assert rows(tmp_path / "ray" / "cell") == rows(tmp_path / "local" / "cell")
        assert files(tmp_path / "ray" / "indexes") == files(tmp_path / "local" / "indexes")


@pytest.mark.slow
def test_a_sweep_of_the_shipped_model_is_the_same_on_both(cluster: Any, tmp_path: Path) -> None:
    for name, where in (("local", []), ("ray", ["--ray", cluster.address, "--workers", "1"])):
        sweep = ["sweep", "--method", "bm25", "--dataset", "hotpotqa", "--limit", "1", "k=1,2", "--no-track"]
        command(sweep + ["--results", str(tmp_path / name), *where], standalone_mode=False)
    local, ray = (sorted((tmp_path / name / "cells").iterdir()) for name in ("local", "ray"))
    assert [p.name for p in local] == [p.name for p in ray] and len(local) == 2
    for one, other in zip(local, ray, strict=True):
        assert rounded(rows(one)) == rounded(rows(other))


class _Then(RunHooks):
    """Does something once so many records are written."""

    def __init__(self, at: int, act: Callable[[], Any]) -> None:
        self.at, self.act, self.records = at, act, 0

    def on_record(self, record: Record) -> None:
        self.records += 1
        if self.records == self.at:
            self.act()


@pytest.mark.slow
def test_a_node_that_leaves_takes_nothing_with_it(cluster: Any, executor: Executing, tmp_path: Path) -> None:
    extra = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    progress = _Then(9, lambda: cluster.remove_node(extra))
    (tmp_path / "all_of_2").touch()  # else one worker may have answered nine before the other has started
    run(stand_in_cell(examples(40)), tmp_path / "local")
    on_ray = executor(partial(WatchfulModels, tmp_path))
    run(stand_in_cell(examples(40)), tmp_path / "ray", executor=on_ray, hooks=[progress])
    assert rows(tmp_path / "ray" / "cell") == rows(tmp_path / "local" / "cell")
    assert len(set((tmp_path / "processes").read_text().splitlines())) >= 2


KILLED_DRIVER = """
import os, signal, sys
from functools import partial
from pathlib import Path
from bench.run.hooks import RunHooks
from bench.run.ray.executor import RayExecutor
from bench.results.index_store import IndexStore
from tests.stand_ins import run_cells
from tests.bench.run.ray.ray_stand_ins import IN_FLIGHT, WatchfulModels
from tests.stand_ins import WordModels, examples, stand_in_cell
folder, address = Path(sys.argv[1]), sys.argv[2]
class Killed(RunHooks):
    n = 0
    def on_record(self, record):
        Killed.n += 1
        if Killed.n == 11: os.kill(os.getpid(), signal.SIGKILL)
executor = RayExecutor(address, models=partial(WatchfulModels, folder))
run_cells([(stand_in_cell(examples(30)), folder / "ray" / "cell")], IndexStore(folder / "ray" / "indexes"),
          WordModels, in_flight=IN_FLIGHT, executor=executor, hooks=[Killed()])
"""


@pytest.mark.slow
def test_a_killed_driver_leaves_what_continues(cluster: Any, executor: Executing, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_DRIVER, str(tmp_path), cluster.address]
    assert subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True).returncode == -9
    written = (tmp_path / "ray" / "cell" / "records.jsonl").read_bytes().count(b"\n")
    assert 11 <= written < 30  # what is on disk may be ahead of what has been reported
    run(stand_in_cell(examples(30)), tmp_path / "local")
    on_ray = executor(partial(WatchfulModels, tmp_path))
    assert run(stand_in_cell(examples(30)), tmp_path / "ray", executor=on_ray).answered == 30 - written
    assert rows(tmp_path / "ray" / "cell") == rows(tmp_path / "local" / "cell")


@pytest.mark.slow
def test_a_question_that_kills_every_worker_ends_the_run_and_keeps_the_others(
    executor: Executing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.ray.executor.MIN_LOSSES", 2)
    (tmp_path / "always_at_answer4").touch()
    on_ray = executor(partial(WatchfulModels, tmp_path), workers=1)
    with pytest.raises(BenchError, match="workers were lost in a row"):
        run(stand_in_cell(examples(12)), tmp_path / "ray", executor=on_ray)
    assert "q4" not in {row["example_id"] for row in rows(tmp_path / "ray" / "cell")}
    (tmp_path / "always_at_answer4").unlink()
    run(stand_in_cell(examples(12)), tmp_path / "ray", executor=on_ray)
    assert [row["prediction"] for row in rows(tmp_path / "ray" / "cell")] == [f"answer{i}" for i in range(12)]


@pytest.mark.slow
def test_an_error_of_the_set_up_ends_the_run_with_its_own_words(executor: Executing, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="^the weights are gone$"):
        run(stand_in_cell(examples(4)), tmp_path, executor=executor(_no_models))


def _no_models(cell: Cell) -> Any:
    raise BenchError("the weights are gone")


class _Reference:
    """What a worker is given in the place of a value: it has to be awaited, which takes a moment."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Iterator[Any]:
        yield from asyncio.sleep(0.001).__await__()
        return self.value


def test_more_documents_at_once_than_a_worker_keeps_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents of questions that were still being worked on were once forgotten (KeyError)."""
    from bench.flops.meter import Meter
    from bench.results.index_store import StoredIndex
    from bench.run.ray.worker import Group, Worker
    from bench.schema import Index

    monkeypatch.setattr("bench.run.ray.worker.INDEXES_IN_MEMORY", 4)
    sample = examples(40, questions_per_document=1)
    cell = stand_in_cell(sample)
    index = Index({"words": 2})

    async def work() -> tuple[list[Any], int]:
        worker = Worker(lambda cell: WordModels(), 0)
        await worker.ready()
        group = ["0", _Reference(Group((cell,), None))]

        async def ask(example: Example) -> object:
            stored = _Reference(StoredIndex(index, Meter()))
            about = [example.documents.id, _Reference(example.documents), stored]
            alone = replace(example, documents=DocumentSet(()))
            return await worker.ask(group, alone, about, [0])

        replies = await asyncio.gather(*map(ask, sample))
        await worker._opened.aclose()
        return replies, len(worker._runner._received)

    replies, kept = asyncio.run(work())
    rows = [json.loads(line) for lines in replies for line in lines]
    assert [row["error"] for row in rows] == [None] * 40
    assert [row["prediction"] for row in rows] == [f"answer{i}" for i in range(40)]
    assert kept == 4, "those that nobody asks about are let go"


def node(**resources: float) -> dict[str, Any]:
    return {"Alive": True, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "expected"),
    [
        ([node(CPU=16, GPU=8), node(CPU=16, GPU=4)], None, None, Share(12, 1, 1)),
        ([node(CPU=16, GPU=1)], None, 0.5, Share(2, 1, 0.5)),
        ([node(CPU=16, GPU=8)], 3, None, Share(3, 1, 1)),
        ([node(CPU=16, GPU=8), node(CPU=16, GPU=1)], None, 2, Share(4, 1, 2)),
        ([node(CPU=16, GPU=8)], None, 0, Share(1, 16, 0)),
        ([node(CPU=8), node(CPU=8)], 4, None, Share(4, 4, 0)),
        ([node(CPU=2), {"Alive": False, "Resources": {"CPU": 64}}], None, None, Share(1, 2, 0)),
    ],
)
def test_workers_share_what_the_cluster_has(
    nodes: list[dict[str, Any]], workers: int | None, gpus: float | None, expected: Share
) -> None:
    assert share_out(nodes, workers, gpus) == expected


def test_a_worker_with_other_software_is_refused() -> None:
    from bench.run.provenance import environment
    from bench.run.ray.executor import require_same_software

    own = environment()
    require_same_software(own)
    with pytest.raises(BenchError, match="torch 1.0 instead of 2"):
        require_same_software({**own, "versions": {**own["versions"], "torch": "1.0"}})
    if own["git_commit"]:
        with pytest.raises(BenchError, match="commit other instead of"):
            require_same_software({**own, "git_commit": "other"})


def test_a_worker_with_several_gpus_spreads_its_readers_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.run.cell import CellRequest, plan_cell
    from bench.run.ray import worker as ray_worker

    cell = ray_worker.without_data(plan_cell(CellRequest("dragon", "qasper", limit=1)))
    assert len({spec.kind for spec in cell.roles.values()}) == 2
    monkeypatch.setattr(ray_worker, "cuda_available", lambda: True)
    for gpus, device in ((1, None), (2, "balanced")):
        monkeypatch.setattr("torch.cuda.device_count", lambda gpus=gpus: gpus)
        models: Any = ray_worker.load_models(cell)
        assert {spec.local.device for spec in models.specs.values() if spec.kind == "causal"} == {device}
        assert {spec.local.device for spec in models.specs.values() if spec.kind == "encoder"} == {None}


def test_a_worker_with_another_model_is_refused() -> None:
    from bench.run.cell import CellRequest, plan_cell
    from bench.run.ray.worker import load_models, without_data

    cell = without_data(plan_cell(CellRequest("bm25", "qasper", limit=1)))
    assert cell.roles["reader"].local.dtype == "float32" and not cell.data.examples
    load_models(cell)
    models = {"reader": {**cell.identity.models["reader"], "revision": "0" * 40}}
    with pytest.raises(BenchError, match=r"another tiny \(role reader\): revision .* instead of '0{40}'"):
        load_models(replace(cell, identity=replace(cell.identity, models=models)))


def test_options_of_ray_need_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--gpus-per-worker 1.5: expected .* a whole number"):
        open_executor("local", gpus=1.5)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'longdoc-bench\[ray\]'"):
        open_executor("local")


def test_an_address_without_a_cluster_is_an_error_at_once() -> None:
    from bench.run.ray.cluster import connect

    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        connect("nowhere")
    with pytest.raises(BenchError, match="No Ray cluster answers at 127.0.0.1:9"):
        connect("127.0.0.1:9")
