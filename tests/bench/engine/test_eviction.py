"""Scores of keys are those of kvpress's formulas, and a context without some keys attends to the others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

from bench.conformance import STORY
from bench.engine import eviction, key_scores
from bench.engine.eviction import REPEAT, REPEAT_FROM, SINKS, kept_keys, repetitions
from bench.engine.setup import engine_for
from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from tests.bench.models.builders import language_model

CHOICES = ("Yes", "No")
QUESTION = "\n\nQuestion:\nWho kept a goat?"


@pytest.fixture(scope="module")
def lm() -> Any:
    return load_language_model(resolve("tiny"))


@pytest.fixture(params=[2048, 40])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces longer than the text, and shorter ones."""
    monkeypatch.setattr(eviction, "PIECE", request.param)
    monkeypatch.setattr(key_scores, "PIECE", request.param)
    return int(request.param)


def text_of(lm: Any) -> list[int]:
    return [*lm.chat.opening, *lm.tokenize(STORY).ids]


def states(lm: Any, ids: list[int]) -> Iterator[tuple[Any, ...]]:
    """Each layer's queries before and after the rotary embedding, its keys after it, and its values."""
    model = lm.hf_model
    hidden = list[torch.Tensor]()
    hooks = [
        layer.self_attn.register_forward_hook(
            lambda module, args, kwargs, out: hidden.append(kwargs["hidden_states"]), with_kwargs=True
        )
        for layer in model.model.layers
    ]
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
        for hook in hooks:
            hook.remove()
        positions = torch.arange(len(ids))[None]
        for layer, x in zip(model.model.layers, hidden, strict=True):
            module = layer.self_attn
            q, k, v = (
                project(x).view(1, len(ids), -1, module.head_dim).transpose(1, 2)
                for project in (module.q_proj, module.k_proj, module.v_proj)
            )
            cos, sin = model.model.rotary_emb(x, positions)
            yield q[0], *(turned[0] for turned in apply_rotary_pos_emb(q, k, cos, sin)), v[0]


