"""Every test runs offline and leaves the user's own results and caches alone."""

from __future__ import annotations

import gc
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

for _name in [name for name in os.environ if name.startswith(("BENCH_", "MLFLOW_TRACKING_"))]:
    if _name != "BENCH_REAL_DATA":
        del os.environ[_name]  # options that a developer has set
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    MLFLOW_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="true",
    TOKENIZERS_PARALLELISM="false",
    BENCH_WORKERS="1",  # a helper process knows no stand-ins
)
# The models of the tests are so small that threads cost more than they save; processes that a test starts
# inherit this. Read when torch and numpy are loaded, so that it stands before any import of theirs.
for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests share a process, and so do all that cluster with UMAP.

    A process that loads UMAP for the first time compiles it, for up to a minute.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            clusters = file.startswith("tests/methods/") and "raptor" in nodeid.lower()
            return "raptor" if clusters else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a slow test first, then those with many tests, so that the processes end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -tests[item.path]))


def pytest_collection_finish() -> None:
    """What has been imported by now stays; collecting garbage need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real samples named by BENCH_REAL_DATA; a test that needs it skips only without it."""
    folder = os.environ.get("BENCH_REAL_DATA")
    if not folder:
        pytest.skip("BENCH_REAL_DATA is not set")
    path = Path(folder)
    assert path.is_dir(), f"BENCH_REAL_DATA={folder} is not a folder"
    return path


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A connection to anything but this machine is an error in a test not marked ``network``."""
    if request.node.get_closest_marker("network"):
        return
    connect = socket.socket.connect

    def only_local(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0]
            if host not in ("127.0.0.1", "::1", "localhost"):
                raise OSError(f"a test tried to reach {host}; tests run offline")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", only_local)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models that this test has fetched, in a cache of its own."""
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"
