"""Dense rankers on small random encoders: whose vectors, pooled how, compared how."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
import torch

from bench.conformance import DOCUMENTS, QUESTION
from bench.errors import ConfigError, UnknownNameError
from bench.flops.meter import Meter, metered
from bench.method.dense import encoder_pair, unit_rows
from bench.method.registry import load_method
from bench.models.model_set import LoadedModels, load_embedder
from bench.models.spec import resolve
from bench.run.cell import CellRequest, plan_cell
from bench.schema import Index, Question
from tests.bench.models.builders import encoder_model, hf_tokenizer, save_encoder, save_plain_encoder


def indexed(name: str, encoder: str = "", chunk_tokens: int = 20) -> tuple[Any, LoadedModels, Index]:
    kind = load_method(name)
    config = kind.Config(encoder=encoder, chunk_tokens=chunk_tokens) if encoder else kind.Config()
    method = kind(config, resolve("tiny").geometry, 0)
    models = LoadedModels({name: resolve(role.model or "tiny") for name, role in method.roles().items()})
    return method, models, asyncio.run(method.index(DOCUMENTS["story"], models))


def scores(
    method: Any, models: LoadedModels, index: Index, text: str = QUESTION, query: str = ""
) -> np.ndarray[Any, Any]:
    question = Question(text, DOCUMENTS["story"], 8, retrieval_query=query)
    return np.asarray(asyncio.run(method.rank(index, question, models)).scores)


@pytest.mark.parametrize("name", ["sbert", "hyde", "raptor", "linear_rag", "pecan"])
def test_a_question_that_the_encoder_cuts_is_flagged(name: str) -> None:
    method, models, index = indexed(name)
    for text in (QUESTION, "why " * 300):
        with metered(Meter()) as meter:
            asyncio.run(method.answer(index, Question(text, DOCUMENTS["story"], 8), models))
        assert meter.events == ({"question_cut"} if text != QUESTION else set())


def test_a_draft_that_the_encoder_cuts_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    method, models, index = indexed("hyde")
    written = AsyncMock(return_value=SimpleNamespace(text="because " * 300))
    monkeypatch.setattr(models.lm(), "generate", written)
    with metered(Meter()) as meter:
        scores(method, models, index)
    assert meter.events == {"question_cut"}


def test_a_retrieval_query_is_embedded_in_the_place_of_the_question() -> None:
    made = indexed("sbert", "minilm")
    relevance = scores(*made, text="Summarize.", query=QUESTION)
    np.testing.assert_array_equal(relevance, scores(*made))
    assert (relevance != scores(*made, text="Summarize.")).any()


def by_hand(family: str, seed: int, texts: list[str], pooling: str) -> np.ndarray[Any, Any]:
    """What transformers gives, one text at a time."""
    model, tokenizer = encoder_model(family, "sdpa", seed), hf_tokenizer(None)
    vectors = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            out = model(input_ids=ids.input_ids, attention_mask=ids.attention_mask)
        states = out.pooler_output if pooling == "own" else out.last_hidden_state[0]
        vectors.append((states.mean(0) if pooling == "mean" else states[0]).numpy())
    return np.stack(vectors)


def chunk_texts(index: Index) -> list[str]:
    text = DOCUMENTS["story"].documents[0].full_text
    return [text[start:end] for _, start, end, _ in index.data["chunks"]]


def test_dragon_compares_the_cls_vectors_of_two_encoders_by_dot_product(weights: Path) -> None:
    method, models, index = indexed("dragon", str(weights))
    contexts = by_hand("bert", 2, chunk_texts(index), "cls")
    query = by_hand("bert", 1, [QUESTION], "cls")[0]
    np.testing.assert_allclose(index.arrays["embeddings"], contexts, atol=1e-5)
    np.testing.assert_allclose(scores(method, models, index), contexts @ query, rtol=1e-4)
    assert not np.allclose(np.linalg.norm(contexts, axis=1), 1, atol=0.1), "nothing is normalised"
    assert not np.allclose(contexts @ query, contexts @ by_hand("bert", 2, [QUESTION], "cls")[0])


@pytest.mark.parametrize(("family", "seed", "dim"), [("dpr-question", 3, 32), ("dpr-context", 4, 24)])
def test_dpr_takes_each_encoders_projected_vector(family: str, seed: int, dim: int, tmp_path: Path) -> None:
    texts = ["Mara hid it.", "Otto sold a goat."]
    folder = save_plain_encoder(tmp_path / family, family, seed=seed)
    encoder = load_embedder(resolve(str(folder), device="cpu"), "cls")
    vectors = asyncio.run(encoder.embed(texts))
    np.testing.assert_allclose(vectors, by_hand(family, seed, texts, "own"), atol=1e-6)
    assert vectors.shape == (2, dim) and encoder.dim == dim


def test_contriever_compares_means_by_dot_product_and_sbert_unit_means(weights: Path) -> None:
    encoder = str(weights / "query")
    method, models, index = indexed("contriever", encoder)
    contexts = by_hand("bert", 1, chunk_texts(index), "mean")
    query = by_hand("bert", 1, [QUESTION], "mean")[0]
    np.testing.assert_allclose(scores(method, models, index), contexts @ query, rtol=1e-4)
    method, models, index = indexed("sbert", encoder)
    cosine = unit_rows(contexts) @ unit_rows(query[None])[0]
    np.testing.assert_allclose(scores(method, models, index), cosine, atol=1e-5)
    assert index.data["max_tokens"] == 96


def test_the_index_of_a_pair_does_not_depend_on_the_query_encoder(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "pair"
    save_plain_encoder(other / "query", seed=9)
    save_plain_encoder(other / "context", seed=2)
    first, second = (
        plan_cell(CellRequest("dragon", "hotpotqa", options={"encoder": str(folder)}, limit=1))
        for folder in (weights, other)
    )
    assert first.index_key_parts() == second.index_key_parts()
    assert first.identity.cell_id != second.identity.cell_id


def test_an_encoder_that_pools_otherwise_is_refused(tmp_path: Path) -> None:
    for role in ("query", "context"):
        save_encoder(tmp_path / role, pooling="mean", normalise=False)
    with pytest.raises(ConfigError, match="pools its token vectors by mean; this method .* pooled by cls"):
        indexed("dragon", str(tmp_path))
    save_encoder(tmp_path / "cls", pooling="cls", normalise=False)
    with pytest.raises(ConfigError, match="cls pools its token vectors by cls"):
        indexed("contriever", str(tmp_path / "cls"))


def test_the_default_pair_is_that_of_the_readers_scale() -> None:
    def pair(model: str, **options: str) -> str:
        method = load_method("dragon")
        return method(method.Config(**options), resolve(model).geometry).roles()["context_encoder"].model

    assert pair("tiny") == "tiny-dual-context"
    assert pair("llama-3.1-8b") == "dragon-plus-context"
    assert pair("tiny", encoder="dragon-plus") == "dragon-plus-context"


def test_a_pair_is_two_presets_or_two_folders(weights: Path) -> None:
    assert encoder_pair("dpr")[1] == "dpr-context"
    assert encoder_pair(str(weights))[0] == str(weights / "query")
    with pytest.raises(UnknownNameError, match=r"Unknown encoder pair 'dragon'.*dragon-plus"):
        encoder_pair("dragon")
