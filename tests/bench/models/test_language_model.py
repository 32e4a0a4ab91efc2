from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.heads import Heads
from bench.errors import ConfigError, InvalidLogitsError, WindowExceededError
from bench.flops.formulas import flops_of_usage
from bench.flops.meter import Meter, Usage, metered
from bench.models.api import Generation, Probe, Span
from bench.models.language_model import CausalLanguageModel, EngineContext
from tests.bench.engine.conversations import recomputed as attention_of_all
from tests.bench.models.builders import CAUSAL_FAMILIES, causal_model, language_model

QUESTION = "Can this question be answered? Who hid the red kite?\n"
NODES = [
    "* Mara Feld hid it in the old mill.\n",
    "* Otto Brand sold it, naïve 🎉 as he was.\n",
    "* The fair.\n",
]


run = asyncio.run


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that waits for models, run to its end."""
    return functools.wraps(test)(lambda **fixtures: run(test(**fixtures)))


def recomputed(lm: CausalLanguageModel, ids: list[int]) -> torch.Tensor:
    """Last-position logits of one plain forward over all ids, without any cache."""
    with torch.no_grad():
        return lm.hf_model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()


def ids_of(lm: CausalLanguageModel, *texts: str) -> list[int]:
    return [id_ for text in texts for id_ in lm.tokenize(text).ids]


def total(meter: Meter) -> Usage:
    usage = Usage()
    for part in meter.usage.values():
        usage.add(part)
    return usage


def counting(lm: CausalLanguageModel) -> FlopCounterMode:
    """A counter that knows the CPU's fused attention, which torch's own list leaves out; engine set up."""
    assert lm.engine is not None

    def attention(query: Any, key: Any, *_: Any, **__: Any) -> int:
        batch, heads, new, width = query
        return 4 * batch * heads * new * key[-2] * width

    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={fused: attention})


# ------------------------------------------------------------------- what is computed is what was asked


def test_a_rewound_context_goes_on_as_if_nothing_had_been() -> None:
    """Answer early, rewind, read on: as a replayed search does."""
    lm = language_model()

    async def search(early: bool) -> tuple[Probe, Generation, int]:
        context = await lm.open()
        await context.extend(QUESTION)
        await context.extend(NODES[0])
        mark = context.mark()
        if early:
            await context.probe(["Yes", "No"])
            await context.say("Yes")
            await context.extend("Answer it.")
            await context.generate(5)
            context.rewind(mark)
            await context.extend(NODES[2])  # still queued when it is forgotten
            context.rewind(mark)
        assert context.length == mark
        await context.extend(NODES[1])
        probe = await context.probe(["Yes", "No"])
        return probe, await context.generate(6), context.length

    with metered(Meter()) as late:
        straight = run(search(False))
    with metered(Meter()) as meter:
        rewound = run(search(True))
    assert rewound[0].logits == pytest.approx(straight[0].logits, abs=1e-4)
    assert rewound[1:] == straight[1:]
    assert meter.new_tokens > late.new_tokens


def test_settled_text_is_forwarded_once_and_reads_no_logits() -> None:
    lm = language_model(attention="eager")
    held: list[int] = []

    async def search(settle: bool) -> Probe:
        context = await lm.open()
        for text in (QUESTION, NODES[0]):
            await context.extend(text)
            if settle:
                await context.settle()
                await context.settle()
                held.append(context.length)
        await context.extend(NODES[1])
        return await context.probe(["Yes", "No"])

    with metered(Meter()) as straight:
        expected = run(search(False))
    with metered(Meter()) as meter, counting(lm) as counter:
        settled = run(search(True))
    assert settled.logits == pytest.approx(expected.logits, abs=1e-4)
    assert (meter.new_tokens, total(meter).logit_rows) == (straight.new_tokens, 1)
    assert (total(meter).calls, total(meter).cached) == (3, sum(held))
    assert flops_of_usage(lm.architecture, total(meter), "matmul") == counter.get_total_flops()


@awaited
async def test_every_call_counts_what_the_context_held_before_it() -> None:
    """A probe's text and closing are one call; of a generation, the prompt is one and each further token."""
    with metered(Meter()) as meter:
        context = await language_model().open()
        held = []
        for node in (QUESTION, NODES[0]):
            await context.extend(node)
            held.append(context.length)
            await context.probe(["Yes", "No"])
        prompt = (await context.generate(4)).prompt_tokens
    use = {phase: used for (_, phase), used in meter.usage.items()}
    assert use["probe"].cached == 0 + held[0]
    assert use["prefill"].cached == held[1]
    n = use["decode"].calls
    assert n and use["decode"].cached == sum(prompt + i for i in range(n))


