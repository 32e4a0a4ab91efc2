"""Who goes next and what becomes of it, without a model."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from bench.engine.kv_cache import PAGE, Pages
from bench.engine.prefixes import Slot
from bench.engine.scheduler import Limits, Outcome, Request, Scheduler


def scheduler(tokens: int = 8, rows: int = 4) -> Scheduler:
    return Scheduler(Pages(16 * PAGE), Limits(tokens, rows))


def request(of: Scheduler, prompt: int, **options: int) -> Request:
    free = of.allocate(PAGE)
    return Request(Slot(free), list(range(prompt)), **{"limit": PAGE, **options})


def turn(of: Scheduler, token: int = 7) -> list[tuple[int, list[int]]]:
    """One pass in which every step reads the same token: each request's prompt and the tokens chosen."""
    steps = of.next()
    for step in steps:
        if of.advance(step, Outcome(token)):
            of.requests.remove(step.request)
    return [(step.request.prompt, step.tokens) for step in steps]


def test_a_long_prompt_goes_in_pieces_that_leave_decoding_rows_their_token() -> None:
    queue = scheduler(tokens=8)
    queue.add(request(queue, 3, decode=4))
    queue.add(request(queue, 12))
    assert turn(queue) == [(3, [0, 1, 2]), (12, [0, 1, 2, 3, 4])]
    assert turn(queue) == [(3, [7]), (12, [5, 6, 7, 8, 9, 10, 11])]
    assert turn(queue) == [(3, [7])], "the prompt is finished: it wanted no token"


def test_prompts_of_one_length_go_one_after_the_other_and_a_shorter_one_passes() -> None:
    queue = scheduler(tokens=4)
    first, second = request(queue, 10), request(queue, 10)
    queue.add(first)
    queue.add(second)
    turn(queue)
    assert (first.forwarded, second.forwarded) == (4, 0)
    queue.add(request(queue, 3))
    assert [prompt for prompt, _ in turn(queue)] == [3, 10]
    turn(queue)
    turn(queue)
    assert first.forwarded == 10 and second.forwarded == 3


@pytest.mark.parametrize(("tokens", "short"), [(8, 4), (2, 1)], ids=["as usual", "after too little memory"])
def test_short_prompts_that_keep_coming_do_not_hold_up_a_long_one_for_ever(tokens: int, short: int) -> None:
    queue = scheduler(tokens)
    long = request(queue, 40)
    queue.add(long)
    passes = 0
    while long.forwarded < 40:
        passes += 1
        assert passes < 100
        for _ in range(2):  # as much as a pass takes
            queue.add(request(queue, short))
        for step in queue.next():
            if queue.advance(step, Outcome()):
                queue.requests.remove(step.request)
                queue.free(step.request.slot, retain=False)
    assert passes > 20, "short ones go first"


def test_answers_take_turns_where_a_pass_has_fewer_rows() -> None:
    """As after a pass that ran out of memory."""
    queue = scheduler(tokens=100, rows=3)
    answers = [request(queue, 2, decode=20) for _ in range(3)]
    for one in answers:
        queue.add(one)
    turn(queue)
    queue.limits = Limits(100, 2)
    for _ in range(6):
        turn(queue)
    assert [len(one.answer) for one in answers] == [5, 5, 5]


def test_the_scheduler_needs_no_torch() -> None:
    code = "import sys, bench.engine.scheduler; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ARRIVALS = st.tuples(
    st.sampled_from([0, 40, 90, 130]),  # tokens shared with others of the stem
    st.integers(0, 2),  # the stem
    st.integers(1, 60),  # tokens of its own
    st.sampled_from([0, 0, 1, 5]),  # decoded
    st.integers(0, 12),  # the pass before which it comes
    st.none() | st.integers(0, 20),  # the pass before which it is cancelled
    st.booleans(),  # whether its keys and values are kept for others
)


@settings(max_examples=100, deadline=None)
@given(arrivals=st.lists(ARRIVALS, max_size=12), tokens=st.integers(1, 64), rows=st.integers(1, 4))
def test_whatever_comes_and_goes_every_request_ends_with_its_own_tokens_and_its_pages_are_free(
    arrivals: list[tuple[int, int, int, int, int, int | None, bool]], tokens: int, rows: int
) -> None:
    queue = Scheduler(Pages(32 * PAGE), Limits(tokens, rows), retained_tokens=4 * PAGE)
    waiting, open_, passes = dict(enumerate(arrivals)), dict[int, Request](), 0
    held: dict[int, list[int]] = {}  # by the start of its range, the tokens whose keys and values are there
    queue.pages.copy = lambda source, target, n: held.update({target: held[source][:n]})  # type: ignore[method-assign]
    while waiting or queue.requests:
        for at in [at for at, (*_, comes, _, _) in waiting.items() if comes <= passes]:
            shared, stem, own, decode, *_ = waiting.pop(at)
            open_[at] = request(queue, 0, decode=decode)
            open_[at].tokens = [stem] * shared + [100 + at] * own
            queue.add(open_[at])
        for at in [at for at in open_ if arrivals[at][5] is not None and arrivals[at][5] <= passes]:
            queue.requests.remove(open_[at])
            queue.free(open_.pop(at).slot, retain=arrivals[at][6])
        steps = queue.next()
        assert bool(steps) == bool(queue.requests), "someone goes in every pass"
        assert len(steps) <= rows and sum(len(step.tokens) for step in steps) <= tokens
        for step in steps:
            slot = step.request.slot
            held[slot.range.start] = held.get(slot.range.start, [])[: slot.length] + step.tokens
            if queue.advance(step, Outcome(7)):
                assert held[slot.range.start] == slot.tokens
                queue.requests.remove(step.request)
                at = next(at for at, one in open_.items() if one is step.request)
                done, decoded = open_.pop(at), arrivals[at][3]
                assert done.answer == [7] * decoded
                kept = len(done.tokens) + max(0, decoded - 1)
                assert done.slot.tokens == [*done.tokens, *done.answer][:kept]
                queue.free(done.slot, retain=arrivals[at][6])
        passes += 1
        assert passes < 3_000
    queue.forget()
    assert queue.pages.free_tokens == 32 * PAGE
