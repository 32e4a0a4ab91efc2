"""Where the questions of a run are answered: on this machine, or by the workers of a Ray cluster.

On this machine each process works on its own cells (:mod:`bench.run.local`). With Ray, only the process
that was started writes records and indexes. A worker receives questions and indexes and
returns records and indexes; it stores nothing, so it may be lost at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import ConfigError

if TYPE_CHECKING:
    from bench.run.local import LocalWorkers
    from bench.run.ray.executor import RayExecutor

LOCAL = "local"
"""Address of a Ray cluster that is started on this machine for one command."""


@dataclass(frozen=True)
class ExecutorOptions:
    """The command line's options about where to run."""

    ray: str | None = None
    """A Ray cluster: ``host:port`` or ``auto`` of a running one, or ``local``; None: without Ray."""
    workers: int | None = None
    """Number of workers, each with its own models; None: one per GPU share, or per machine without GPUs."""
    gpus: float | None = None
    """GPUs per worker: a fraction of one, one, or several that share its layers; None: 1 if there are any."""

    def open(self) -> RayExecutor | LocalWorkers:
        """The executor; nothing is started or connected before there is work.

        Raises ConfigError for options that contradict each other, or if Ray is not installed.
        """
        if self.ray is None:
            if self.gpus is not None:
                raise ConfigError(
                    f"--gpus-per-worker {self.gpus:g} needs --ray ADDRESS; without it everything runs on "
                    "this machine, one process for each GPU or idle core."
                )
            from bench.run.local import LocalWorkers

            return LocalWorkers(self.workers)
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            raise ConfigError(
                f"--gpus-per-worker {self.gpus:g}: expected a fraction of one GPU such as 0.5, a whole "
                "number of GPUs, or 0 to run on the CPU."
            )
        from bench.run.ray.cluster import require_ray
        from bench.run.ray.executor import RayExecutor

        require_ray()
        return RayExecutor(None if self.ray == LOCAL else self.ray, self.workers, self.gpus)
