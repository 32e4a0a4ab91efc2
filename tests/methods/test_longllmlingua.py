"""LongLLMLingua: the library's own text, every forward counted, the target kept.

The library cannot run as it is under the transformers that this project uses, so its text cannot be
compared with that of an untouched installation. What is shown instead: our subclass, with its key-value
cache and its tokenizer, writes the text that the library's unchanged class writes on a model that keeps
no cache and computes everything anew from the token ids at each call. Not shown here: texts longer than
the window, where the library keeps keys and values that no computation from the remaining ids gives.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from llmlingua import PromptCompressor
from torch.utils.flop_counter import FlopCounterMode

from bench.errors import ConfigError
from bench.flops.formulas import flops_of_usage
from bench.flops.meter import Meter, Usage, metered
from bench.method.chunking import chunk_documents
from bench.models.api import Geometry
from bench.models.language_model import CausalLanguageModel
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.schema import Document, DocumentSet, Prediction, Question
from methods.longllmlingua import OPTIONS, LongLlmLingua, LongLlmLinguaConfig
from methods.longllmlingua.library import OfflineCompressor, PlainTextTokenizer, compress
from tests.bench.models.builders import CORPUS, GEOMETRY, causal_model, hf_tokenizer, language_model

QUESTION = "Where did Mara Feld hide the red kite?"
AFTER = {**OPTIONS, "context_budget": "+25"}


def document(words: int, seed: int = 0) -> str:
    rng = random.Random(seed)
    pool = " ".join(CORPUS).split()
    return " ".join(rng.choice(pool) for _ in range(words))


def pieces(lm: CausalLanguageModel, text: str, chunk_tokens: int = 24) -> list[str]:
    chunks = chunk_documents(DocumentSet((Document("", text),)), lm.tokenize, chunk_tokens)
    return [chunk.text for chunk in chunks]


class RecomputingModel:
    """The tuple interface of old without a cache: the "keys" that it hands out are the token ids so far."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, input_ids: Any, attention_mask: Any, past_key_values: Any, use_cache: bool) -> Any:
        before = [] if past_key_values is None else past_key_values[0][0][0, 0, :, 0].tolist()
        ids = [*before, *input_ids[0].tolist()]
        logits = self.model(torch.tensor([ids]), use_cache=False).logits[:, len(before) :]
        kept = torch.tensor(ids)[None, None, :, None]
        return SimpleNamespace(logits=logits, past_key_values=[[kept, kept]])


def unchanged_library(family: str, window: int) -> Any:
    """The library's class without our subclass, as its constructor would leave it, on an eager model."""
    library = object.__new__(PromptCompressor)
    tokenizer = hf_tokenizer()
    library.__dict__.update(
        model_name=family,
        use_llmlingua2=False,
        retrieval_model=None,
        retrieval_model_name=None,
        open_api_config={},
        cache_bos_num=10,
        prefix_bos_num=100,
        oai_tokenizer=tokenizer,
        tokenizer=tokenizer,
        model=RecomputingModel(causal_model(family, "eager")),
        device=torch.device("cpu"),
        context_idxs=[],
        max_position_embeddings=window,
    )
    return library


@pytest.mark.parametrize("family", ["llama", "phi", "mistral"])
@pytest.mark.parametrize("iterative_size", [40, 110])
def test_the_text_is_that_of_the_unchanged_library(family: str, iterative_size: int) -> None:
    lm = language_model(family)
    chunks = pieces(lm, document(130))
    target = 0.5 * sum(lm.count_tokens(chunk) for chunk in chunks)
    ours = compress(lm, chunks, QUESTION, target_tokens=target, iterative_size=iterative_size, options=AFTER)
    library = unchanged_library(family, lm.geometry.window)
    lengths = {"target_token": target, "iterative_size": iterative_size, "concate_question": False}
    theirs = library.compress_prompt(list(chunks), question=QUESTION, **lengths, **AFTER)
    assert ours.text == theirs["compressed_prompt"]
    assert list(ours.ranking) == library.context_idxs[-1]
    assert 0 < lm.count_tokens(ours.text) < sum(lm.count_tokens(chunk) for chunk in chunks)


