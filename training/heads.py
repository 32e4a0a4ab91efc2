"""Which attention heads look for evidence: ``python -m training.heads --data FOLDER``.

A head is ranked by the attention that the tokens of a question, behind the documents, pay to the labelled
evidence, beyond what it pays to an equally long part of the documents. QRHead (Zhang et al. 2025) finds its
heads by such attention too. Heads are chosen on the first half of the questions of each data set and measured
on the other half as well; the best are printed as the option ``heads`` of ``pecan``.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.loading import load
from bench.data.own import card_for
from bench.engine.heads import Heads
from bench.method import DEFAULT_PROMPT, Span, evidence_places, join_passages, reader_prompt, token_span
from bench.models.language_model import CausalLanguageModel
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.schema import Example, Question

log = logging.getLogger(__name__)
DATASETS = ("hotpotqa", "musique", "qasper")
"""Those with evidence labels."""
CHOSEN = 4
"""Heads that are printed; few, as retrieval heads are, and more than one.  # our choice"""
Floats = NDArray[np.float64]


def main(arguments: list[str] | None = None) -> None:
    """Command line of the choice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="preset, hub id or folder")
    parser.add_argument("--data", default="sample", help="sample, hub, or a file or folder")
    parser.add_argument("--dataset", action="append", help=f"repeatable; default: {', '.join(DATASETS)}")
    parser.add_argument("-k", type=int, default=CHOSEN, help=f"how many heads; default: {CHOSEN}")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    lm = load_language_model(resolve(options.model))
    chosen_on, others = list[Floats](), list[Floats]()
    for dataset in options.dataset or DATASETS:
        examples = load(card_for(dataset, options.data), options.data).examples
        found = [one for one in (excess(lm, example) for example in examples) if one is not None]
        log.info("%s: %d of %d questions have evidence and fit", dataset, len(found), len(examples))
        half = -(-len(found) // 2)
        chosen_on += found[:half]
        others += found[half:]
    if not others:
        raise SystemExit("Fewer than two questions with evidence labels: nothing to choose heads by.")
    first, second = np.mean(chosen_on, 0), np.mean(others, 0)
    best = best_heads(first, options.k)
    log.info("attention to evidence beyond its length, in percent of a head's attention: first, other half")
    for layer, head in best:
        log.info("%7s %6.1f %6.1f", f"{layer}.{head}", 100 * first[layer, head], 100 * second[layer, head])
    log.info("%7s %6.1f %6.1f", "all", 100 * first.mean(), 100 * second.mean())
    log.info("heads=%s", Heads(tuple(sorted(best))))


def best_heads(scores: Floats, k: int) -> list[tuple[int, int]]:
    """(layer, head) of the k highest scores, shape (layers, heads), the highest first; ties: lower layers."""
    order = np.argsort(-scores, axis=None, kind="stable")[:k]
    return [(int(at) // scores.shape[1], int(at) % scores.shape[1]) for at in order]


def excess(lm: CausalLanguageModel, example: Example) -> Floats | None:
    """How much more attention a question pays to the evidence than to as long a part of the documents.

    Of each head, shape (layers, heads), mean over the question's tokens, in shares of its attention (-1..1).
    None without evidence, with nothing but evidence, and for a prompt that the model does not take.
    """
    texts = [document.full_text for document in example.documents.documents]
    question = Question(example.question, example.documents, 1, example.task)
    prompt = reader_prompt(DEFAULT_PROMPT, join_passages(texts), question)
    tokens = lm.tokenize(prompt)
    starts, at = list[int](), 0
    for text in texts:
        starts.append(prompt.index(text, at))
        at = starts[-1] + len(text)
    asked = prompt.rindex(example.question)

    def inside(ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        mask = np.zeros(len(tokens.ids), dtype=bool)
        for start, end in ranges:
            span = token_span(tokens, start, end)
            mask[span.start : span.end] = True
        return mask

    documents = inside([(start, start + len(text)) for start, text in zip(starts, texts, strict=True)])
    places = evidence_places(example.documents, example.evidence or ())
    evidence = inside([(starts[p.document] + p.start, starts[p.document] + p.end) for p in places])
    fits = lm.chat_overhead + len(tokens.ids) <= lm.max_positions
    if not fits or not evidence.any() or evidence.sum() == documents.sum():
        return None
    opening = len(lm.chat.opening)
    span = token_span(tokens, asked, asked + len(example.question))
    rows = attention(
        lm.hf_model, [*lm.chat.opening, *tokens.ids], Span(opening + span.start, opening + span.end)
    )
    return beyond_length(rows[:, :, opening:], evidence[: span.end], documents[: span.end])


def beyond_length(attended: Floats, evidence: NDArray[np.bool_], documents: NDArray[np.bool_]) -> Floats:
    """Attention to the evidence less the attention to the documents times the evidence's share of them.

    attended: to each token, shape (layers, heads, tokens); evidence, documents: which tokens are, (tokens,).
    """
    share = evidence.sum() / documents.sum()
    return np.asarray(attended[..., evidence].sum(-1) - share * attended[..., documents].sum(-1))


def attention(model: Any, ids: Sequence[int], queries: Span) -> Floats:
    """Mean attention of the queries to every token up to the last of them, (layers, heads, queries.end).

    What stands before the queries is read by the model's own kernel, so that no tokens x tokens are formed.
    """
    import torch
    from transformers import DynamicCache

    cache, own = DynamicCache(), model.config._attn_implementation
    read = torch.tensor([list(ids)], device=model.device)
    with torch.inference_mode():
        model(input_ids=read[:, : queries.start], past_key_values=cache, use_cache=True, logits_to_keep=1)
        model.set_attn_implementation("eager")
        try:
            out = model(
                input_ids=read[:, queries.start : queries.end],
                past_key_values=cache,
                use_cache=True,
                output_attentions=True,
                logits_to_keep=1,
            )
        finally:
            model.set_attn_implementation(own)
        means = [layer[0].float().mean(1).cpu() for layer in out.attentions]
    return np.asarray(torch.stack(means).double().numpy())


if __name__ == "__main__":
    main()
