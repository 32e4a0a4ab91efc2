"""Averages two runs' weights: ``python -m training.average RUN_A RUN_B OUT --share 0.5``.

A run that branched from another and learnt something narrow has forgotten a little of the rest; halfway
between the two, most of both is kept (Wortsman et al. 2022, robust fine-tuning by interpolated weights).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def main(arguments: list[str] | None = None) -> None:
    """Command line of the average."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path, help="the run that branched from the first")
    parser.add_argument("out", type=Path, help="a new run directory, for training.export")
    parser.add_argument("--share", type=float, default=0.5, help="weight of the second, 0..1")
    options = parser.parse_args(arguments)
    if not 0 <= options.share <= 1:
        parser.error(f"--share {options.share}: expected 0 to 1")
    first, second = (
        load_checkpoint(run / "checkpoint.safetensors") for run in (options.first, options.second)
    )
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "log.jsonl"):
        (options.out / name).write_bytes((options.second / name).read_bytes())
    save_checkpoint(between(first, second, options.share), options.out / "checkpoint.safetensors")


def between(first: Checkpoint, second: Checkpoint, share: float) -> Checkpoint:
    """The second checkpoint with averages of both moving averages; raises ValueError for other shapes."""
    if {k: v.shape for k, v in first.average.items()} != {k: v.shape for k, v in second.average.items()}:
        raise ValueError("the two runs are of different sizes; average runs of one size")
    average = {k: (1 - share) * v + share * second.average[k] for k, v in first.average.items()}
    return replace(second, average=average)


if __name__ == "__main__":
    main()
