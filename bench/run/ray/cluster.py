"""Connect to a Ray cluster or start one on this machine, and decide how many workers fit."""

from __future__ import annotations

import contextlib
import importlib
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

CONNECT_TIMEOUT_S = 10.0
"""Seconds after which an address that does not answer counts as unreachable."""


def connect(address: str | None) -> Any:
    """The module ``ray``, connected to the cluster at ``address``; None: to a new one on this machine.

    An existing connection is reused. Raises BenchError if there is no cluster at the address.
    """
    if address is None:
        # A cluster started here listens on this machine only and requires its token. Ray reads both on
        # import; the first switch is named after the systems on which it is the default.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    else:
        _require_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # by default Ray sends usage statistics
    ray: Any = importlib.import_module("ray")
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
                "then pass --ray HOST:6379, or --ray local to use this machine only. A cluster "
                "that requires a token needs RAY_AUTH_MODE=token here, and its token in ~/.ray/auth_token."
            ) from error
    return ray


def _require_reachable(address: str) -> None:
    """Raise BenchError or ConfigError for an address that does not answer; Ray would retry for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") or not host or not port.isdigit():
        raise ConfigError(f"--ray {address}: expected HOST:PORT, as ray start --head prints, auto or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise BenchError(
            f"No Ray cluster answers at {address} ({error.strerror or error}). Start one with: ray start "
            "--head, which prints its address."
        ) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the current SIGTERM handler: Ray replaces it by one that ends the process."""
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
    """Number of workers, and the resources of each."""

    workers: int
    cpus: float
    gpus: float


def share_out(nodes: list[dict[str, Any]], workers: int | None, gpus: float | None) -> Share:
    """How many workers fit on a cluster, and the resources of each.

    nodes: the result of ``ray.nodes()``. workers, gpus: the requested numbers. With GPUs there is one worker
    per GPU share, each with one CPU; without, one per machine, with as many CPUs as every machine has.
    Workers that do not fit wait for room.
    """
    usable = [node["Resources"] for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if gpus is None:
        gpus = 1.0 if any(node.get("GPU", 0) for node in usable) else 0.0
    if gpus:
        room = sum(int(node.get("GPU", 0) / gpus + 1e-9) for node in usable)
        return Share(workers or max(1, room), 1, gpus)
    wanted = workers or max(1, len(usable))
    per_node = -(-wanted // max(1, len(usable)))
    fewest = min((int(node["CPU"]) for node in usable), default=1)
    return Share(wanted, max(1, fewest // per_node), 0)
