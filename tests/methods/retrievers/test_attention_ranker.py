"""Attention as ranker: its scores are those of QRHead's algorithm, and its costs closed forms."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.conformance import DOCUMENTS, STORY
from bench.errors import ConfigError
from bench.flops.meter import Meter, Usage, metered
from bench.method import RankedChunks, beginning
from bench.method.options import build_config
from bench.models.model_set import LoadedModels
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet, Index, Question
from methods.retrievers.attention_ranker import (
    HEAD,
    NULL_QUERY,
    PARAGRAPH,
    TAIL,
    AttentionRanker,
    AttentionRankerConfig,
    windows_of,
    without_outliers,
)
from tests.bench.models.builders import model_by_formula

SPEC = resolve("tiny")
QUERY = "Where did Mara Feld hide the silver kite?"
LONG = DocumentSet((Document("", "\n".join([STORY] * 24)),))


def ranker(**options: Any) -> AttentionRanker:
    return AttentionRanker(AttentionRankerConfig(**options), SPEC.geometry)


def ranked(
    *queries: str, documents: DocumentSet = DOCUMENTS["story"], together: bool = False, **options: Any
) -> tuple[list[RankedChunks], Index, Meter, list[Meter], LoadedModels]:
    """The rankings of the queries, the index, the meters of index and queries, and the models."""
    method, models = ranker(**options), LoadedModels({"reader": SPEC})

    async def rank(index: Index, query: str) -> tuple[RankedChunks, Meter]:
        with metered(Meter()) as meter:
            return await method.rank(index, Question(query, documents, 8), models), meter

    async def ask() -> Any:
        with metered(Meter()) as building:
            index = await method.index(documents, models)
        if together:
            found = await asyncio.gather(*(rank(index, query) for query in queries))
        else:
            found = [await rank(index, query) for query in queries]
        return [one for one, _ in found], index, building, [meter for _, meter in found], models

    result: tuple[list[RankedChunks], Index, Meter, list[Meter], LoadedModels] = asyncio.run(ask())
    return result


def scored_alone(chunks: Any, query: str, method: AttentionRanker, models: Any) -> Any:
    async def scored() -> Any:
        with metered(Meter()):
            index = Index(*await method.prepare(chunks, models))
            return await method.score(chunks, index, Question(query, LONG, 8), models)

    return asyncio.run(scored())


TEMPLATE = (
    "<|im_start|>user {% for m in messages %}{% if not loop.first %}<|im_start|>{{ m['role'] }}\n{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
)
"""The prompt around the user's turn that QRHead writes for Qwen2.5."""


@pytest.mark.parametrize(
    ("heads", "count", "expected"),
    [
        ("all", 8, (0.003352261, -0.027633499, -0.043942876)),
        ("1.0+1.3", 2, (-0.000072757, -0.004461512, -0.006218818)),
        ("top_layers", 4, (0.008363483, -0.011644119, -0.011458120)),
    ],
)
def test_scores_are_those_that_qrhead_s_code_gave(heads: str, count: int, expected: Sequence[float]) -> None:
    """Sums over heads by QRRetriever.score_docs of princeton-pli/QRHead at 7a668e79 for the same weights.

    With its Qwen2 in fp32 and eager attention, in transformers 4.48.3; null query N/A; head sets full_heads,
    1-0,1-3 and all of layer 1.
    """
    texts = "Mara hid the silver kite in a mill.\nOtto kept a goat.\nRain fell on the harbour all day long."
    lm = model_by_formula(TEMPLATE)
    chunks = [SimpleNamespace(text=text) for text in texts.split("\n")]
    models = SimpleNamespace(lm=lambda: lm)
    found = scored_alone(chunks, "Where is the silver kite?", ranker(heads=heads), models) * count
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * max(map(abs, expected)))


def test_the_null_query_as_a_question_says_nothing_of_any_chunk() -> None:
    (null, asked), *_ = ranked(NULL_QUERY, QUERY)
    assert np.abs(null.scores).max() < 1e-6 < 1e-3 < np.abs(asked.scores).max() and asked.flags == ()


