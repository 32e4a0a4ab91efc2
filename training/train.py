"""Trains ``tiny``: ``python -m training.train RUN_DIR``; the same command goes on after an interruption.

The run directory holds ``checkpoint.safetensors``, ``log.jsonl`` (one line every 25 steps) and the tokenizer.
The same seed, schedule, thread count and machine give the same weights, whether the run is interrupted or
not.
SIGTERM stops it after the running step, with a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.paths import ASSETS
from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.model import SIZES, ModelConfig, TinyLlama
from training.optimizer import MuonAdam
from training.schedule import DEFAULT_SCHEDULE, Schedule, Stage, load_schedule
from training.stream import Batch, batches
from training.structured_start import structured_start

log = logging.getLogger(__name__)
TOKENIZER = ASSETS / "tiny" / "tokenizer.json"
AVERAGE_DECAY = 0.995
LOG_EVERY = 25


def main(arguments: list[str] | None = None) -> None:
    """Command line of the training run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="directory of the run; resumed if it has a checkpoint")
    parser.add_argument("--schedule", type=Path, default=DEFAULT_SCHEDULE)
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny", help="of a new run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16",
                        help="of matrix products; bfloat16 needs AMX to be faster")  # fmt: skip
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="tokenizer.json of a new run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--minutes", type=float, default=0, help="stop after so many minutes (0: schedule's end)"
    )
    parser.add_argument("--until", type=int, default=0, help="stop before this step (0: schedule's end)")
    parser.add_argument("--branch", type=Path, help="start from this run's checkpoint, in a new directory")
    parser.add_argument(
        "--decay", type=int, default=0, help="with --branch: let the rates fall to 0 in so many steps"
    )
    parser.add_argument("--save-every", type=float, default=3.0, help="minutes between checkpoints")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train(options)


def train(options: argparse.Namespace) -> None:
    """Runs or resumes training as the options say."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    run: Path = options.run
    run.mkdir(parents=True, exist_ok=True)
    source = run if (run / "checkpoint.safetensors").is_file() else options.branch
    tokenizer_file = run / "tokenizer.json"
    if not tokenizer_file.is_file():
        if source:
            tokenizer_file.write_bytes((source / "tokenizer.json").read_bytes())
        else:
            tokenizer_file.write_bytes(options.tokenizer.read_bytes())
    schedule = load_schedule(options.schedule)
    start = load_checkpoint(source / "checkpoint.safetensors") if source else None
    config = ModelConfig(**start.meta["config"]) if start else SIZES[options.size]
    model = TinyLlama(config, getattr(torch, options.precision))
    optimizer = MuonAdam(model)
    step, tokens, seconds = 0, 0, 0.0
    if start:
        if start.meta["seed"] != options.seed:
            raise ValueError(f"{source}: was trained with --seed {start.meta['seed']}, not {options.seed}")
        model.load_state_dict(start.model, strict=True)
        optimizer.load(start.optimizer)
        step, tokens, seconds = start.meta["step"], start.meta["tokens"], start.meta["seconds"]
        average = start.average
    else:
        structured_start(model)
        average = {k: v.detach().clone() for k, v in model.named_parameters()}
    if options.branch and options.decay:
        branch_step = step if source == options.branch else start.meta["branch_step"] if start else 0
        schedule = decay_from(schedule, branch_step, options.decay)
    else:
        branch_step = 0
    forward = model if options.no_compile else torch.compile(model, dynamic=False)
    meter = Meter(run / "log.jsonl")
    began = saved = time.monotonic()

    def save() -> None:
        meta = {
            "step": step, "tokens": tokens, "seconds": seconds + time.monotonic() - began,
            "seed": options.seed, "config": config.to_dict(), "branch_step": branch_step,
        }  # fmt: skip
        save_checkpoint(
            Checkpoint(model.state_dict(), average, optimizer.state, meta), run / "checkpoint.safetensors"
        )

    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    last = min(options.until or schedule.steps, schedule.steps)
    for batch in batches(step, options.seed, schedule, tokenizer_file):
        if (
            asked_to_stop.is_set()
            or step >= last
            or (options.minutes and time.monotonic() - began > 60 * options.minutes)
        ):
            break
        rates = schedule.at(step)
        ids = torch.from_numpy(batch.ids).long()
        positions = torch.from_numpy(batch.positions)
        targets = ids.reshape(-1)[positions + 1]
        loss, losses, right = forward(ids, positions, targets, torch.from_numpy(batch.weights))
        loss.backward()
        optimizer.step(muon_lr=rates.muon_lr, adam_lr=rates.adam_lr, momentum=rates.momentum)
        with torch.no_grad():
            decay = min(AVERAGE_DECAY, (1 + step) / (10 + step))
            for name, p in model.named_parameters():
                average[name].lerp_(p, 1 - decay)
        step += 1
        tokens += batch.tokens
        meter.add(batch, losses, right)
        if step % LOG_EVERY == 0:
            meter.write(step, tokens, seconds + time.monotonic() - began, rates.muon_lr)
        if time.monotonic() - saved > 60 * options.save_every:
            save()
            saved = time.monotonic()
    save()
    log.info("stopped before step %d of %d, %.1f M tokens", step, schedule.steps, tokens / 1e6)


def decay_from(schedule: Schedule, step: int, steps: int) -> Schedule:
    """The schedule up to a step, then its mix with rates that fall linearly to a twentieth."""
    rates = schedule.at(step)
    kept: list[Stage] = []
    left = step
    for stage in schedule.stages:
        if left > 0:
            kept.append(replace(stage, steps=min(stage.steps, left)))
            left -= stage.steps
    tail = replace(
        rates.stage,
        steps=steps,
        muon_lr=(rates.muon_lr, rates.muon_lr / 20),
        adam_lr=(rates.adam_lr, rates.adam_lr / 20),
    )
    return replace(schedule, stages=(*kept, tail))


class Meter:
    """Running figures on fresh data: replies right in every token, by kind and row length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reset()

    def _reset(self) -> None:
        self._right: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._losses: list[float] = []
        self._began, self._tokens = time.monotonic(), 0

    def add(self, batch: Batch, losses: torch.Tensor, right: torch.Tensor) -> None:
        """Takes in one step."""
        length = batch.ids.shape[1]
        hits = right.numpy()
        for start, end, kind in batch.segments:
            for key, value, count in (
                (f"{kind}@{length}", int(hits[start:end].all()), 1),
                (f"{kind}@{length}.tokens", int(hits[start:end].sum()), end - start),
            ):
                if key.endswith(".tokens") and kind not in ("retell", "repeat", "bullets", "summary"):
                    continue
                self._right[key][0] += value
                self._right[key][1] += count
        replies = batch.segments[-1][1] if batch.segments else 0
        self._losses.append(float(losses[:replies].mean()))
        self._tokens += batch.tokens

    def write(self, step: int, tokens: int, seconds: float, rate: float) -> None:
        """Appends one line and starts anew."""
        passed = time.monotonic() - self._began
        line: dict[str, Any] = {
            "step": step,
            "tokens": tokens,
            "seconds": round(seconds),
            "tokens_per_second": round(self._tokens / passed),
            "muon_lr": round(rate, 5),
            "reply_loss": round(sum(self._losses) / max(1, len(self._losses)), 4),
            "right": {k: [round(a / b, 3), b] for k, (a, b) in sorted(self._right.items())},
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        log.info("%s", json.dumps(line))
        self._reset()


if __name__ == "__main__":
    main()
