"""Prediction dumps over LongBench, as OpenCompass writes them: an object of numbered entries.

    {"0": {"origin_prompt", "prediction", "gold": [...], ...}, "1": ...}

The prompt is LongBench's, so the templates on the cards recover context and question from it. ``gold``
holds the references; the predictions are ignored. Sets that share a template (HotpotQA, MuSiQue) are
indistinguishable: the entry belongs to whichever of them the user loads it as.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from bench.data.cards import list_cards
from bench.data.entries import Entry
from bench.data.format import EntryError, Fields, Format, Parsed, fields_of, has, parsed
from bench.data.formats.longbench import split_passages, task_of


class _Dump(Fields):
    origin_prompt: str
    gold: list[str] | str


def _parse(entry: Entry) -> Iterator[Parsed]:
    dump = fields_of(entry, _Dump)
    for template, datasets in _templates().items():
        cut = cut_prompt(dump.origin_prompt, template)
        if cut is None:
            continue
        context, question = cut
        yield parsed(
            id=f"longbench-{entry.key or entry.position}",
            question=question,
            answers=[dump.gold] if isinstance(dump.gold, str) else dump.gold,
            documents=split_passages(context),
            task=task_of(datasets[0]),
            datasets=datasets,
            notes=[f"{' and '.join(datasets)} share this prompt"] if len(datasets) > 1 else [],
        )
        return
    known = ", ".join(name for names in _templates().values() for name in names)
    raise EntryError(
        f"origin_prompt fits LongBench's prompt of none of {known}; it starts {dump.origin_prompt[:60]!r}"
    )


@cache
def _templates() -> dict[str, tuple[str, ...]]:
    """LongBench's prompt -> the data sets that use it."""
    names: dict[str, tuple[str, ...]] = {}
    for card in list_cards():
        if card.longbench_prompt is not None:
            names[card.longbench_prompt] = (*names.get(card.longbench_prompt, ()), card.name)
    return names


def cut_prompt(prompt: str, template: str) -> tuple[str, str] | None:
    """The context and question that fill the template to make the prompt; None if it does not fit.

    If the context contains the template's middle part, the last occurrence counts: questions are short.
    """
    before, _, rest = template.partition("{context}")
    middle, _, after = rest.partition("{input}")
    if not (prompt.startswith(before) and prompt.endswith(after)):
        return None
    filling = prompt[len(before) : len(prompt) - len(after)]
    context, separator, question = filling.rpartition(middle)
    return (context, question) if separator else None


LONGBENCH_PREDICTIONS = Format(
    "longbench-predictions",
    "OpenCompass predictions over LongBench",
    has("origin_prompt", "prediction"),
    _parse,
)
