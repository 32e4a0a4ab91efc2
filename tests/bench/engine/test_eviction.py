"""Scores of keys are those that kvpress gave, and a context without some keys attends to the others."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import repeat_kv

from bench.conformance import STORY
from bench.engine import eviction, key_scores
from bench.engine.eviction import SINKS, kept_keys
from bench.engine.setup import engine_for
from bench.errors import ConfigError
from bench.flops.meter import Meter, metered
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from tests.bench.models.builders import language_model, model_by_formula

CHOICES = ("Yes", "No")
QUESTION = "\n\nQuestion:\nWho kept a goat?"


@pytest.fixture(scope="module")
def lm() -> Any:
    return load_language_model(resolve("tiny"))


def text_of(lm: Any) -> list[int]:
    return [*lm.chat.opening, *lm.tokenize(STORY).ids]


KVPRESS = {
    "expected": """
    78ca86b8 7d898ce0 78e74590 7b392a11 7deaa6fa 7ddfdce0 7bf74fd0 7b7bee19
    .077689 .034598 .077753 .18259 .16637 .083326 .026155 .18126 .043045 .16262 .029359 .18016 .03662
    .083827 .043082 .029446 .17865 .084216 .054526 .17812 .076717 .1776 1.9903 .08495 .062528 .062537
    .037753 .23169 .063383 .23067 .24099 .12986 .086781 .16227 .24089 .13111 .13043 .20518 .24026 .13258
    .086372 .13111 .20629 .23956 .086183 .043908 .23928 .22721 .23896 .055474 .085957 .041058 .041039
    .080834 .085637 .11407 .12169 .14698 .1522 .16249 .12345 .060747 .17952 .53828 .25019 .060218 .23824
    .094817 .089922 .12535 .21927 .13197 .15296 .15719 .1193 .097969 .36298 .094516 .076413 .084167 .10655
    .011688 .03436 .031023 .0089951 .019158 .04707 3.8002 .044543 .0070088 .014652 .41512 .011919 .016898
    .032566 .0059153 .022667 .015756 .068351 .007575 .0075802 .011317 .0097129 .059205 .019886 .006525
    .0083146 .025141
    """,
    "kvzip": """
    78736816 7b041000 7e673f78 7a1b47e9 7c73ead6 7f9c9c60 7f7f7ff8 7a9bdffb
    .13295 .096508 .083594 .095061 .9697 .5751 .47875 .071258 .046786 .94322 .33582 .15563 .94323 .47891
    .048059 .59062 .084564 .11921 .023226 .10093 .25586 .075833 .69747 .096625 .54604 .56676 .016715 .27315
    .99879 .30221 .23393 .041258 .047783 .16945 .20749 .73951 .050338 .082038 .1091 .032911 .035905 .41475
    .10006 .11668 .075112 .046195 .061712 .13881 .10626 .057665 .090717 .021994 .021095 .075137 .36227
    .33557 .16743 .048786 .40488 .79384 .12066 .18695 .68906 .31726 .69414 .060406 .20801 .34641 .65774
    .50924 .31844 .49871 .41728 .25132 .3321 .28237 .64126 .61927 .035386 .035765 .091663 .051324 .3277
    .061943 .21085 .097738 .083535 .96918 .73516 .049323 .2761 .35316 .2433 .88745 .044051 .14189 .25642
    .80259 .43 .59891 .79938 .85722 .68324 .17379 .62905 .065627 .13161 .34838
    """,
    "kvzip in pieces": """
    78726816 7a841040 7d273f78 7a9947f9 7c73ea5e 7f9d94e1 7f6f7ff8 7af9cff9
    .39445 .19025 .19303 .17266 .99903 .8577 .71375 .15156 .084877 .99941 .39155 .37767 .99999 .88634 .08401
    .66019 .17516 .23262 .059513 .129 .31431 .21056 .65972 .27113 .61111 .57059 .08144 .28422 .99887 .39282
    .52961 .08607 .069037 .41673 .36552 .9763 .10947 .211 .38122 .049853 .075123 .5386 .15567 .3261 .11985
    .04084 .21197 .48169 .33537 .20652 .14472 .095495 .089664 .26208 .52526 .36567 .51263 .17533 .47758
    .88214 .0431 .29528 .92825 .72258 .80593 .090579 .28403 .55842 .72786 .68315 .55821 .94139 .6198 .28805
    .62586 .6545 .61548 .88082 .17236 .18607 .11957 .1679 .64832 .14869 .97777 .21313 .42432 .98291 .91071
    .098985 .20504 .8131 .25264 .84665 .19896 .15161 .39746 .89417 .64397 .73788 .78316 .97587 .56331 .51011
    .58678 .10353 .20762 .9347
    """,
}  # fmt: skip
"""For each layer and key head: what is kept at ratios 0.5 and 0.3, hexadecimal; scores behind the sinks."""
BYTES = (
    "{% for m in messages %}[{{ m['role'][0] }}]{{ m['content'] }};{% endfor %}"
    "{% if add_generation_prompt %}[a]{% endif %}"
)


@pytest.mark.parametrize("piece", [2048, 10])
@pytest.mark.parametrize("rule", ["expected", "kvzip"])
def test_scores_are_those_kvpress_gave(rule: Any, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What KVzipPress and ExpectedAttentionPress of kvpress 0.5.5 kept and scored with the same weights.

    Their defaults, transformers 5.2 with sdpa; for pieces ``chunk_size=10``. Expected Attention has none
    there, and gives the same here.
    """
    monkeypatch.setattr(eviction, "PIECE", piece)
    monkeypatch.setattr(key_scores, "PIECE", piece)
    lm = model_by_formula(BYTES)

    async def scored() -> Any:
        async with await lm.open(64) as other, await lm.open(64) as context:
            for opened, text in ((other, "Ada flew a drone."), (context, "Mara hid the kite in a mill.")):
                await opened.extend(text)
                await opened.settle()
            return await context.importance(rule)

    found = asyncio.run(scored())
    given = KVPRESS["kvzip in pieces" if (rule, piece) == ("kvzip", 10) else rule].split()
    expected = np.array(given[8:], float).reshape(2, 2, -1)
    np.testing.assert_allclose(found[..., SINKS:], expected, rtol=1e-4)
    assert np.isinf(found[..., :SINKS]).all()
    for ratio, rows in ((0.5, given[:4]), (0.3, given[4:8])):
        stays = [[int(bit) for bit in f"{int(row, 16):031b}"] for row in rows]
        np.testing.assert_array_equal(kept_keys(found, ratio, rule).reshape(4, -1), stays)


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
