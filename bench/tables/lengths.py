"""Lengths of documents in tokens (PECAN, Table A3; GARLIC, Table 6; Graph of Records, Table 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bench.data import load as load_data
from bench.data.own import card_for
from bench.models.loader import load_tokenizer
from bench.models.spec import resolve
from bench.schema import DocumentSet
from bench.tables.caption import about_lengths
from bench.tables.definition import TableDefinition
from bench.tables.formats import DASH, TextTable, plain_table
from bench.tables.published import PublishedValues, published

COLUMNS = (
    *("Data", "questions", "document sets", "mean tokens", "median", "shortest", "longest", "over window"),
    "reference",
)
PRINTED: Mapping[str, str] = {
    "mean_tokens": "mean publ.",
    "min_tokens": "shortest publ.",
    "max_tokens": "longest publ.",
    "mean_input_tokens": "mean publ.",
    "mean_output_tokens": "reference publ.",
    "test_samples": "questions publ.",
    "train_samples": "training publ.",
}
"""Row of the published values -> heading of its column here."""


def lengths_table(definition: TableDefinition, model: str, data: str, limit: int | None) -> TextTable:
    """One row per data set, with the paper's values; only the tokenizer of the model is loaded.

    The length of a document set is the sum over its documents, titles included, without any prompt; the
    reference is a question's first one. Raises BenchError if the data or the tokenizer are unavailable.
    """
    spec = resolve(model)
    window, tokenizer = spec.geometry.window, load_tokenizer(spec)
    printed = published(definition.id) if definition.printed else {}
    rows = []

    def count(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    for name in definition.datasets:
        card = card_for(name, data)
        loaded = load_data(card, data, limit)
        tokens = token_lengths((example.documents for example in loaded.examples), count)
        references = [count(example.answers[0]) for example in loaded.examples if example.answers]
        statistics = _statistics(window, tokens, references)
        rows.append(
            (
                *(loaded.label, f"{len(loaded.examples):,}", *statistics),
                *(_printed(printed, row, name) for row in definition.printed_rows),
            )
        )
    about = tuple(about_lengths(spec.label, window, definition.source, definition.notes))
    columns = (*COLUMNS, *(PRINTED[row] for row in definition.printed_rows))
    return plain_table(definition.id, definition.title, columns, tuple(rows), about)


def token_lengths(sets: Iterable[DocumentSet], count: Callable[[str], int]) -> list[int]:
    """Tokens of each distinct document set, in the order of their first question."""
    distinct = {documents.id: documents.documents for documents in sets}
    texts = {document.id: document.full_text for own in distinct.values() for document in own}
    tokens = {id_: count(text) for id_, text in texts.items()}
    return [sum(tokens[document.id] for document in own) for own in distinct.values()]


def _statistics(window: int, tokens: Sequence[int], references: Sequence[int]) -> tuple[str, ...]:
    """The values for ``COLUMNS`` from the third on."""
    over = float(np.mean([length > window for length in tokens]))
    return (
        f"{len(tokens):,}",
        f"{np.mean(tokens):,.0f}",
        f"{np.median(tokens):,.0f}",
        f"{min(tokens):,}",
        f"{max(tokens):,}",
        f"{100 * over:.0f} %",
        f"{np.mean(references):,.0f}" if references else DASH,
    )


def _printed(values: PublishedValues, row: str, dataset: str) -> str:
    """The published value of a statistic, in tokens or samples."""
    value = values.get((row, dataset, "tokens")) or values.get((row, dataset, "samples"))
    return DASH if value is None else f"{value.value:,.0f}"