@pytest.mark.parametrize("heads", [None, Heads(((0, 3), (2, 1)))], ids=["all heads", "two heads"])
@awaited
async def test_recorded_attention_is_eager_attentions_through_probes_and_answers(heads: Heads | None) -> None:
    lm = language_model()
    lm.stops = frozenset()
    context = await lm.open()
    ids = list(lm.chat.opening)

    async def extend(text: str) -> Span:
        ids.extend(ids_of(lm, text))
        return await context.extend(text)

    question = await extend(QUESTION)
    assert context.watch(question, heads) == 0
    first = await extend(NODES[0])
    await context.probe(["Yes", "No"])
    assert context.watch(first, heads) == 1
    second = await extend(NODES[1])
    await context.probe(["Yes", "No"])
    mark = context.mark()
    await context.extend("an aside that is taken back")
    await context.generate(4)
    context.rewind(mark)
    third = await extend(NODES[2])
    assert len(context.recorded(third)) == 0, "queued tokens have no attention yet"
    answer = await context.generate(6)
    ids.extend([*lm.chat.closing, *answer.token_ids])
    spans = [(span.start, span.end) for span in (question, first)]
    _, expected = attention_of_all(causal_model("llama", "eager"), ids, spans, heads)
    for span in (first, second, third):
        rows = context.recorded(span)
        assert rows.shape == (len(span), 2)
        known = expected[span.start : span.end].copy()
        if span is first:
            known[:, 1] = 0  # appended before its own span was watched
        np.testing.assert_allclose(rows, known, atol=1e-6, rtol=0)
    written = Span(answer.prompt_tokens, answer.prompt_tokens + len(answer.token_ids))
    rows = context.recorded(written)
    assert len(rows) == len(written) - 1, "the last generated token is still queued"
    np.testing.assert_allclose(rows, expected[written.start : written.end - 1], atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="before the context recorded"):
        context.recorded(Span(question.start - 1, question.end))


def same_rewound(read: Callable[[bool], Coroutine[Any, Any, np.ndarray[Any, Any]]]) -> None:
    """The attention that is read is the same, straight on and after a rewind."""
    straight, again = run(read(False)), run(read(True))
    assert straight.shape == again.shape and straight.all()
    np.testing.assert_allclose(again, straight, atol=1e-6, rtol=0)


def test_a_span_that_was_watched_where_the_mark_stands_is_still_watched_after_a_rewind() -> None:
    lm = language_model()

    async def read(rewound: bool) -> np.ndarray[Any, Any]:
        context = await lm.open()
        question = await context.extend(QUESTION)
        mark = context.mark()
        assert context.watch(question) == 0
        if rewound:
            await context.extend(NODES[1])
            await context.probe(["Yes", "No"])
            context.rewind(mark)
        node = await context.extend(NODES[0])
        await context.probe(["Yes", "No"])
        return context.recorded(node)

    same_rewound(read)


@awaited
async def test_text_that_was_appended_before_a_span_was_watched_records_nothing_of_it() -> None:
    """Also where it is still queued then, and is forwarded with the tokens that do record it."""
    context = await language_model().open()
    context.watch(await context.extend(QUESTION))
    before = await context.extend(NODES[0])
    context.watch(before)
    after = await context.extend(NODES[1])
    await context.probe(["Yes", "No"])
    assert context.recorded(before)[:, 0].all() and not context.recorded(before)[:, 1].any()
    assert context.recorded(after).all()


