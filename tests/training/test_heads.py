"""Heads that look for evidence: the arithmetic, and a head that was planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.engine.heads import Heads
from bench.models.api import Span
from bench.models.language_model import CausalLanguageModel
from bench.schema import Document, DocumentSet, Evidence, Example
from tests.bench.models.builders import causal_model, language_model
from training import heads

PLANTED = (1, 5)
TEXTS = (
    "Otto Brand, the baker, walked to the harbour; he kept the river boat near the mill.",
    "Mara Feld hid the red kite.",
    "The lighthouse keeper lived by the river in the winter of 1842. The fair was near.",
)


def example(supporting: tuple[int, ...] = (1,), evidence: bool = True) -> Example:
    labels = tuple(Evidence(document) for document in supporting) if evidence else None
    documents = DocumentSet(tuple(Document("", text) for text in TEXTS))
    return Example("e", "toy", "qa", "Mara Feld hid the red kite?", ("yes",), documents, labels)


def planted() -> CausalLanguageModel:
    """A random model of even attention, but for one head that looks for the token it stands on."""
    rope = {"rope_type": "default", "rope_theta": 1e12}
    lm = language_model(rope_parameters=rope, tie_word_embeddings=False)
    layer, head = PLANTED
    layers = lm.hf_model.model.layers
    with torch.no_grad():
        for each in layers:
            each.self_attn.q_proj.weight.zero_()
            each.self_attn.o_proj.weight.zero_()  # the stream is the embedding and what the MLPs add
            each.mlp.down_proj.weight.zero_()
        width = lm.hf_model.config.hidden_size // lm.hf_model.config.num_attention_heads
        seen = torch.randn(width, lm.hf_model.config.hidden_size, generator=torch.Generator().manual_seed(3))
        seen[[0, 1, width // 2, width // 2 + 1]] = 0  # these turn with the position
        key_head = head * lm.hf_model.config.num_key_value_heads // lm.hf_model.config.num_attention_heads
        attention = layers[layer].self_attn
        attention.q_proj.weight[head * width : (head + 1) * width] = seen
        attention.k_proj.weight[key_head * width : (key_head + 1) * width] = seen
    return lm


def test_the_planted_head_has_the_highest_excess_and_even_attention_has_none() -> None:
    excess = heads.excess(planted(), example())
    assert excess is not None and excess.shape == (3, 8)
    assert heads.best_heads(excess, 1) == [PLANTED]
    assert excess[PLANTED] > 0.1
    others = np.delete(excess.ravel(), PLANTED[0] * 8 + PLANTED[1])
    np.testing.assert_allclose(others, 0, atol=1e-6)


def test_relevance_by_the_planted_head_tells_the_document_that_has_the_evidence() -> None:
    """The question's words stand in one document; of the others some tokens are the question's too."""
    lm = planted()
    assert heads.tells_evidence(lm, example(), Heads((PLANTED,))) == 1
    assert heads.tells_evidence(lm, example((0, 2)), Heads((PLANTED,))) == 0
    assert heads.tells_evidence(lm, example((0, 1, 2)), None) is None
    assert heads.tells_evidence(language_model(max_position_embeddings=64), example(), None) is None


def test_attention_beyond_length_is_what_evidence_gets_over_its_share_of_the_documents() -> None:
    documents = np.array([False, True, True, True, True])
    evidence = np.array([False, False, False, False, True])
    even, keen = [0.2, 0.2, 0.2, 0.2, 0.2], [0.5, 0.0, 0.0, 0.1, 0.4]
    surplus = heads.beyond_length(np.array([[even, keen]]), evidence, documents)
    assert surplus == pytest.approx(np.array([[0.0, 0.4 - 0.5 / 4]]))


def test_attention_of_a_few_tokens_is_that_of_the_whole_and_leaves_the_kernel_as_it_was() -> None:
    """Mistral's window is shorter than the text: a key out of it has a place, and no attention."""
    model, ids = causal_model("mistral"), [8 + at % 400 for at in range(70)]
    with torch.no_grad():
        whole = causal_model("mistral", "eager")(torch.tensor([ids]), output_attentions=True)
    layers = heads.attention(model, ids, Span(60, 66))
    assert model.config._attn_implementation == "sdpa"
    for layer, expected in zip(layers, whole.attentions, strict=True):
        np.testing.assert_allclose(layer, expected[0, :, 60:66, :66].mean(1), atol=1e-6)
        assert not layer[:, :10].any()
