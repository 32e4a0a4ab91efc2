"""Which nodes a simulated query should have retrieved: a ranking by BERTScore, without any label.

A query was asked about a chunk, so what says the same as that chunk is what answers it: nodes are ranked by
the BERTScore F of their text against it (Graph of Records, Sec. 2.3). BERTScore (Zhang et al. 2020) matches
every token greedily with the most similar token of the other text; here as the package bert-score computes
it without idf weights and without rescaling, on the encoder that the bench has loaded and meters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from bench.method import Embedder, current_meter, texts_usage

BATCH = 32
"""Texts per forward."""

MOST_TOKENS = 512
"""Of a text, special tokens included: what encoders of BERT's kind have positions for."""

PAPER_ENCODER, PAPER_LAYER = "deberta-xlarge-mnli", 40
"""Of the released code, and the layer that bert-score takes of it."""


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one text as an encoder's layer sees them."""

    vectors: torch.Tensor
    """Unit rows, shape (tokens, dim), [CLS] and [SEP] included."""
    weights: torch.Tensor
    """0 for [CLS] and [SEP], else 1, shape (tokens,)."""


def token_vectors(encoder: Embedder, texts: Sequence[str]) -> list[TokenVectors]:
    """The token vectors of each text, cut at 512 tokens; cost in phase ``bertscore``."""
    model, tokenizer = encoder.hf_model[0].auto_model, encoder.hf_model.tokenizer
    wanted = layer_of(encoder.name, int(model.config.num_hidden_layers))
    limit = min(MOST_TOKENS, encoder.architecture.max_positions)
    ends = [tokenizer.cls_token_id, tokenizer.sep_token_id]
    marks = torch.tensor([end for end in ends if end is not None], device=model.device)
    vectors_of: dict[int, TokenVectors] = {}
    lengths = []
    by_length = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    for start in range(0, len(texts), BATCH):
        batch = by_length[start : start + BATCH]
        encoding = tokenizer(
            [texts[at].strip() for at in batch],
            truncation=True,
            max_length=limit,
            padding=True,
            return_tensors="pt",
        ).to(model.device)
        with torch.inference_mode():
            out = model(
                input_ids=encoding["input_ids"],
                attention_mask=encoding["attention_mask"],
                output_hidden_states=True,
            )
            vectors = torch.nn.functional.normalize(out.hidden_states[wanted].float(), dim=-1)
        special = torch.isin(encoding["input_ids"], marks)
        for row, at in enumerate(batch):
            kept = encoding["attention_mask"][row].bool()
            vectors_of[at] = TokenVectors(vectors[row][kept], (~special[row][kept]).float())
            lengths.append(int(kept.sum()))
    current_meter().credit(encoder.name, "bertscore", texts_usage(encoder.architecture, lengths))
    return [vectors_of[at] for at in range(len(texts))]


def layer_of(name: str, layers: int) -> int:
    """The layer whose output is compared, from 1: the last, of the paper's encoder the 40th."""
    return PAPER_LAYER if PAPER_ENCODER in name.lower() and layers > PAPER_LAYER else layers


def f_scores(candidates: Sequence[TokenVectors], reference: TokenVectors) -> NDArray[np.float32]:
    """BERTScore F of each candidate against the reference, shape (candidates,); 0 for an empty text.

    P is the mean over the candidate's tokens of the best cosine to a token of the reference, R the mean over
    the reference's tokens of the best to one of the candidate, F their harmonic mean.
    """
    if not candidates:
        return np.zeros(0, np.float32)
    vectors = pad_sequence([c.vectors for c in candidates], batch_first=True)
    weights = pad_sequence([c.weights for c in candidates], batch_first=True)
    real = pad_sequence([torch.ones_like(c.weights) for c in candidates], batch_first=True).bool()
    cosine = (vectors @ reference.vectors.T).masked_fill(~real[..., None], -1.0)
    precision = _weighted_mean(cosine.amax(dim=2), weights)
    recall = _weighted_mean(cosine.amax(dim=1), reference.weights.expand(len(candidates), -1))
    f = 2 * precision * recall / (precision + recall)
    empty = (weights.sum(dim=1) == 0) | (reference.weights.sum() == 0)
    return np.asarray(f.masked_fill(empty, 0.0).nan_to_num(0.0).cpu().numpy(), dtype=np.float32)


def _weighted_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (values * weights).sum(dim=1) / weights.sum(dim=1)


def best_first(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """M_i: positions from the highest score to the lowest in each row; equal ones in order."""
    return np.argsort(-scores, axis=-1, kind="stable").astype(np.int64)
