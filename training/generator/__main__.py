"""``python -m training.generator [FOLDER]``: write the shipped sample sets, bit-identically.

With ``--seed``, sets of the same shapes about other worlds, that nothing was trained on or chosen by:
``python -m training.generator other --seed 301 --seed 302`` has twice as many questions in each set. With
``--version``, the sample sets of an earlier version: ``python -m training.generator old --version 2``, then
``bench run ... --data old``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.files.paths import SAMPLE_SETS
from training.generator import GENERATOR_VERSION, write_other_worlds, write_samples, write_summary_samples
from training.generator.sets import SIZES

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m training.generator", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SAMPLE_SETS)
    parser.add_argument("--seed", type=int, action="append", help="of other worlds; repeatable")
    parser.add_argument("--version", choices=list(SIZES), default=GENERATOR_VERSION, help="of the sets")
    chosen = parser.parse_args()
    earlier = chosen.version != GENERATOR_VERSION
    if (chosen.seed or earlier) and chosen.folder == SAMPLE_SETS:
        parser.error(
            "other worlds and earlier versions need a FOLDER of their own, the default one holds the shipped "
            "sample sets"
        )
    if chosen.seed:
        paths = write_other_worlds(chosen.folder, chosen.seed, chosen.version)
    elif earlier:
        paths = write_samples(chosen.folder, version=chosen.version)
    else:
        paths = [*write_samples(chosen.folder), *write_summary_samples(chosen.folder)]
    for path in paths:
        print(path)
