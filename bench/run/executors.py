"""Where the questions of a run are answered: on this machine, or by the workers of a Ray cluster.

On this machine each process works on its own cells (:mod:`bench.run.local`). With Ray, only the process
that was started writes records and indexes. A worker receives questions and indexes and
returns records and indexes; it stores nothing, so it may be lost at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import ConfigError
from bench.packages import require

if TYPE_CHECKING:
    from bench.run.local import LocalWorkers
    from bench.run.ray.executor import RayExecutor


def open_executor(
    ray: str | None = None, workers: int | None = None, gpus: float | None = None
) -> RayExecutor | LocalWorkers:
    """The executor of the command line's options; nothing is started or connected before there is work.

    ray: a cluster: ``host:port`` or ``auto`` of a running one, or ``local``, one for this command; None:
    without Ray. workers: each with its own models; None: one per GPU share, or per machine without GPUs.
    gpus: per worker: a fraction of one, one, or several that share its layers; None: 1 if there are any.
    Raises ConfigError for options that contradict each other, or if Ray is not installed.
    """
    if ray is None:
        if gpus is not None:
            raise ConfigError(
                f"--gpus-per-worker {gpus:g} needs --ray ADDRESS; without it everything runs on "
                "this machine, one process for each GPU or idle core."
            )
        from bench.run.local import LocalWorkers

        return LocalWorkers(workers)
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise ConfigError(
            f"--gpus-per-worker {gpus:g}: expected a fraction of one GPU such as 0.5, a whole "
            "number of GPUs, or 0 to run on the CPU."
        )
    from bench.run.ray.executor import RayExecutor

    require("Every machine of a Ray cluster", "ray")
    return RayExecutor(None if ray == "local" else ray, workers, gpus)
