"""The endless, seeded stream of batches: a batch depends on seed, schedule and its step alone.

So a resumed run needs no state of the stream: it asks for the batch after the last one.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.generator.names import NameSource
from training.schedule import Schedule, Stage
from training.tasks import ALL_TOLD, Conversation, Teacher
from training.tokenizer import BOS, EOT, HEADER_END, HEADER_START

HEAD_SHARE = 0.45
"""Share of the positions that pass the output head; a fixed number per shape."""
FACTS = {128: (2, 4), 256: (3, 11), 512: (9, 27), 1024: (22, 62), 2048: (55, 130), 4096: (120, 270)}
"""Facts in a document, by row length."""
PROMPT_TOKENS, TOKENS_PER_FACT = 150, 20
WALK_TOKENS = 80
"""What PECAN's graph prompt takes, and a fact in a text and in half of the cases in a bullet, on average."""
FILLED = 0.9
PREFETCH = 6
"""Batches that each data process makes ahead."""
ALIVE_EVERY = 20.0
"""Seconds without a batch after which the process is looked at."""


@dataclass(frozen=True)
class Batch:
    """Rows of conversations and the positions that are scored."""

    step: int
    ids: NDArray[np.int32]
    """(rows, length); padded with 0 at the end."""
    positions: NDArray[np.int64]
    """Flat indices of the tokens before the scored ones."""
    weights: NDArray[np.float32]
    """Loss weights of the scored tokens, 0 for padding of the list."""
    segments: list[tuple[int, int, str]]
    """Replies within ``positions``: start, end, kind."""
    tokens: int
    """Not counting padding."""


_PLAIN = re.compile(r"[\x00-\x7f“”]+").fullmatch
_LINE_BEGINNINGS = re.compile(r"\n(?=[^\n])").sub
_WORDS = re.compile(r"\n|'s| ?[A-Za-z]+| ?[0-9]{1,2}| ?[^\sA-Za-z0-9]|\s").findall
"""What the tokenizer's normaliser and pre-tokenizer do (``training.tokenizer``), for such plain text."""


class Template:
    """The chat template as pieces of ids; contents are encoded apart and cannot hold control tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        self._bare = Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | {"normalizer": None}))
        self._bare.encode_special_tokens = True
        self._ids: dict[str, list[int]] = {}
        self.eot = tokenizer.token_to_id(EOT)
        start, end = tokenizer.token_to_id(HEADER_START), tokenizer.token_to_id(HEADER_END)
        blank = tokenizer.encode("\n\n").ids
        self.newline = blank[0]
        self.bos = [tokenizer.token_to_id(BOS)]
        self.user = [start, *tokenizer.encode("user").ids, end, *blank]
        self.assistant = [start, *tokenizer.encode("assistant").ids, end, *blank]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: those of the tokenizer, word by word from memory.

        No merge crosses a word, and a generated text has few different ones.
        """
        if not _PLAIN(text):
            return list(self.tokenizer.encode(text).ids)
        known, ids = self._ids, list[int]()
        for word in _WORDS(_LINE_BEGINNINGS("\n ", text if text[:1] == "\n" else f" {text}")):
            word_ids = known.get(word)
            if word_ids is None:
                word_ids = known[word] = self._bare.encode(word).ids
            ids += word_ids
        return ids

    def conversation(self, turns: Conversation) -> tuple[list[int], list[tuple[int, int, str]]]:
        """Ids of a conversation and the spans of its replies, end-of-turn token included."""
        ids: list[int] = list(self.bos)
        spans = []
        for turn in turns:
            ids += [*self.user, *self.encode(turn.user), self.eot, *self.assistant]
            start = len(ids)
            ids += [*self.encode(turn.reply), self.eot]
            if turn.answers:
                spans += [(a, b, turn.kind) for a, b in self._every_second_line(ids, start)]
            else:
                spans.append((start, len(ids), turn.kind))
        return ids, spans

    def _every_second_line(self, ids: list[int], start: int) -> list[tuple[int, int]]:
        """Token spans of the second, fourth ... line from a place on, their newlines included."""
        ends = [i + 1 for i in range(start, len(ids)) if ids[i] == self.newline]
        return list(zip(ends[::2], ends[1::2], strict=True))


