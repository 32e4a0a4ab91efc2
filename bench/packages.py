"""Packages that only some installations hold, and what brings each.

The core (scores, FLOPs, rendering finished tables) does without them all; whatever needs one asks with
:func:`require` before it begins.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from bench.errors import ConfigError

READER = ("torch", "transformers", "accelerate", "sentence_transformers")
"""What a model in this process needs."""

BROUGHT_BY: Mapping[str, str] = {
    **dict.fromkeys((*READER, "sklearn"), "longdoc-bench[readers]"),
    **dict.fromkeys(("datasets", "pyarrow"), "longdoc-bench[hub]"),
    "mlflow": "longdoc-bench[track]",
    "gguf": "longdoc-bench[gguf]",
    **dict.fromkeys(("pypdf", "docx", "bs4", "lxml"), "longdoc-bench[documents]"),
    "ray": "longdoc-bench[ray]",
    "httpx2": "longdoc-bench[served]",
}
"""Import name -> what to install; methods know their own (:meth:`bench.method.contract.Method.packages`)."""


class MissingPackageError(ConfigError):
    """A package that this installation does not hold; the message says what brings it."""


def require(what: str, *packages: str, brought_by: Mapping[str, str] = BROUGHT_BY) -> None:
    """Raise MissingPackageError if one of the packages, by import name, is not installed; imports none.

    what: needs them; the beginning of the message. brought_by: import name -> what to install.
    """
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        raise missing(what, *absent, brought_by=brought_by)


def missing(what: str, *packages: str, brought_by: Mapping[str, str] = BROUGHT_BY) -> MissingPackageError:
    """The error for packages that are not installed."""
    wanted = " ".join(f"'{name}'" for name in dict.fromkeys(brought_by[name] for name in packages))
    listed = " and ".join([", ".join(packages[:-1]), packages[-1]] if len(packages) > 1 else packages)
    them = "it is" if len(packages) == 1 else "they are"
    return MissingPackageError(f"{what} needs {listed}; {them} not installed here. Run: pip install {wanted}")
