"""``python -m training.generator [FOLDER]``: write the shipped sample sets, bit-identically.

With ``--seed``, sets of the same shapes about other worlds, that nothing was trained on or chosen by:
``python -m training.generator other --seed 301 --seed 302`` has twice as many questions in each set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.files.paths import SAMPLE_SETS
from training.generator import write_other_worlds, write_samples, write_summary_samples

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m training.generator", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SAMPLE_SETS)
    parser.add_argument("--seed", type=int, action="append", help="of other worlds; repeatable")
    chosen = parser.parse_args()
    if chosen.seed and chosen.folder == SAMPLE_SETS:
        parser.error("other worlds need a FOLDER of their own, the default one holds the shipped sample sets")
    if chosen.seed:
        paths = write_other_worlds(chosen.folder, chosen.seed)
    else:
        paths = [*write_samples(chosen.folder), *write_summary_samples(chosen.folder)]
    for path in paths:
        print(path)
