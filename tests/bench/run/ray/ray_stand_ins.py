"""Stand-ins that workers of a Ray cluster import: models that kill their process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from bench.models.api import Generation
from tests.stand_ins import WordModel, WordModels

IN_FLIGHT = 3


class WatchfulModel(WordModel):
    """Kills its process at the questions whose file is there, and refuses more company than it was promised.

    ``die_at_<word>``: killed once, the file is gone then. ``always_at_<word>``: killed each time.
    ``all_of_2``: answers nothing before two processes have been asked something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.here = folder, 0

    async def generate(self, prompt: str, max_new_tokens: int, sampling: Any = None) -> Generation:
        word = prompt.splitlines()[0].split()[-1]
        once = self.folder / f"die_at_{word}"
        if once.exists():
            once.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if (self.folder / f"always_at_{word}").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        self.here += 1
        try:
            if self.here > IN_FLIGHT:
                raise AssertionError(f"{self.here} questions at a time")
            await asyncio.sleep(0.01)
            (self.folder / f"asked_{os.getpid()}").touch()
            while (self.folder / "all_of_2").exists() and len(list(self.folder.glob("asked_*"))) < 2:
                await asyncio.sleep(0.05)
            with (self.folder / "processes").open("a") as file:
                file.write(f"{os.getpid()}\n")
            return await super().generate(prompt, max_new_tokens, sampling)
        finally:
            self.here -= 1


class WatchfulModels(WordModels):
    """A model set for a worker; made with ``functools.partial(WatchfulModels, folder)``."""

    def __init__(self, folder: Path, cell: Any) -> None:
        self.reader = WatchfulModel(folder)
