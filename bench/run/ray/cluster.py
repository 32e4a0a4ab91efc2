"""Connecting to a Ray cluster, or starting one on this machine; how many workers it has room for."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.errors import BenchError, ConfigError

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long an address may take to answer before it is called unreachable."""


def require_ray() -> None:
    """Raise ConfigError unless Ray is installed; it is not imported."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "--executor ray needs the package ray, which is not installed. Run: "
            "pip install 'longdoc-bench[ray]', on every machine of the cluster."
        )


def load_ray() -> Any:
    """The module ``ray``; raises ConfigError where it is not installed."""
    require_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # by default it reports to its makers
    return importlib.import_module("ray")


def connect(address: str | None) -> Any:
    """The module ``ray``, connected to the cluster at ``address``; None: to one that is started here.

    A process that is connected already stays so. Raises BenchError for an address where there is none.
    """
    if address is None:
        # What is started here shall listen on this machine only, and do as it is told only by who knows its
        # token. Read when Ray is imported; the switch is named after the systems where that is the default.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    else:
        _require_reachable(address)
    ray = load_ray()
    if ray.is_initialized():
        return ray
    with _own_signals():
        try:
            ray.init(
                address=address or "local",
                namespace="longdoc-bench",
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            place = "this machine" if address is None else address
            raise BenchError(
                f"No Ray cluster at {place}: {str(error).rstrip('.')}. Start one with: ray start --head; "
                "then say --address HOST:6379, or leave --address out to use this machine alone. A cluster "
                "that asks for a token needs RAY_AUTH_MODE=token here, and its token in ~/.ray/auth_token."
            ) from error
    return ray


def _require_reachable(address: str) -> None:
    """Raise for an address that nobody answers at; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") or not host or not port.isdigit():
        raise ConfigError(f"--address {address}: expected HOST:PORT, as ray start --head prints it, or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        raise BenchError(
            f"No Ray cluster answers at {address} ({error.strerror or error}). Start one with: ray start "
            "--head, which prints its address."
        ) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Inside the block, what SIGTERM does stays as it was: Ray would have it end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Share:
    """How many workers, and what each holds of the cluster."""

    workers: int
    cpus: float
    gpus: float


def share_out(nodes: list[dict[str, Any]], workers: int | None, gpus: float | None) -> Share:
    """How many workers a cluster has room for, and what each holds.

    nodes: of ``ray.nodes()``. workers, gpus: as asked for. With GPUs one worker for every share of one, with
    one processor each; without, one worker for every machine, with all processors that each of them has.
    More workers than there is room for wait until there is.
    """
    here = [node["Resources"] for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    found = sum(node.get("GPU", 0) for node in here)
    if gpus is None:
        gpus = 1.0 if found else 0.0
    if gpus:
        room = sum(int(node.get("GPU", 0) / gpus + 1e-9) for node in here)
        return Share(workers or max(1, room), 1, gpus)
    wanted = workers or max(1, len(here))
    on_each = -(-wanted // max(1, len(here)))
    fewest = min((int(node["CPU"]) for node in here), default=1)
    return Share(wanted, max(1, fewest // on_each), 0)
