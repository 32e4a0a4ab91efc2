r"""Trains ``tiny``: ``python -m training.train RUN_DIR``; the same command goes on after an interruption.

The run directory holds the checkpoint, ``log.jsonl`` (one line every 25 steps) and the tokenizer.
The same seed, schedule, thread count and machine give the same weights, whether the run is interrupted or
not.
SIGTERM stops it after the running step, with a checkpoint.

On a GPU, in slices of a few minutes, each of which ends with a checkpoint, an export and its figures:

    python -m training.train RUN_DIR --device cuda --size tiny-l --schedule training/schedule_cuda.yaml \
        --minutes 7 --then export,evaluate
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.files.paths import ASSETS
from training.checkpoint import (
    Checkpoint,
    compact_average,
    load_checkpoint,
    restored_average,
    save_checkpoint,
)
from training.evaluate import PARTS, main as evaluate_main
from training.export import main as export_main, read_exported, weights_digest
from training.model import SIZES, ModelConfig, TinyLlama
from training.optimizer import MuonAdam
from training.schedule import DEFAULT_SCHEDULE, Schedule, Stage, load_schedule
from training.stream import Batch, batches
from training.structured_start import structured_start

log = logging.getLogger(__name__)
CHECKPOINT = "checkpoint.safetensors"
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16",
                        help="of matrix products; bfloat16 needs AMX or a GPU to be faster")  # fmt: skip
    parser.add_argument("--workers", type=int, default=0,
                        help="data processes (0: one, on CUDA one for each core)")  # fmt: skip
    parser.add_argument("--stretch", type=float, default=1.0,
                        help="of a new run: factor of every stage's steps")  # fmt: skip
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="tokenizer.json of a new run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--minutes", type=float, default=0, help="train for so many minutes (0: to the schedule's end)"
    )
    parser.add_argument("--until", type=int, default=0, help="stop before this step (0: schedule's end)")
    parser.add_argument("--branch", type=Path, help="start from this run's checkpoint, in a new directory")
    parser.add_argument(
        "--from", dest="exported", metavar="NAME",
        help="start a new run from an exported model: the name of a shipped one, or a folder",
    )  # fmt: skip
    parser.add_argument(
        "--decay", type=int, default=0, help="with --branch: let the rates fall to 1/20 in so many steps"
    )
    parser.add_argument("--save-every", type=float, default=3.0, help="minutes between checkpoints")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--then", default="", metavar="export,evaluate",
                        help="afterwards export to RUN/model and measure it")  # fmt: skip
    parser.add_argument("--evaluate-scale", type=float, default=0.5, help="share of the evaluation's cases")
    parser.add_argument("--evaluate-part", choices=PARTS, default="reading", help="see training.evaluate")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    steps = [step for step in options.then.split(",") if step]
    if not {"export", "evaluate"}.issuperset(steps):
        parser.error(f"--then {options.then}: expected export, evaluate or both, with a comma between")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch sees no GPU; leave --device out to train on the processor")
    train(options)
    if "export" in steps:
        export_main([str(options.run), str(options.run / "model")])
    if "evaluate" in steps:
        evaluate_main(["--model", str(options.run / "model"), "--out", str(options.run / "evaluation.jsonl"),
                       "--device", options.device, "--scale", str(options.evaluate_scale),
                       "--part", options.evaluate_part])  # fmt: skip


def train(options: argparse.Namespace) -> None:
    """Runs or resumes training as the options say."""
    began = saved = time.monotonic()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    run: Path = options.run
    run.mkdir(parents=True, exist_ok=True)
    source = run if (run / CHECKPOINT).is_file() else options.branch
    exported = folder_of(options.exported) if options.exported and not source else None
    tokenizer_file = run / "tokenizer.json"
    if not tokenizer_file.is_file():
        origin = source or exported
        tokenizer_file.write_bytes((origin / "tokenizer.json" if origin else options.tokenizer).read_bytes())
    start = load_checkpoint(source / CHECKPOINT) if source else None
    stretch = start.meta.get("stretch", 1.0) if start else options.stretch
    schedule = stretched(load_schedule(options.schedule), stretch)
    weights: dict[str, Tensor] = {}
    if start:
        config = ModelConfig(**start.meta["config"])
    elif exported:
        config, weights = read_exported(exported)
    else:
        config = SIZES[options.size]
    model = TinyLlama(config, getattr(torch, options.precision))
    step, tokens, seconds, began_from = 0, 0, 0.0, ""
    if start:
        if start.meta["seed"] != options.seed:
            raise ValueError(f"{source}: was trained with --seed {start.meta['seed']}, not {options.seed}")
        model.load_state_dict(start.model, strict=True)
        step, tokens, seconds = start.meta["step"], start.meta["tokens"], start.meta["seconds"]
        average = start.average
        began_from = start.meta.get("from", "")
    else:
        if exported:
            model.load_state_dict(weights, strict=True)
            began_from = f"{options.exported}, weights sha256 {weights_digest(exported)}"
        else:
            structured_start(model)
        average = {k: v.detach().clone() for k, v in model.named_parameters()}
    model.to(device)
    average = {name: value.to(device) for name, value in average.items()}
    optimizer = MuonAdam(model)
    if start:
        optimizer.load(start.optimizer)
    if options.branch and options.decay:
        branch_step = step if source == options.branch else start.meta["branch_step"] if start else 0
        schedule = decay_from(schedule, branch_step, options.decay)
    else:
        branch_step = 0
    forward = model if options.no_compile else compiled(model, device)
    meter = Meter(run / "log.jsonl")

    def save() -> None:
        meta = {
            "step": step, "tokens": tokens, "seconds": seconds + time.monotonic() - began,
            "seed": options.seed, "config": config.to_dict(), "branch_step": branch_step,
            "from": began_from, "stretch": stretch,
        }  # fmt: skip
        stored = model.state_dict()
        if device.type == "cuda":  # and go on with what a resumed run would read
            compact = compact_average(average, stored)
            average.update(restored_average(compact, stored))
        else:
            compact = average
        save_checkpoint(Checkpoint(stored, compact, optimizer.state, meta), run / CHECKPOINT)

    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    last = min(options.until or schedule.steps, schedule.steps)
    workers = options.workers or (os.cpu_count() or 1 if device.type == "cuda" else 1)
    for batch in meter.waiting(batches(step, options.seed, schedule, tokenizer_file, workers)):
        if (
            asked_to_stop.is_set()
            or step >= last
            or (options.minutes and time.monotonic() - began > 60 * options.minutes)
        ):
            break
        rates = schedule.at(step)
        ids, positions, importance = (
            torch.from_numpy(array).to(device, non_blocking=True)
            for array in (batch.ids, batch.positions, batch.weights)
        )
        ids = ids.long()
        targets = ids.reshape(-1)[positions + 1]
        loss, losses, right = forward(ids, positions, targets, importance)
        meter.add(batch, losses, right)
        loss.backward()
        optimizer.step(muon_lr=rates.muon_lr, adam_lr=rates.adam_lr, momentum=rates.momentum)
        with torch.no_grad():
            decay = min(AVERAGE_DECAY, (1 + step) / (10 + step))
            for name, p in model.named_parameters():
                average[name].lerp_(p, 1 - decay)
        step += 1
        tokens += batch.tokens
        if step % LOG_EVERY == 0:
            meter.write(step, tokens, seconds + time.monotonic() - began, rates.muon_lr)
        if time.monotonic() - saved > 60 * options.save_every:
            save()
            saved = time.monotonic()
    save()
    log.info("stopped before step %d of %d, %.1f M tokens", step, schedule.steps, tokens / 1e6)


def compiled(model: TinyLlama, device: torch.device) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """The model's forward, compiled: as a whole, on CUDA block by block, which is quicker to do."""
    if device.type != "cuda":
        return torch.compile(model, dynamic=False)  # type: ignore[no-any-return]
    torch._dynamo.config.recompile_limit = 64  # one for each row length and block
    for block in model.blocks:
        block.compile(dynamic=False)
    return model


