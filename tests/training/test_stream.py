import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from tokenizers import Tokenizer

from bench.files.paths import ASSETS
from training.generator.names import NameSource
from training.schedule import DEFAULT_SCHEDULE, Schedule, load_schedule
from training.stream import FACTS, HEAD_SHARE, Template, batches, draw_conversation, make_batch
from training.tasks import Options, Teacher, Turn

NAMES = NameSource("train")


@pytest.fixture(scope="module")
def template() -> Template:
    return Template(Tokenizer.from_file(str(ASSETS / "tiny" / "tokenizer.json")))


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return replace(load_schedule(), batch_tokens=2048)


@pytest.mark.parametrize("step", [10, 300, 700, 1500, 4000])
def test_replies_are_scored_to_the_end_of_turn(step: int, template: Template, schedule: Schedule) -> None:
    batch = make_batch(step, 1, schedule, template, NAMES)
    weights = schedule.at(step).stage.reply_weights
    flat = batch.ids.reshape(-1)
    targets = flat[batch.positions + 1]
    assert len(batch.positions) == len(batch.weights) == int(batch.ids.size * HEAD_SHARE)
    assert batch.tokens > 0.7 * batch.ids.size
    for start, end, kind in batch.segments:
        assert targets[end - 1] == template.eot
        before = batch.positions[start] + 1
        assert flat[before - len(template.assistant) : before].tolist() == template.assistant
        assert np.all(batch.weights[start:end] == weights.get(kind, 1))
    assert np.all(targets[batch.weights > 0] != 0)


def test_a_conversation_is_what_the_chat_template_gives(template: Template) -> None:
    from transformers import AutoTokenizer

    first = Turn("Information:\nA b.\n\nQuestion:\nWho?", "Mara Oakby", "one")
    turns = [first, Turn("Why?", " x\n\ny", "two")]
    ids, spans = template.conversation(turns)
    said = [pair for turn in turns for pair in (("user", turn.user), ("assistant", turn.reply))]
    messages = [{"role": role, "content": text} for role, text in said]
    whole = AutoTokenizer.from_pretrained(ASSETS / "tiny").apply_chat_template(messages, return_dict=False)
    assert ids == whole
    assert [template.tokenizer.decode(ids[a:b]) for a, b, _ in spans] == ["Mara Oakby", " x\n\ny"]


def test_every_task_of_the_committed_schedule_can_be_drawn_at_its_lengths() -> None:
    teacher = Teacher(NAMES, Options())
    schedules = sorted(DEFAULT_SCHEDULE.parent.glob("schedule*.yaml"))
    assert len(schedules) == 4
    for stage in (stage for path in schedules for stage in load_schedule(path).stages):
        for task in stage.mix:
            for length in stage.lengths:
                assert length in FACTS
                assert draw_conversation(random.Random(1), teacher, task, length)


def test_remembered_words_give_the_ids_of_the_tokenizer(template: Template) -> None:
    rng = random.Random(4)
    letters = "ab Z\n\n  '.,s09\t“”-*|<>’é\r_"
    odd = ["".join(rng.choices(letters, k=rng.randint(0, 14))) for _ in range(2000)]
    teacher = Teacher(NAMES, Options(styled=0.5))
    drawn = [draw_conversation(rng, teacher, task, 512) for task in load_schedule().stages[-1].mix]
    texts = [text for turns in drawn for turn in turns for text in (turn.user, turn.reply)]
    for text in odd + texts:
        assert template.encode(text) == template.tokenizer.encode(text).ids, repr(text)


def test_a_batch_depends_on_seed_and_step_alone(template: Template, schedule: Schedule) -> None:
    file = ASSETS / "tiny" / "tokenizer.json"
    one, two = (list(islice(batches(400, 1, schedule, file, workers), 5)) for workers in (1, 2))
    assert [batch.step for batch in two] == [400, 401, 402, 403, 404]
    assert all(np.array_equal(a.ids, b.ids) for a, b in zip(one, two, strict=True))
    assert all(np.array_equal(a.positions, b.positions) for a, b in zip(one, two, strict=True))
    for other in (one[1], make_batch(400, 2, schedule, template, NAMES)):
        assert not np.array_equal(one[0].ids[0, :50], other.ids[0, :50])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_leaves_no_half_batch(schedule: Schedule, number: int) -> None:
    """`timeout 100 python -m training.train` waited for ever for the rest of a batch."""
    stream = batches(400, 1, schedule, ASSETS / "tiny" / "tokenizer.json")
    next(stream)
    (maker,) = multiprocessing.active_children()
    time.sleep(0.2)  # so that it is writing: a batch is longer than what a pipe holds
    os.kill(maker.pid or 0, number)
    assert [batch.step for batch in islice(stream, 12)] == list(range(401, 413))
    stream.close()
    assert not maker.is_alive()