def test_a_rewind_drops_what_tokens_before_the_mark_recorded_of_a_span_behind_it() -> None:
    """They were still queued when it was watched, so their rows have a column for it."""
    lm = language_model()

    async def read(rewound: bool) -> np.ndarray[Any, Any]:
        context = await lm.open()
        context.watch(await context.extend(QUESTION))
        node = await context.extend(NODES[0])
        mark = context.mark()
        if rewound:
            context.watch(await context.extend(NODES[1]))
        await context.probe(["Yes", "No"])
        context.rewind(mark)
        return context.recorded(node)

    same_rewound(read)


@awaited
async def test_a_context_is_watched_by_heads_that_the_model_has_and_by_the_same_for_all_spans() -> None:
    lm = language_model()  # 3 layers of 8 heads
    context = await lm.open()
    span = await context.extend(QUESTION)
    for missing in ("3.0", "0.8"):
        with pytest.raises(ValueError, match=f"3 layers of 8 heads do not have all of the heads {missing}"):
            context.watch(span, Heads.parse(missing))
    assert context.watch(span, Heads.parse("2.7")) == 0
    with pytest.raises(ValueError, match="by the same heads, here 2.7"):
        context.watch(span)
    assert context.watch(span, Heads.parse("2.7")) == 1


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", CAUSAL_FAMILIES)
def test_a_search_on_the_cache_equals_recomputing_everything_each_step(family: str, attention: str) -> None:
    """Extend, probe, roll back, extend ... then a second turn and an answer, as PECAN does it."""
    lm = language_model(family, attention=attention)
    chat = lm.chat

    async def search() -> tuple[list[Probe], Generation, Generation]:
        async with await lm.open() as context:
            await context.extend(QUESTION)
            probes = []
            for node in NODES:
                await context.extend(node)
                probes.append(await context.probe(["Yes", "No"]))
            await context.say("Yes")
            await context.extend("Answer it.")
            first = await context.generate(6)
            await context.extend("Once more.")
            return probes, first, await context.generate(4)

    probes, first, second = run(search())
    yes, no = lm.choice_ids(["Yes", "No"])
    ids = [*chat.opening, *ids_of(lm, QUESTION)]
    for node, probe in zip(NODES, probes, strict=True):
        ids += ids_of(lm, node)
        logits = recomputed(lm, [*ids, *chat.closing])
        assert probe.logits["Yes"] == pytest.approx(logits[yes].item(), abs=2e-4)
        assert probe.logits["No"] == pytest.approx(logits[no].item(), abs=2e-4)
        p_yes = 1 / (1 + math.exp(probe.logits["No"] - probe.logits["Yes"]))
        assert probe.probabilities["Yes"] == pytest.approx(p_yes, abs=1e-9)
        assert sum(probe.probabilities.values()) == pytest.approx(1, abs=1e-12)
        mass = torch.softmax(logits, 0)[[yes, no]].sum().item()
        assert probe.mass == pytest.approx(mass, abs=1e-5)
    ids += [*chat.reply_opening, *ids_of(lm, "Yes"), *chat.next_turn]
    ids += [*ids_of(lm, "Answer it."), *chat.closing]
    for generation, next_text in ((first, "Once more."), (second, "")):
        assert generation.prompt_tokens == len(ids)
        for token in generation.token_ids:
            assert token == int(recomputed(lm, ids).argmax())
            ids.append(token)
        if generation.finish == "stop":
            assert int(recomputed(lm, ids).argmax()) in lm.stops
        ids += [*chat.next_turn, *ids_of(lm, next_text), *chat.closing]


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it() -> None:
    lm = language_model()
    free = run(lm.generate(QUESTION, 10))
    assert free.finish == "length"
    stop = free.token_ids[4]
    lm.stops = lm.stops | {stop}
    stopped = run(lm.generate(QUESTION, 10))
    cut = free.token_ids.index(stop)
    assert (stopped.finish, stopped.token_ids) == ("stop", free.token_ids[:cut])


# ------------------------------------------------------------------------------------- spans and lengths


