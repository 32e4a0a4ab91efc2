"""A cross-encoder scores as transformers does, and costs what its pairs' tokens cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from bench.errors import ConfigError
from bench.flops.formulas import flops_of_usage
from bench.flops.meter import Meter, metered
from bench.models.model_set import LoadedModels, load_pair_scorer
from bench.models.spec import resolve
from tests.bench.models.builders import save_cross_encoder, save_plain_encoder

QUERY = "Who hid the kite?"
TEXTS = ["The baker hid the red kite in the old mill.", "", "Wheat prices. " * 80, "naïve [SEP] 🎉"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose own prompt, put before every text, would be forwarded and not counted."""
    folder = save_cross_encoder(tmp_path_factory.mktemp("cross") / "encoder")
    prompts = {"query": "Represent this: "}
    own = CrossEncoder(str(folder), device="cpu", prompts=prompts, default_prompt_name="query")
    own.save_pretrained(str(folder))
    return folder


def test_scores_are_those_of_transformers_pair_by_pair(folder: Path) -> None:
    scorer = load_pair_scorer(resolve(str(folder)))
    with metered(Meter()) as meter:
        scores = asyncio.run(scorer.score(QUERY, TEXTS))
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    expected, tokens = [], 0
    for text in TEXTS:
        ids = tokenizer(QUERY, text, truncation=True, max_length=scorer.max_tokens, return_tensors="pt")
        tokens += ids["input_ids"].shape[1]
        with torch.no_grad():
            expected.append(torch.sigmoid(model(**ids).logits.double())[0, 0].item())
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert len(set(np.round(scores, 6))) == 4 and scorer.max_tokens == 96
    assert meter.events == {"pair_cut"}
    with metered(Meter()) as short:
        asyncio.run(scorer.score(QUERY, TEXTS[:2]))
    assert not short.events
    (use,) = meter.usage.values()
    assert use.new_tokens == tokens and use.flops == flops_of_usage(scorer.architecture, use, "paper")


@pytest.mark.parametrize("labels", [0, 3])
def test_a_model_without_exactly_one_output_is_refused(labels: int, tmp_path: Path) -> None:
    """A plain encoder would get a random head, and three outputs have no order."""
    other = save_cross_encoder(tmp_path / "m", labels) if labels else save_plain_encoder(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"does not score pairs.*expected a cross-encoder"):
        LoadedModels({"scorer": resolve(str(other))}).pair_scorer()
