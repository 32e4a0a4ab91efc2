from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.flops.formulas import flops_of_usage, texts_usage
from bench.flops.meter import Meter, metered
from bench.models.embedder import Embedder
from bench.models.model_set import load_embedder
from bench.models.spec import resolve
from tests.bench.models.builders import SPECIAL, save_encoder

TEXTS = [
    "The baker hid the red kite in the old mill.",
    "",
    "A lighthouse keeper lived by the river. " * 60,
    "naïve 🎉 日本",
    "Who hid the kite?",
]


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return load_embedder(resolve("minilm", device="cpu"))


def embed(encoder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    return asyncio.run(encoder.embed(texts))


def test_minilm_is_what_its_preset_says(minilm: Embedder) -> None:
    preset = resolve("minilm").preset
    assert minilm.architecture == preset.architecture
    assert minilm.max_tokens == preset.max_tokens == 256
    assert minilm.dim == 384
    pooling, normalise = minilm.hf_model[1], minilm.hf_model[2]
    assert pooling.pooling_mode == preset.pooling
    assert type(normalise).__name__ == "Normalize"


def test_a_text_s_embedding_does_not_depend_on_its_batch(minilm: Embedder) -> None:
    together = embed(minilm, TEXTS)
    alone = np.concatenate([embed(minilm, [text]) for text in TEXTS])
    shuffled = embed(minilm, TEXTS[::-1])[::-1]
    np.testing.assert_allclose(together, alone, atol=2e-6)
    np.testing.assert_allclose(together, shuffled, atol=2e-6)
    np.testing.assert_array_equal(together, embed(minilm, TEXTS))


def test_a_long_text_is_its_beginning_and_that_is_counted(minilm: Embedder) -> None:
    lengths = minilm.token_lengths(TEXTS)
    assert lengths[1] == 2  # [CLS] and [SEP] alone
    assert lengths[2] > 256
    assert minilm.truncated(TEXTS) == 1
    assert minilm.truncated([]) == 0
    words = TEXTS[2].split()
    fits = next(n for n in range(len(words), 0, -1) if minilm.token_lengths([" ".join(words[:n])])[0] <= 256)
    cut = " ".join(words[:fits])
    assert minilm.token_lengths([cut]) == [256]
    np.testing.assert_allclose(embed(minilm, [cut]), embed(minilm, [TEXTS[2]]), atol=2e-6)


def test_the_cost_is_that_of_the_tokens_encoded_without_padding(minilm: Embedder) -> None:
    lengths = [min(n, 256) for n in minilm.token_lengths(TEXTS)]
    with metered(Meter()) as meter:
        embed(minilm, TEXTS)
    (key,) = meter.usage
    assert key == ("minilm", "embed")
    usage = meter.usage[key]
    assert usage == texts_usage(minilm.architecture, lengths)
    assert (usage.calls, usage.new_tokens, usage.attended) == (5, sum(lengths), sum(n * n for n in lengths))
    assert meter.flops == flops_of_usage(minilm.architecture, usage, "paper")
    assert meter.flops > 2 * 22_713_216 * sum(lengths)


def test_a_question_is_embedded_once_at_one_cost(minilm: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "Who hid the kite before anybody had asked for it?"
    with metered(Meter()) as first_meter:
        first = asyncio.run(minilm.embed([question]))
    kept = first.copy()
    first += 1  # the caller's own
    monkeypatch.setattr(minilm, "_encode", lambda *_: pytest.fail("embedded again"))
    with metered(Meter()) as second_meter:
        second = asyncio.run(minilm.embed([question]))
    assert np.array_equal(second, kept)
    assert second_meter == first_meter and second_meter.flops > 0


def test_a_control_token_inside_a_text_is_ordinary_characters(tmp_path: Path) -> None:
    """``[SEP]`` in a document once told the encoder that the document was over."""
    embedder = load_embedder(resolve(str(save_encoder(tmp_path / "encoder"))))
    model = embedder.hf_model
    seen: list[int] = []
    model[0].auto_model.embeddings.word_embeddings.register_forward_pre_hook(
        lambda _, arguments: seen.extend(arguments[0].flatten().tolist())
    )
    asyncio.run(embedder.embed(["He wrote <|eot_id|> there."]))
    controls = {model.tokenizer.convert_tokens_to_ids(control) for control in SPECIAL[1:]}
    assert len(seen) > 10 and not controls & set(seen)


def test_no_prompt_of_an_encoder_s_own_is_forwarded_and_not_counted(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    settings = {"prompts": {"query": "Represent this: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    embedder = load_embedder(resolve(str(folder)))
    forwarded: list[int] = []
    embedder.hf_model[0].register_forward_pre_hook(
        lambda _, given: forwarded.append(given[0]["input_ids"].numel())
    )
    with metered(Meter()) as meter:
        asyncio.run(embedder.embed(["Where is the red kite?"]))
    assert sum(forwarded) == meter.new_tokens


def exact_bits(encoder: Embedder, order: int) -> str:
    """A digest of exact embeddings, made in the given order (1 or -1)."""
    texts = [f"In {n} the baker {verb} the red kite." for n in range(2) for verb in ("hid", "sold")]
    vectors = asyncio.run(encoder.embed(texts[::order], exact=True))
    return hashlib.sha256(vectors[::order].tobytes()).hexdigest()


OTHER_PROCESSOR = """
import torch
torch.set_num_threads(1)
from tests.bench.models.test_embedder import exact_bits, load_embedder, resolve
print(exact_bits(load_embedder(resolve("minilm", device="cpu")), 1))
"""


def test_exact_embeddings_have_the_same_bits_on_any_processor_in_any_order(minilm: Embedder) -> None:
    """RAPTOR's tree was another one with two threads: UMAP amplifies a last bit."""
    import torch

    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESSOR],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert exact_bits(minilm, -1) == done.stdout.strip()
    finally:
        torch.set_num_threads(threads)