def test_expected_attention_is_kvpress_s_formula(lm: Any, pieces: int) -> None:
    ids = text_of(lm)
    found = key_scores.expected_attention(lm.hf_model, ids)
    assert found.shape == (lm.architecture.layers, lm.architecture.kv_heads, len(ids))
    assert np.isinf(found[..., :SINKS]).all()
    for at, (before, _, keys, values) in enumerate(states(lm, ids)):
        q = before[:, SINKS:]
        mu = q.mean(1)
        centred = q - mu[:, None]
        cov = torch.einsum("nsi,nsj->nij", centred, centred) / q.shape[1]
        d = q.shape[-1]
        cos, sin = lm.hf_model.model.rotary_emb(q, torch.arange(len(ids), len(ids) + 512)[None])
        turn = torch.zeros(d, d)
        turn[d // 2 :, : d // 2], turn[: d // 2, d // 2 :] = torch.eye(d // 2), -torch.eye(d // 2)
        mean = (cos[0][:, None] * torch.eye(d) + sin[0][:, None] * turn).mean(0)
        mu, cov = mu @ mean.T, mean @ cov @ mean.T
        k = repeat_kv(keys[None, :, SINKS:], len(q) // len(keys))[0].transpose(1, 2)
        logits = (mu[:, None] @ k)[:, 0] / math.sqrt(d)
        logits = logits + torch.einsum("hin,hij,hjn->hn", k, cov, k) / d / 2
        shares = logits.softmax(-1).view(len(keys), -1, k.shape[-1]).mean(1)
        expected = (shares * values[:, SINKS:].norm(dim=-1)).numpy()
        np.testing.assert_allclose(found[at, :, SINKS:], expected, rtol=2e-3, atol=1e-6)


def test_kvzip_is_the_most_attention_of_a_repetition(lm: Any, pieces: int) -> None:
    ids, opening = text_of(lm), len(lm.chat.opening)
    asked, again = lm.tokenize(REPEAT).ids, lm.tokenize(REPEAT_FROM).ids
    repeated = repetitions(ids, opening, asked, again, lm.chat.closing)
    found = key_scores.kvzip(lm.hf_model, ids, repeated)
    starts = range(opening, len(ids), pieces)
    assert [piece.start for piece in repeated] == list(starts) and len(starts) == (1 if pieces > 99 else 3)
    for start, piece in zip(starts, repeated, strict=True):
        body = ids[start : start + pieces]
        request = [*asked] if start == opening else [*again, *ids[start - 8 : start]]
        behind = [*request, *lm.chat.closing, *body]
        assert list(piece.tokens) == behind
        for at, (_, queries, keys, _) in enumerate(states(lm, [*ids, *behind])):
            new, group = len(behind), len(queries) // len(keys)
            near = torch.cat([keys[:, :SINKS], keys[:, start : start + len(body)], keys[:, -new:]], 1)
            logits = queries[:, -new:] @ repeat_kv(near[None], group)[0].transpose(1, 2)
            logits = logits / math.sqrt(keys.shape[-1])
            logits[..., -new:] += torch.full((new, new), -torch.inf).triu(1)
            paid = logits.softmax(-1)[..., SINKS : SINKS + len(body)]
            most = paid.view(len(keys), -1, len(body)).amax(1).numpy()
            np.testing.assert_allclose(found[at, :, start : start + len(body)], most, rtol=2e-3, atol=1e-6)
    assert np.isinf(found[..., :opening]).all() and np.isfinite(found[..., opening:]).all()


def test_the_lowest_scores_go_of_all_heads_or_of_each() -> None:
    scores = np.arange(24, dtype=np.float32).reshape(2, 2, 6)
    assert kept_keys(scores, 0.5, "kvzip").sum((1, 2)).tolist() == [0, 12]
    each = kept_keys(scores, 0.5, "expected")
    assert each.sum(-1).tolist() == [[3, 3], [3, 3]] and each[..., 3:].all()
    assert kept_keys(scores, 0.0, "kvzip").all() and kept_keys(scores, 0.0, "expected").all()
    assert kept_keys(scores, 0.2, "expected").sum(-1).tolist() == [[4, 4], [4, 4]], "int(6 * 0.8) stay"
    assert kept_keys(scores, 0.2, "kvzip").sum() == 24 - 4
    scores[..., :SINKS] = np.inf
    for rule in ("kvzip", "expected"):
        assert (kept_keys(scores, 0.9, rule) == np.isinf(scores)).all(), "what must stay stays"


def random_choice(lm: Any, tokens: int) -> Any:
    shape = lm.architecture
    kept = np.random.default_rng(1).random((shape.layers, shape.kv_heads, tokens)) < 0.6
    kept[..., :SINKS] = True
    return kept


async def asked(lm: Any, kept: Any = None) -> tuple[Any, Any, Meter]:
    """A probe and an answer behind the story, with all keys of it or a choice; and their cost."""
    async with await lm.open(400) as context:
        await context.extend(STORY)
        await context.settle()
        if kept is not None:
            context.keep(kept)
        with metered(Meter()) as meter:
            await context.extend(QUESTION)
            probe = await context.probe(CHOICES)
            return probe, await context.generate(12), meter


def test_what_is_read_later_attends_to_the_kept_keys_alone(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against explicit probabilities with a mask a head, token by token, in transformers' own forward."""
    text, question = text_of(lm), [*lm.tokenize(QUESTION).ids, *lm.chat.closing]
    kept, n = random_choice(lm, len(text)), len(text)

    def masked(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> Any:
        group, total = query.shape[1] // key.shape[1], key.shape[2]
        scores = query @ repeat_kv(key, group).transpose(2, 3) * scaling
        seen = torch.ones(query.shape[1], total, total, dtype=torch.bool).tril()
        of_layer = torch.from_numpy(kept[module.layer_idx]).repeat_interleave(group, 0)
        seen[:, n:, :n] &= of_layer[:, None]
        probabilities = scores.masked_fill(~seen[None], -torch.inf).softmax(-1)
        return (probabilities @ repeat_kv(value, group)).transpose(1, 2), None

    AttentionInterface.register("masked_in_a_test", masked)
    monkeypatch.setattr(lm.hf_model.config, "_attn_implementation", "masked_in_a_test")
    ids, written = [*text, *question], list[int]()
    with torch.inference_mode():
        logits = lm.hf_model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        while len(written) < 12:
            following = int(lm.hf_model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
            if following in lm.stops:
                break
            written.append(following)
            ids.append(following)
    monkeypatch.undo()
    probe, answer, _ = asyncio.run(asked(lm, kept))
    whole, *_ = asyncio.run(asked(lm))
    first = lm.choice_ids(CHOICES)
    np.testing.assert_allclose(list(probe.logits.values()), logits[first], atol=1e-3)
    assert list(answer.token_ids) == written
    assert abs(whole.logits["Yes"] - probe.logits["Yes"]) > 1e-2, "dropping keys makes a difference"


def test_no_key_dropped_reads_as_before_and_costs_the_same(lm: Any) -> None:
    kept = np.ones_like(random_choice(lm, len(text_of(lm))))
    (probe, answer, cost), (other, same, of_all) = (asyncio.run(asked(lm, k)) for k in (None, kept))
    np.testing.assert_allclose(list(probe.logits.values()), list(other.logits.values()), atol=1e-4)
    assert answer.token_ids == same.token_ids and cost.to_json() == of_all.to_json()


def test_attention_is_credited_for_the_keys_that_are_left(lm: Any) -> None:
    kept = random_choice(lm, len(text_of(lm)))
    _, _, whole = asyncio.run(asked(lm))
    _, _, fewer = asyncio.run(asked(lm, kept))
    dropped = round((~kept).sum() / kept[..., 0].size)
    assert 0.35 < dropped / kept.shape[-1] < 0.45
    for phase in ("prefill", "probe"):
        all_keys, some = whole.usage["tiny", phase], fewer.usage["tiny", phase]
        assert some.new_tokens == all_keys.new_tokens
        assert all_keys.attended - some.attended == dropped * all_keys.new_tokens


def test_what_was_read_without_some_keys_is_no_prefix_of_other_contexts(lm: Any) -> None:
    async def at_once() -> Any:
        async with await lm.open(400) as context:
            with metered(Meter()) as meter:
                await context.extend(STORY)
                await context.extend(QUESTION)
                return await context.generate(12), await logits_behind(context), meter

    async def logits_behind(context: Any) -> Any:
        await context.extend("Is that so?")
        return list((await context.probe(CHOICES)).logits.values())

    lm.forget()
    answer, logits, _ = asyncio.run(at_once())
    lm.forget()
    asyncio.run(asked(lm, random_choice(lm, len(text_of(lm)))))
    again, same, meter = asyncio.run(at_once())
    assert 90 < meter.reused_tokens <= len(text_of(lm)), "of the story, not of the question"
    assert answer.token_ids == again.token_ids
    np.testing.assert_allclose(logits, same, atol=1e-4)


def test_rows_with_and_without_all_keys_share_a_pass(lm: Any) -> None:
    kept = random_choice(lm, len(text_of(lm)))
    alone = [asyncio.run(asked(lm, k)) for k in (None, kept)]

    async def both() -> list[Any]:
        return list(await asyncio.gather(asked(lm), asked(lm, kept)))

    for (probe, answer, _), (other, same, _) in zip(alone, asyncio.run(both()), strict=True):
        np.testing.assert_allclose(list(probe.logits.values()), list(other.logits.values()), atol=1e-3)
        assert answer.token_ids == same.token_ids


def test_rewinding_into_the_text_brings_its_keys_back(lm: Any) -> None:
    async def rewound(some_keys: bool) -> Any:
        async with await lm.open(400) as context:
            await context.extend(STORY)
            await context.settle()
            if some_keys:
                context.keep(random_choice(lm, context.length))
            context.rewind(context.length - 1)
            await context.extend(QUESTION)
            return await context.probe(CHOICES)

    one, other = asyncio.run(rewound(True)), asyncio.run(rewound(False))
    np.testing.assert_allclose(list(one.logits.values()), list(other.logits.values()), atol=1e-4)


def test_a_choice_that_does_not_fit_is_refused(lm: Any) -> None:
    async def refused() -> None:
        async with await lm.open(400) as context:
            await context.extend(STORY)
            with pytest.raises(ValueError, match="settle the context first"):
                await context.importance("kvzip")
            await context.settle()
            kept = random_choice(lm, context.length)
            for wrong in (kept[1:], kept[:, 1:], random_choice(lm, context.length + 1)):
                with pytest.raises(ValueError, match="expected"):
                    context.keep(wrong)
            context.keep(kept)
            with pytest.raises(ValueError, match="records no attention"):
                context.watch(await context.extend(QUESTION))
            whole = context._slot.whole
            await context.settle()
            context.keep(kept)
            assert context._slot.whole == whole, "what was read without some keys is no prefix for others"
            with pytest.raises(ValueError, match=f"at most {whole}"):
                context.keep(random_choice(lm, context.length))

    asyncio.run(refused())


def test_expected_attention_refuses_a_rotation_that_is_not_llama_s() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model(
        "cohere", **sizes, vocab_size=99, intermediate_size=48, max_position_embeddings=64
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    engine_for("cohere", model, max_context=64)
    with pytest.raises(ConfigError, match="unlike Llama. Use evict=kvzip"):
        key_scores.expected_attention(model, [7, 8, 9])


def test_a_model_whose_layers_forget_by_themselves_is_refused() -> None:
    mistral = language_model("mistral")

    async def refused() -> None:
        async with await mistral.open(64) as context:
            await context.extend("Mara Feld hid the red kite.")
            await context.settle()
            with pytest.raises(ConfigError, match="attends to the last"):
                await context.importance("expected")

    asyncio.run(refused())
