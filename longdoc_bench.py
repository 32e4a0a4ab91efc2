"""Where the commands ``bench`` and ``longdoc-bench`` begin, under a name that no other distribution has.

``bench`` and ``methods`` are common names: a package of another distribution, or a folder on PYTHONPATH, may
hide one of ours, and then nothing inside it could say so.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("bench", "methods")


def hidden() -> str:
    """What hides one of this project's packages, and what to do about it; empty if nothing does."""
    for name in PACKAGES:
        own, spec = Path(__file__).resolve().parent / name, importlib.util.find_spec(name)
        origin = [spec.origin] if spec and spec.origin else []
        places = [*((spec and spec.submodule_search_locations) or origin)]
        if own not in [Path(place).resolve() for place in places]:
            return (
                f"longdoc-bench brings a package called {name}, expected in {own}; Python finds it in "
                f"{', '.join(places) or 'nowhere'}. Install longdoc-bench into an environment of its own, or "
                "take that folder off PYTHONPATH."
            )
    return ""


def main() -> None:
    """Run the command line; exit code 2 if another package hides one of ours."""
    problem = hidden()
    if problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(2)
    from bench.cli.main import main as run

    run()
