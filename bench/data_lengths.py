"""How long the documents of the data sets are, in tokens of the reader (PECAN, Table A3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bench.cards import Card, load_card
from bench.data import load as load_data
from bench.models.presets import resolve
from bench.plain_tables import PlainTable
from bench.rendering import DASH
from bench.schema import DocumentSet

COLUMNS = (
    "Data", "questions", "document sets", "mean tokens", "median", "longest", "over window",
    "mean publ.", "longest publ.", "questions publ.",
)  # fmt: skip


def lengths_table(
    table_id: str, title: str, datasets: Sequence[str], model: str, data: str, limit: int | None
) -> PlainTable:
    """One row per data set; only the tokenizer of the model is loaded.

    The length of a document set is that of its documents, titles included, one after the other, without
    any prompt. Raises BenchError for data or a tokenizer that cannot be had.
    """
    from bench.models.loader import load_tokenizer

    spec = resolve(model)
    tokenizer = load_tokenizer(spec)
    window = spec.geometry.window

    def count(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    rows = []
    labels = []
    for name in datasets:
        card = load_card(name)
        loaded = load_data(card, data, limit)
        labels.append(loaded.label)
        lengths = token_lengths((example.documents for example in loaded.examples), count)
        rows.append(
            (loaded.label, f"{len(loaded.examples):,}", *_measured(lengths, window), *_published(card))
        )
    caption = (
        f"Tokens of {spec.label}, titles included and prompts not; every document set counts once. Over "
        f"window: longer than the {window:,} tokens at which {spec.label} is used here. Published: PECAN, "
        "Table A3, with Llama 3's tokenizer on the full sets; the sample sets are at quarter scale, not "
        "to be compared.",
    )
    return PlainTable(table_id, title, COLUMNS, tuple(rows), caption)


def token_lengths(sets: Iterable[DocumentSet], count: Callable[[str], int]) -> list[int]:
    """Tokens of each distinct document set, in the order of their first question."""
    found: dict[str, int] = {}
    of_document: dict[str, int] = {}
    for documents in sets:
        if documents.id in found:
            continue
        for document in documents.documents:
            if document.id not in of_document:
                of_document[document.id] = count(document.full_text)
        found[documents.id] = sum(of_document[document.id] for document in documents.documents)
    return list(found.values())


def _measured(lengths: Sequence[int], window: int) -> tuple[str, ...]:
    if not lengths:
        return ("0", DASH, DASH, DASH, DASH)
    over = float(np.mean([length > window for length in lengths]))
    return (
        f"{len(lengths):,}",
        f"{np.mean(lengths):,.0f}",
        f"{np.median(lengths):,.0f}",
        f"{max(lengths):,}",
        f"{100 * over:.0f} %",
    )


def _published(card: Card) -> tuple[str, str, str]:
    found: Any = card.model_dump(mode="json")["papers"].get("pecan", {}).get("lengths") or {}
    return tuple(  # type: ignore[return-value]
        DASH if found.get(key) is None else f"{found[key]:,}"
        for key in ("mean_tokens", "max_tokens", "questions")
    )
