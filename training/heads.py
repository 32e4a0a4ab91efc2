"""Which attention heads look for evidence: ``python -m training.heads --data FOLDER``.

A head is ranked by the attention that the tokens of a question, behind the documents, pay to the labelled
evidence, beyond what it pays to an equally long part of the documents. QRHead (Zhang et al. 2025) finds its
heads by such attention too. Heads are chosen on the first half of the questions of each data set and measured
on the other half as well, there also by how well PECAN's own relevance r (Sec. 3.2.2) tells documents with
evidence from others; the best are printed as the option ``heads`` of ``pecan`` and ``attention_ranker``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data.loading import load
from bench.data.own import card_for
from bench.engine.heads import Heads
from bench.method import (
    DEFAULT_PROMPT,
    Span,
    WindowExceededError,
    evidence_places,
    join_passages,
    reader_prompt,
    token_span,
)
from bench.models.language_model import CausalLanguageModel
from bench.models.model_set import load_language_model
from bench.models.spec import resolve
from bench.schema import Example, Question
from methods.pecan.prompts import PECAN_NODE, PECAN_SEARCH_BEFORE_QUESTION, pecan_search_head
from training.evaluate import auroc

log = logging.getLogger(__name__)
DATASETS = ("hotpotqa", "musique", "qasper")
"""Those with evidence labels."""
CHOSEN = 4
"""Heads that are printed, our choice: few, as retrieval heads are, and more than one."""
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
    chosen_on, others, held_out = list[Floats](), list[Floats](), list[Example]()
    for dataset in options.dataset or DATASETS:
        examples = load(card_for(dataset, options.data), options.data).examples
        measured = [(example, excess(lm, example)) for example in examples]
        usable = [(example, scores) for example, scores in measured if scores is not None]
        log.info("%s: %d of %d questions have evidence and fit", dataset, len(usable), len(examples))
        half = -(-len(usable) // 2)
        chosen_on += [scores for _, scores in usable[:half]]
        others += [scores for _, scores in usable[half:]]
        held_out += [example for example, _ in usable[half:]]
    if not others:
        raise SystemExit("Fewer than two questions with evidence labels: nothing to choose heads by.")
    first, second = np.mean(chosen_on, 0), np.mean(others, 0)
    best = best_heads(first, options.k)
    log.info("attention to evidence beyond its length, in percent of a head's attention: first, other half")
    for layer, head in best:
        log.info("%7s %6.1f %6.1f", f"{layer}.{head}", 100 * first[layer, head], 100 * second[layer, head])
    log.info("%7s %6.1f %6.1f", "all", 100 * first.mean(), 100 * second.mean())
    heads = Heads(tuple(sorted(best)))
    aurocs = [(tells_evidence(lm, e, None), tells_evidence(lm, e, heads)) for e in held_out]
    pairs = [(of_all, of_these) for of_all, of_these in aurocs if of_all is not None and of_these is not None]
    if pairs:
        log.info(
            "AUROC of r, documents with evidence against the others, %d questions of the other half: "
            "%.3f by all heads, %.3f by these",
            len(pairs),
            *np.mean(pairs, 0),
        )
    log.info("heads=%s", heads)


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


def tells_evidence(lm: CausalLanguageModel, example: Example, heads: Heads | None) -> float | None:
    """AUROC of PECAN's r over the documents, each read as one node behind the question, in 0..1.

    None where all or no documents have evidence, and for a text that the model does not take.
    """
    supporting = {label.document for label in example.evidence or ()}
    try:
        r = asyncio.run(_relevance(lm, example, heads))
    except WindowExceededError:
        return None
    positive = [value for at, value in enumerate(r) if at in supporting]
    negative = [value for at, value in enumerate(r) if at not in supporting]
    return auroc(positive, negative) if positive and negative else None


async def _relevance(lm: CausalLanguageModel, example: Example, heads: Heads | None) -> list[float]:
    """PECAN's r of each document: its tokens' mean attention to the question, times its position."""
    before, inside = len(PECAN_SEARCH_BEFORE_QUESTION), PECAN_NODE.index("{text}")
    async with await lm.open(lm.max_positions) as context:
        asked = (before, before + len(example.question))
        context.watch(await context.extend(pecan_search_head(example.question), focus=asked), heads)
        spans = []
        for document in example.documents.documents:
            text = document.full_text
            piece = PECAN_NODE.format(text=text)
            spans.append(await context.extend(piece, focus=(inside, inside + len(text))))
        await context.settle()
        return [
            float(context.recorded(span)[:, 0].mean()) * position if len(span) else 0.0
            for position, span in enumerate(spans, start=2)
        ]


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
