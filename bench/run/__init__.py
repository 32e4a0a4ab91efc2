"""Running a cell of a table: plan it, answer its questions, record each answer.

The package is named like the function that runs a cell from Python, so it can be called as that function:
``from bench import run`` (:func:`bench.run.running.run`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.results.finished import FinishedCell


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **values: Any) -> FinishedCell:
        from bench.run.running import run

        return run(*arguments, **values)


sys.modules[__name__].__class__ = _CallablePackage