def draw_conversation(rng: random.Random, teacher: Teacher, task: str, length: int) -> Conversation:
    """One conversation of a task, sized for rows of that length."""
    low, high = FACTS[length]
    facts = rng.randint(low, high)
    questions = max(3, min(10, facts // 3 + 1))
    if teacher.options.dense and rng.random() < teacher.options.dense:
        facts = max(low, facts * 2 // 3)
        questions = max(3, facts // 2)
    match task:
        case "simple":
            return teacher.answer_simple(rng, facts, questions)
        case "answer":
            return teacher.answer(rng, facts, questions)
        case "quiz":
            many = rng.random() < 0.6
            facts = rng.randint(low, max(low, int(high * (0.6 if many else 0.8))))
            return teacher.quiz(rng, facts, max(3, facts if many else facts // 2))
        case "answer_one":
            return teacher.answer(rng, facts, 1)
        case "judge":
            if length < 256:
                return teacher.judge(rng, rng.randint(1, 2), 3)
            count = max(1, min(40, rng.randint(1, max(2, facts * 2 // 3))))
            return teacher.judge(rng, count, max(6, min(16, count)) if teacher.options.dense else 6)
        case "search":
            if length < 256:
                return teacher.search(rng, rng.randint(1, 3))
            return teacher.search(rng, max(1, min(60, rng.randint(1, max(2, facts * 3 // 4)))))
        case "read_first":
            return teacher.read_first(rng, rng.randint(max(3, low // 2), max(4, int(high * 0.9))))
        case "retell":
            return teacher.retell(rng, max(2, facts if length < 256 else int(facts * 0.85)))
        case "repeat":
            return teacher.repeat(rng, rng.randint(4, length // 7))
        case "descend":
            return teacher.descend(rng, max(6, min(75, rng.randint(low, max(low, facts * 2 // 3)))))
        case "walk":
            most = max(2, (length - WALK_TOKENS) // TOKENS_PER_FACT)
            return teacher.walk(
                rng, max(1, int(most ** rng.random())) if rng.random() < 0.4 else rng.randint(1, most)
            )
        case "search_summary":
            return teacher.search_summary(rng, max(2, rng.randint(2, max(2, facts // 2))))
        case "bullets" if length > 512 and rng.random() < teacher.options.full:
            return teacher.bullets(rng, rng.randint(ALL_TOLD, (length - PROMPT_TOKENS) // TOKENS_PER_FACT))
        case "bullets":
            return teacher.bullets(rng, max(2, rng.randint(2, max(2, facts // 2))))
        case "summary":
            return teacher.summary(rng, max(2, rng.randint(2, max(2, facts // 2))))
        case "triage":
            return teacher.triage(rng, max(2, min(40, facts * 2 // 3)))
        case "places":
            return teacher.places(rng, max(3, min(40, facts // 2)))
        case "leaf":
            return teacher.leaf(rng, max(2, facts * 2 // 3))
        case "wonder":
            return teacher.wonder(rng, max(2, facts // 2))
    raise ValueError(f"unknown task {task!r} in the schedule; known: see training.stream.draw_conversation")


def make_batch(step: int, seed: int, schedule: Schedule, template: Template, names: NameSource) -> Batch:
    """The batch of a step."""
    stage = schedule.at(step).stage
    rng = random.Random(f"{seed}:{step}")
    length = rng.choices(list(stage.lengths), list(stage.lengths.values()))[0]
    rows = schedule.batch_tokens // length
    teacher = Teacher(names, stage.options)
    ids = np.zeros((rows, length), dtype=np.int32)
    replies: list[int] = []
    importance: list[float] = []
    context: list[int] = []
    segments = []
    tokens = 0
    for row in range(rows):
        line, spans = _fill_row(rng, teacher, template, stage, length)
        ids[row, : len(line)] = line
        tokens += len(line)
        in_reply: set[int] = set()
        for start, end, kind in spans:
            segments.append((len(replies), len(replies) + end - start, kind))
            replies += range(row * length + start - 1, row * length + end - 1)
            importance += [stage.reply_weights.get(kind, 1.0)] * (end - start)
            in_reply.update(range(start, end))
        context += [row * length + i - 1 for i in range(1, len(line)) if i not in in_reply]
    count = int(rows * length * HEAD_SHARE)
    replies = replies[:count]
    rng.shuffle(context)
    context = context[: count - len(replies)]
    padding = count - len(replies) - len(context)
    positions = np.array(replies + context + [0] * padding, dtype=np.int64)
    weights = np.array(
        importance[: len(replies)] + [stage.context_weight] * len(context) + [0.0] * padding, dtype=np.float32
    )
    kept = [s for s in segments if s[1] <= len(replies)]
    return Batch(step, ids, positions, weights, kept, tokens)


def _fill_row(
    rng: random.Random, teacher: Teacher, template: Template, stage: Stage, length: int
) -> tuple[list[int], list[tuple[int, int, str]]]:
    line: list[int] = []
    spans: list[tuple[int, int, str]] = []
    misses = 0
    while misses < 4 or not line:
        task = rng.choices(list(stage.mix), list(stage.mix.values()))[0]
        room = max((n for n in FACTS if n <= length - len(line)), default=min(FACTS))
        ids, segments = template.conversation(draw_conversation(rng, teacher, task, room))
        if len(line) + len(ids) > length:
            misses += 1
            continue
        spans += [(a + len(line), b + len(line), kind) for a, b, kind in segments]
        line += ids
        if len(line) > FILLED * length:
            break
    return line, spans


def batches(
    start: int, seed: int, schedule: Schedule, tokenizer_file: Path, workers: int = 1
) -> Iterator[Batch]:
    """Batches from a step on, made by processes of their own that run a few steps ahead.

    With several, each makes every ``workers``-th batch: their number changes nothing about the batches.
    """
    context = multiprocessing.get_context("spawn")
    queues: list[Any] = [context.Queue(maxsize=PREFETCH) for _ in range(workers)]
    processes = [
        context.Process(
            target=_produce,
            args=(range(start + i, schedule.steps, workers), seed, schedule, tokenizer_file, queue),
            daemon=True,
        )
        for i, queue in enumerate(queues)
    ]
    for process in processes:
        process.start()
    try:
        for step in range(start, schedule.steps):
            at = (step - start) % workers
            while True:
                try:
                    batch = queues[at].get(timeout=ALIVE_EVERY)
                    break
                except Empty:
                    if not processes[at].is_alive():
                        raise RuntimeError(f"data process {at} died before step {step}") from None
            if isinstance(batch, str):
                raise RuntimeError(f"the data process failed: {batch}")
            yield batch
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _produce(steps: range, seed: int, schedule: Schedule, tokenizer_file: Path, queue: Any) -> None:
    # A signal to the whole group (Ctrl-C, timeout) is the trainer's to obey: a process that ends while it
    # writes a batch would leave half of it, for whose rest the trainer would wait for ever.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_trainer, daemon=True).start()
    try:
        template = Template(Tokenizer.from_file(str(tokenizer_file)))
        names = NameSource("train")
        for step in steps:
            queue.put(make_batch(step, seed, schedule, template, names))
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")
        raise


def _end_with_trainer() -> None:
    """Ends this process when the trainer has: of one that was killed, it would wait for room for ever."""
    trainer = multiprocessing.parent_process()
    assert trainer is not None
    trainer.join()
    os._exit(1)
