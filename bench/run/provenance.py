"""Where a cell's numbers come from: package versions, commit, kind of machine. No names, no secrets."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.schema import JsonValue

_PACKAGES = (
    "longdoc-bench",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "rank-bm25",
    "scikit-learn",
    "umap-learn",
    "torch-geometric",
    "gensim",
    "llmlingua",
    "datasets",
    "mlflow",
    "rouge-score",
)


def environment() -> dict[str, JsonValue]:
    """Package versions, Python version, platform and git commit of the running harness."""
    return {
        "versions": dict(_versions()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_commit": git_commit(),
    }


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    """Package -> version; cached, since a lookup takes ten milliseconds per cell."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """The commit of the checkout this package runs from, with ``+dirty`` if files differ; else None.

    Cached from the first call on, since the process keeps running that code.
    """
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
