"""``python -m training.generator [FOLDER]``: write the shipped sample sets, bit-identically."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.files.paths import SAMPLE_SETS
from training.generator import write_samples, write_summary_samples

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_SETS
    for path in (*write_samples(folder), *write_summary_samples(folder)):
        print(path)