@pytest.mark.parametrize("family", ["llama", "phi"])
def test_a_chunk_is_ranked_by_the_perplexity_of_the_question_behind_it(family: str) -> None:
    lm = language_model(family)
    chunk, asked = document(40), f"{QUESTION} We can get the answer to this question in the given documents."
    perplexity = OfflineCompressor(lm, 512).get_condition_ppl(chunk, asked, "after")
    ids = hf_tokenizer()(chunk + asked).input_ids
    with torch.no_grad():
        logits = causal_model(family, "eager")(torch.tensor([ids]), use_cache=False).logits[0]
    losses = -logits[:-1].log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    after = len(hf_tokenizer()(chunk).input_ids) - 1
    assert float(perplexity) == pytest.approx(float(losses[after:].mean()), abs=1e-5)


def test_every_forward_is_counted_to_the_flop() -> None:
    lm = language_model("llama", attention="eager")
    chunks = pieces(lm, document(200))
    with metered(Meter()) as meter, FlopCounterMode(display=False) as counter:
        compressed = compress(lm, chunks, QUESTION, target_tokens=200, iterative_size=50, options=AFTER)
    assert set(meter.usage) == {("llama", "compress")}
    usage = meter.usage["llama", "compress"]
    assert (usage.calls, usage.new_tokens) == (compressed.usage.calls, compressed.usage.new_tokens)
    assert usage.logit_rows == usage.new_tokens, "the library asks for all logits"
    assert usage.flops == flops_of_usage(lm.architecture, usage, "paper")
    assert flops_of_usage(lm.architecture, usage, "matmul") == counter.get_total_flops()


