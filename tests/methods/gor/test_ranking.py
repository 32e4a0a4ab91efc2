"""BERTScore from the shared encoder against the package bert-score on the same encoder and layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.flops.formulas import flops_of_usage
from bench.flops.meter import Meter, metered
from bench.models.embedder import Embedder
from bench.models.model_set import load_embedder
from bench.models.spec import resolve
from methods.gor.ranking import f_scores, layer_of, token_vectors
from tests.bench.models.builders import save_plain_encoder

TEXTS = [
    "Mara Feld hid the silver kite in the old mill near the river.",
    "The silver kite lay in the mill.",
    "Otto Lund was a clerk. He lived in Harbury and kept a goat called Pepper.",
    "Pepper",
    "  naïve café — 東京 \n",
    "The mill near the river was old. " * 90,
]


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return load_embedder(resolve("minilm", device="cpu"))


def test_the_scores_are_those_of_the_package(minilm: Embedder) -> None:
    """One pair at a time: in a batch the package counts padding as similar by 0, which may be the most."""
    from bert_score import score

    spec = resolve("minilm")
    options = {"model_type": str(spec.source.locate(spec.name)), "num_layers": 6, "batch_size": 1}
    for reference in (TEXTS[0], TEXTS[5]):
        with torch.no_grad():
            scores = score(TEXTS, [reference] * len(TEXTS), idf=False, device="cpu", **options)
        expected = scores[2].numpy()
        vectors = token_vectors(minilm, [*TEXTS, reference])
        np.testing.assert_allclose(f_scores(vectors[:-1], vectors[-1]), expected, atol=2e-5)


def test_every_forward_is_paid_for(tmp_path: Path) -> None:
    encoder = load_embedder(resolve(str(save_plain_encoder(tmp_path / "bert")), device="cpu"))
    encoder.hf_model[0].auto_model.set_attn_implementation("eager")
    with metered(Meter()) as meter, FlopCounterMode(display=False) as counter:
        token_vectors(encoder, [TEXTS[0]])
    usage = meter.usage[encoder.name, "bertscore"]
    assert usage.calls == 1 and usage.flops == flops_of_usage(encoder.architecture, usage, "paper")
    assert flops_of_usage(encoder.architecture, usage, "matmul") == counter.get_total_flops()


def test_what_shares_a_batch_and_its_order_change_nothing(minilm: Embedder) -> None:
    together = token_vectors(minilm, TEXTS)
    for text, batched in zip(TEXTS, together, strict=True):
        (alone,) = token_vectors(minilm, [text])
        torch.testing.assert_close(batched.vectors, alone.vectors, atol=2e-5, rtol=0)
        assert torch.equal(batched.weights, alone.weights)
    assert f_scores([], together[0]).shape == (0,)


def test_the_layer_is_the_last_or_bert_score_s_choice_for_the_paper_s_encoder() -> None:
    assert layer_of("minilm", 6) == 6
    assert layer_of("microsoft/deberta-xlarge-mnli@refs/pr/6", 48) == 40
    assert layer_of("deberta-xlarge-mnli", 3) == 3