@awaited
async def test_extend_returns_the_span_of_the_text_or_of_its_focus() -> None:
    lm = language_model()
    context = await lm.open()
    start, text = context.length, "* Mara Feld hid it.\n"
    whole = await context.extend("Information:\n")
    inner = await context.extend(text, focus=(2, len(text) - 1))
    empty = await context.extend("")
    assert (whole.start, empty) == (start, Span(context.length, context.length))
    tokens = lm.tokenize(text)
    inside = [i for i, (a, b) in enumerate(tokens.offsets) if a < 19 and b > 2]
    assert inner == Span(whole.end + inside[0], whole.end + inside[-1] + 1)
    assert len(inner) < len(tokens.ids)


@awaited
async def test_a_span_after_an_answer_lies_behind_the_new_turn_s_header() -> None:
    lm = language_model()
    context = await lm.open()
    await context.extend(QUESTION)
    answer = await context.generate(3)
    after = context.length
    assert after == answer.prompt_tokens + len(answer.token_ids)
    span = await context.extend("More.")
    assert span.start == after + len(lm.chat.next_turn)
    assert span.end == context.length


# ------------------------------------------------------------------------------------------ the window


@awaited
async def test_a_text_that_does_not_fit_is_refused_and_nothing_is_appended() -> None:
    context = await language_model(max_position_embeddings=96).open()
    await context.extend("short")
    before = context.length
    with pytest.raises(WindowExceededError, match=f"the context has {before} and was opened for 96"):
        await context.extend("word " * 100)
    with pytest.raises(WindowExceededError):
        await context.say("word " * 100)
    assert context.length == before
    await context.probe(["Yes", "No"])


@awaited
async def test_the_header_of_the_next_turn_needs_room_too() -> None:
    lm = language_model()
    lm.stops = frozenset()
    context = await lm.open(128)
    await context.extend(QUESTION)
    await context.generate(3)
    before = context.length
    room = 128 - before - len(lm.chat.closing)
    text = "." * room
    assert lm.count_tokens(text) == room > len(lm.chat.next_turn) > 0
    with pytest.raises(WindowExceededError, match=f"the context has {before} and was opened for 128"):
        await context.extend(text)
    assert context.length == before
    await context.extend(text[len(lm.chat.next_turn) :])
    assert context.length == 128 - len(lm.chat.closing)


def test_a_context_has_the_room_it_was_opened_with() -> None:
    lm = language_model()

    async def room_of(max_tokens: int | None) -> int:
        context = await lm.open(max_tokens)
        while True:
            try:
                await context.extend(".")
            except WindowExceededError:
                return context.length + len(lm.chat.closing)

    assert run(room_of(None)) == lm.geometry.window == 512
    assert run(room_of(700)) == 700
    with pytest.raises(WindowExceededError, match="1025 tokens was requested; the model takes at most 1024"):
        run(lm.open(1025))


@awaited
async def test_an_answer_that_fills_the_context_ends_there() -> None:
    lm = language_model()
    lm.stops = frozenset()
    context = await lm.open(96)
    await context.extend(QUESTION)
    generation = await context.generate(500)
    assert (generation.finish, context.length) == ("window", 96)
    assert len(generation.token_ids) == 96 - generation.prompt_tokens


@awaited
async def test_an_answer_that_fills_the_context_writes_nothing_behind_it() -> None:
    lm = language_model()
    lm.stops = frozenset()
    context, neighbour = await lm.open(256), await lm.open(256)
    await neighbour.extend(QUESTION)
    await neighbour.settle()
    first = neighbour._slot.range.start
    before = lm.engine.runner.kv_cache.keys[0][first].clone()
    text = "Mara hid the kite in the mill. " * 60
    await context.extend(text[: lm.tokenize(text).offsets[255 - lm.chat_overhead][1]])
    await context.generate(5)
    with pytest.raises(WindowExceededError):
        await context.settle()
    assert torch.equal(lm.engine.runner.kv_cache.keys[0][first], before)


def test_a_prompt_with_its_answer_beyond_the_window_is_refused() -> None:
    lm = language_model(max_position_embeddings=96)
    room = 96 - lm.chat_overhead - lm.count_tokens(QUESTION)
    lm.stops = frozenset()
    assert run(lm.generate(QUESTION, room)).finish == "length"
    with pytest.raises(WindowExceededError, match="of 97 tokens was requested; the model takes at most 96"):
        run(lm.generate(QUESTION, room + 1))


# -------------------------------------------------------------------------------------------- the cost


