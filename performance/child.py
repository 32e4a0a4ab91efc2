"""A process of its own for :func:`performance.measuring.in_own_process`: prints what a function returns."""

from __future__ import annotations

import importlib
import json
import logging
import sys

from performance.measuring import LOGGED


def main() -> None:
    """Call ``module:function`` with the JSON arguments; the last line printed is its result as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{LOGGED}%(message)s"))
    own = logging.getLogger("performance")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(module), function)(*json.loads(sys.argv[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
