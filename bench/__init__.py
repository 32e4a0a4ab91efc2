"""longdoc-bench: which way of reading a long document gives the best answers per unit of compute?

From Python, in a notebook too: :func:`ask` about files, :func:`run` a method on a data set,
:func:`load_records` of what was run. They are the code behind ``bench ask`` and ``bench run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.results.records import load_records
    from bench.run.asking import ask
    from bench.run.running import run

__version__ = "0.1.0"
__all__ = ["ask", "load_records", "run"]

_MODULES = {"ask": "bench.run.asking", "load_records": "bench.results.records"}


def __getattr__(name: str) -> Any:
    """``ask``, ``run`` and ``load_records``, imported when first used: the command line starts without."""
    import importlib

    if name == "run":
        return importlib.import_module("bench.run")  # a package that is called as the function
    if name not in _MODULES:
        raise AttributeError(f"module 'bench' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """With the three, for completion in a notebook."""
    return sorted({*globals(), *__all__})