def test_index_and_question_cost_what_their_tokens_cost() -> None:
    (found, _), _, building, (meter, again), models = ranked(QUERY, QUERY)
    lm: Any = models.lm()
    texts = [PARAGRAPH.format(number=at + 1, text=chunk.text) for at, chunk in enumerate(found.chunks)]
    p = len(lm.chat.opening) + sum(map(lm.count_tokens, [HEAD, *texts]))
    asking = [lm.count_tokens(TAIL.format(query=query)) for query in (NULL_QUERY, QUERY)]
    null, q = (tokens + len(lm.chat.closing) for tokens in asking)

    def priced(usage: Usage) -> Usage:
        with metered(Meter()) as priced_alone:
            lm.credit(priced_alone, "prefill", usage)
        return priced_alone.usage["tiny", "prefill"]

    built = priced(Usage(2, p + null, p * p + null * (p + null), 1, cached=p))
    assert building.usage == {("tiny", "prefill"): built}
    asked = priced(Usage(1, q, q * (p + q), 1, cached=p))
    assert meter.usage == again.usage == {("tiny", "prefill"): asked}
    assert meter.flops < building.flops / 3
    assert q <= meter.new_tokens - meter.reused_tokens < p, "what is kept of the chunks is not computed again"


def test_scores_do_not_depend_on_what_is_asked_beside() -> None:
    queries = [QUERY, "Who was afraid of thunder?", "Who kept a goat?"]
    alone, together = ranked(*queries)[0], ranked(*queries, together=True)[0]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-6)


def test_a_text_over_the_window_is_scored_in_windows_of_whole_chunks() -> None:
    (found,), index, *_, models = ranked(QUERY, documents=LONG)
    lm, counts = models.lm(), index.data["windows"]
    assert found.flags == ("scored_in_windows",) and len(counts) > 1
    assert sum(counts) == len(found.chunks) == len(found.scores)
    texts = [chunk.text for chunk in found.chunks]
    windows = list(windows_of(texts, lm))
    assert [len(window) for window in windows] == counts and [t for w in windows for t in w] == texts
    room = lm.geometry.window - lm.chat_overhead - lm.count_tokens(HEAD + TAIL) - lm.geometry.chunk_tokens
    for window, after in itertools.pairwise(windows):
        pieces = [PARAGRAPH.format(number=at, text=t) for at, t in enumerate([*window, after[0]], 1)]
        assert sum(map(lm.count_tokens, pieces[:-1])) <= room < sum(map(lm.count_tokens, pieces))
    second = [SimpleNamespace(text=text) for text in windows[1]]
    alone = scored_alone(second, QUERY, ranker(), models)
    np.testing.assert_allclose(found.scores[counts[0] : counts[0] + counts[1]], alone, atol=1e-6)
    long = " ".join([QUERY] * 40)  # more than the room of a window asked for more than the model has
    both, _, _, meters, _ = ranked(long, beginning(lm, long, lm.geometry.chunk_tokens))
    np.testing.assert_array_equal(both[0].scores, both[1].scores)
    assert [meter.events for meter in meters] == [{"question_cut"}, set()]


def test_tokens_far_below_the_mean_do_not_count() -> None:
    low = np.array([0.1] * 9 + [-5.0])
    assert low[-1] < low.mean() - 2 * low.std(ddof=1)
    assert without_outliers(low) == pytest.approx(0.9)
    assert without_outliers(np.array([0.1, 0.2, 0.3])) == pytest.approx(0.6)
    assert without_outliers(np.array([-0.4])) == -0.4
    assert without_outliers(np.full(7, 0.5)) == pytest.approx(3.5)


def test_heads_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"heads=99\.0: tiny has"):
        ranked(QUERY, heads="99.0")
    with pytest.raises(ConfigError, match="does not list attention heads"):
        build_config(AttentionRankerConfig, {"heads": "many"}, "attention_ranker")
    with pytest.raises(ConfigError, match="one head alone reads as a number"):
        build_config(AttentionRankerConfig, {"heads": 3.1}, "attention_ranker")