def stretched(schedule: Schedule, factor: float) -> Schedule:
    """The schedule with so many times as many steps in every stage; raises ValueError unless factor > 0."""
    if factor <= 0:
        raise ValueError(f"--stretch {factor}: expected a number above 0")
    stages = tuple(replace(s, steps=max(1, round(s.steps * factor))) for s in schedule.stages)
    return replace(schedule, stages=stages)


def folder_of(name: str) -> Path:
    """The folder of an exported model: a shipped one's by its name."""
    return ASSETS / name if name in SIZES else Path(name)


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
        self._pending: list[tuple[Batch, Tensor, Tensor, torch.cuda.Event | None]] = []

    def _reset(self) -> None:
        self._right: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._losses: list[float] = []
        self._began, self._tokens, self._waited = time.monotonic(), 0, 0.0

    def waiting(self, stream: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, with the time that was spent waiting for them counted."""
        asked = time.monotonic()
        for batch in stream:
            self._waited += time.monotonic() - asked
            yield batch
            asked = time.monotonic()

    def add(self, batch: Batch, losses: Tensor, right: Tensor) -> None:
        """Takes in one step; a GPU's figures are read a step later, so that it is not waited for."""
        event = None
        if right.is_cuda:
            losses, right = losses.to("cpu", non_blocking=True), right.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._pending.append((batch, losses, right, event))
        if event is None or len(self._pending) > 1:
            self._count(*self._pending.pop(0))

    def _count(self, batch: Batch, losses: Tensor, right: Tensor, event: torch.cuda.Event | None) -> None:
        if event is not None:
            event.synchronize()
        length = batch.ids.shape[1]
        hits = np.concatenate(([0], np.cumsum(right.numpy())))
        for start, end, kind in batch.segments:
            correct = int(hits[end] - hits[start])
            whole = self._right[f"{kind}@{length}"]
            whole[0] += correct == end - start
            whole[1] += 1
            if kind in ("retell", "repeat", "bullets", "summary"):
                single = self._right[f"{kind}@{length}.tokens"]
                single[0] += correct
                single[1] += end - start
        replies = batch.segments[-1][1] if batch.segments else 0
        self._losses.append(float(losses[:replies].mean()))
        self._tokens += batch.tokens

    def write(self, step: int, tokens: int, seconds: float, rate: float) -> None:
        """Appends one line and starts anew."""
        while self._pending:
            self._count(*self._pending.pop(0))
        passed = time.monotonic() - self._began
        line: dict[str, Any] = {
            "step": step,
            "tokens": tokens,
            "seconds": round(seconds),
            "tokens_per_second": round(self._tokens / passed),
            "waited_for_data": round(self._waited / passed, 3),
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