@pytest.mark.parametrize("family", ["llama", "phi"])
@awaited
async def test_the_ledger_is_what_a_counter_measured_and_no_token_went_through_twice(family: str) -> None:
    lm = language_model(family, attention="eager")
    lm.stops = frozenset()
    with metered(Meter()) as meter, counting(lm) as counter:
        async with await lm.open() as context:
            await context.extend(QUESTION)
            for node in NODES:
                await context.extend(node)
                await context.probe(["Yes", "No"])
            await context.say("Yes")
            await context.extend("Answer it.")
            await context.generate(7)
            length = context.length
    assert flops_of_usage(lm.architecture, total(meter), "matmul") == counter.get_total_flops()
    phases = {phase: usage for (_, phase), usage in meter.usage.items()}
    probed = len(NODES) * len(lm.chat.closing)
    assert phases["probe"].new_tokens == probed
    assert phases["decode"].new_tokens == 6  # the seventh token is in the context, but not in the cache
    assert meter.new_tokens == (length - 1) + probed
    assert (phases["prefill"].calls, phases["probe"].calls, phases["decode"].calls) == (1, 3, 6)
    assert meter.flops == flops_of_usage(lm.architecture, total(meter), "paper")


# -------------------------------------------------------------------------------------------- bad input


def test_logits_that_are_not_numbers_are_an_error_and_never_an_answer() -> None:
    lm = language_model()
    lm.hf_model.lm_head.weight[3, 0] = float("nan")

    async def ask() -> None:
        context = await lm.open()
        await context.extend(QUESTION)
        with pytest.raises(InvalidLogitsError, match="llama: the logits are not numbers .*float32"):
            await context.probe(["Yes", "No"])
        with pytest.raises(RuntimeError, match="a forward of it failed"):
            await context.generate(3)

    meter = Meter()
    with metered(meter):
        run(ask())
    assert meter.new_tokens == 0
    with pytest.raises(InvalidLogitsError):
        run(lm.generate(QUESTION, 3))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (["Yes"], "2 or more non-empty"),
        (["Yes", ""], "2 or more non-empty"),
        (["Yes", "Yes"], "share a first token"),
        (["harbour", "harbours"], "share a first token"),
    ],
)
def test_choices_that_cannot_be_told_apart_are_refused(choices: list[str], message: str) -> None:
    context = run(language_model().open())
    with pytest.raises(ConfigError, match=message):
        run(context.probe(choices))


@awaited
async def test_a_closed_context_gives_its_memory_back_and_refuses_work() -> None:
    lm = language_model()
    context = await lm.open()
    async with context:
        await context.extend("text")
        await context.probe(["Yes", "No"])
    context.close()
    assert lm.engine.runner.kv_cache.free_tokens == lm.engine.runner.kv_cache.tokens
    with pytest.raises(RuntimeError, match="it is closed"):
        await context.extend("more")


def test_a_context_closed_while_it_is_read_writes_into_no_other() -> None:
    lm = language_model()

    async def close() -> Generation:
        async with await lm.open() as context:
            await context.extend("Mara Feld hid the red kite.")
            probe = asyncio.create_task(context.probe(["Yes", "No"]))
            await asyncio.sleep(0)
        generation = await lm.generate(QUESTION, 5)
        assert probe.cancelled()
        return generation

    assert run(close()) == run(lm.generate(QUESTION, 5))


@awaited
async def test_two_calls_on_one_context_at_once_are_refused() -> None:
    context: EngineContext = await language_model().open()
    await context.extend(QUESTION)
    answer = asyncio.create_task(context.generate(8))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="await one after the other"):
        await context.extend("more")
    await answer
    await context.extend("more")


def test_a_cancelled_answer_spoils_its_own_context_only() -> None:
    lm = language_model()

    async def cancel() -> Generation:
        context = await lm.open()
        await context.extend(QUESTION)
        answer = asyncio.create_task(context.generate(50))
        await asyncio.sleep(0)
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        with pytest.raises(RuntimeError, match="cancelled"):
            await context.extend("more")
        return await lm.generate(QUESTION, 5)

    assert run(cancel()) == run(lm.generate(QUESTION, 5))
