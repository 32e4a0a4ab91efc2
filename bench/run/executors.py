"""Where the questions of a run are worked on: on this machine, or by the workers of a Ray cluster.

On this machine each process works on cells of its own (:mod:`bench.run.local`). With Ray one
process, the one that was started, owns the results folder: it alone writes records, indexes and checkpoints.
A worker is given questions and indexes and gives back records and indexes; it keeps nothing, so it may be
lost at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import ConfigError

if TYPE_CHECKING:
    from bench.run.local import LocalWorkers
    from bench.run.ray.executor import RayExecutor

LOCAL, RAY = "local", "ray"
EXECUTORS = (LOCAL, RAY)


@dataclass(frozen=True)
class ExecutorOptions:
    """What the command line says about where to run."""

    name: str = LOCAL
    address: str | None = None
    """Of a running Ray cluster, ``host:port`` or ``auto``; None: one is started on this machine."""
    workers: int | None = None
    """Copies of the models; None: as many as there are GPUs to share, or one per machine without any."""
    gpus: float | None = None
    """GPUs of each worker: a part of one, one, or several that share its layers; None: 1 where any are."""

    def open(self) -> RayExecutor | LocalWorkers:
        """The executor. Nothing is started or connected before there is work.

        Raises ConfigError for options that do not fit together, or when Ray is not installed.
        """
        if self.name == LOCAL:
            for flag, value in {"--address": self.address, "--gpus-per-worker": self.gpus}.items():
                if value is not None:
                    raise ConfigError(
                        f"{flag} {value} needs --executor ray; without it all runs on this machine, one "
                        "process for each GPU or idle core."
                    )
            from bench.run.local import LocalWorkers

            return LocalWorkers(self.workers)
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            raise ConfigError(
                f"--gpus-per-worker {self.gpus:g}: expected a part of one GPU such as 0.5, a whole number of "
                "them, or 0 for the processor."
            )
        from bench.run.ray.cluster import require_ray
        from bench.run.ray.executor import RayExecutor

        require_ray()
        return RayExecutor(self.address, self.workers, self.gpus)