def test_a_text_longer_than_the_window_is_compressed_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = language_model("phi")
    chunks = pieces(lm, document(1500), 40)
    longest: list[int] = []
    credit = lm.credit

    def watched(meter: Meter, phase: str, usage: Usage) -> None:
        longest.append(usage.attended // usage.new_tokens)
        credit(meter, phase, usage)

    monkeypatch.setattr(lm, "credit", watched)
    total = sum(lm.count_tokens(chunk) for chunk in chunks)
    assert total > 3 * lm.geometry.window
    compressed = compress(lm, chunks, QUESTION, target_tokens=0.5 * total, iterative_size=100, options=AFTER)
    assert max(longest) == lm.geometry.window
    assert 0.3 * total < lm.count_tokens(compressed.text) < 0.7 * total


def test_control_tokens_in_a_document_are_characters() -> None:
    tokenizer = PlainTextTokenizer(language_model("llama"))
    ids = tokenizer("before <|eot_id|> after").input_ids
    assert ids[0] == hf_tokenizer().bos_token_id, "as the library's tokenizer does"
    assert not set(ids[1:]) & set(hf_tokenizer().all_special_ids)
    assert tokenizer.batch_decode(torch.tensor([ids[1:]])) == ["before <|eot_id|> after"]
    plain = document(30)
    assert tokenizer(plain).input_ids == hf_tokenizer()(plain).input_ids


def ask(
    text: str, reader: str = "llama", compressor: str = "", question: str = QUESTION, **options: Any
) -> tuple[Prediction, Meter]:
    """The answer of a model of that family to the text that one of another, or itself, compresses."""
    lm = language_model(reader)
    roles = {"reader": lm, "compressor": language_model(compressor) if compressor else lm}
    models: Any = SimpleNamespace(lm=lambda role="reader": roles[role])
    method = LongLlmLingua(LongLlmLinguaConfig(**options), lm.geometry)
    documents = DocumentSet((Document("", text),))

    async def both() -> tuple[Prediction, Meter]:
        index = await method.index(documents, models)
        with metered(Meter()) as meter:
            return await method.answer(index, Question(question, documents, 4), models), meter

    return asyncio.run(both())


def test_the_reader_never_gets_more_than_the_target() -> None:
    count = language_model("llama").count_tokens
    overshot = 0
    for seed, rate in [(0, 0.2), (1, 0.35), (2, 0.5), (3, 0.55), (4, 0.9)]:
        prediction, meter = ask(document(120, seed), compressor="phi", rate=rate)
        trace = prediction.trace
        (item,) = prediction.context
        assert item.node == "compressed" and item.start is None
        assert count(item.text) == trace["given_tokens"] <= trace["target_tokens"]
        assert trace["target_tokens"] == int(rate * trace["document_tokens"])
        assert 0.5 * rate < trace["achieved_rate"] <= rate
        assert ("cut_at_target" in prediction.flags) == (trace["compressed_tokens"] > trace["target_tokens"])
        overshot += trace["compressed_tokens"] > trace["target_tokens"]
        assert sorted(trace["ranking"]) == list(range(trace["chunks"]))
        assert {model for model, phase in meter.usage if phase == "compress"} == {"phi"}
        assert meter.usage["phi", "compress"].new_tokens == trace["compressor_tokens"]
        assert "compressed_by_reader" not in prediction.flags and not prediction.truncated
    assert overshot, "the library did not overshoot once, so the cut was not tried"


def test_a_document_too_long_for_the_reader_is_compressed_to_what_fits() -> None:
    prediction, _ = ask(document(1500), rate=1.0)
    assert prediction.truncated
    assert 900 < prediction.prompt_tokens <= GEOMETRY.input_limit - 4


@pytest.mark.parametrize("text", ["a", "\n\n kite", "👩\u200d👧"])
def test_texts_of_a_few_tokens(text: str) -> None:
    prediction, _ = ask(text, "phi")
    assert prediction.trace["given_tokens"] <= max(1, prediction.trace["target_tokens"])


def test_a_document_of_two_tokens_has_nothing_to_drop() -> None:
    lm = load_language_model(resolve("tiny-s"))
    assert compress(lm, ["7"], QUESTION, target_tokens=1, iterative_size=50, options=AFTER).text == "7"


def test_a_question_that_fills_the_compressors_window_is_cut_for_it_and_flagged() -> None:
    prediction, _ = ask(document(200), question=document(250, 9))
    assert "question_cut" in prediction.flags
    assert prediction.trace["given_tokens"] > 0


def test_who_compresses_by_default() -> None:
    def role(geometry: Geometry, **options: Any) -> str:
        return LongLlmLingua(LongLlmLinguaConfig(**options), geometry).roles()["compressor"].model

    large = resolve("llama-3.1-8b").geometry
    assert role(large) == "phi-2"
    assert role(resolve("tiny").geometry) == "tiny-s"
    assert role(large, compressor="reader") == ""
    assert role(resolve("tiny").geometry, compressor="phi-2") == "phi-2"


def test_chunks_that_the_compressors_window_does_not_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than half of llama's window"):
        ask(document(300), chunk_tokens=400)


def test_engine_and_library_share_a_model_without_disturbing_each_other() -> None:
    lm = language_model("llama")
    chunks = pieces(lm, document(100))

    def shorten() -> str:
        return compress(lm, chunks, QUESTION, target_tokens=80, iterative_size=40, options=AFTER).text

    async def converse(model: CausalLanguageModel, texts: list[str] | None) -> list[float]:
        probabilities = []
        async with await model.open() as context:
            for at in range(4):
                context.watch(await context.extend(f"The baker walked to the mill {at}."))
                probabilities.append((await context.probe(["Yes", "No"])).probabilities["Yes"])
                if texts is not None:
                    texts.append(shorten())
        return probabilities

    async def several(texts: list[str]) -> list[list[float]]:
        return list(await asyncio.gather(*(converse(lm, texts) for _ in range(3))))

    alone = shorten()
    expected = asyncio.run(converse(language_model("llama"), None))
    texts: list[str] = []
    for probabilities in asyncio.run(several(texts)):
        assert probabilities == pytest.approx(expected, abs=1e-5)
    assert texts == [alone] * 12
    assert lm.hf_model.config._attn_implementation == "sdpa"
    assert not lm.hf_model._forward_hooks, "no hook is left behind"
