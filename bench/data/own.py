"""Data sets of the user's own: any name, with a card made for it where no shipped card has that name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from bench.data.cards import Card, card_names, list_cards, load_card, sets_in
from bench.data.format import Parsed
from bench.data.source import open_source
from bench.errors import ConfigError, DataError, UnknownNameError
from bench.files.paths import written_path
from bench.schema import Task

NOT_PATHS = ("sample", "hub")
"""Values of ``--data`` that are no file or folder."""

_METRICS: dict[Task, tuple[str, ...]] = {
    "qa": ("f1", "rouge_l", "bleu_4"),
    "summarization": ("rouge_l_f1_stem", "rouge_1", "rouge_2"),
}
_MAX_NEW_TOKENS: dict[Task, int] = {"qa": 128, "summarization": 512}
"""Of an answer, as LongBench has it for Qasper and QMSum."""

_PROMPT = """\
Read the following documents.

{context}

Answer the question from these documents in a few words or one sentence, without any explanation.

Question: {input}
Answer:"""
"""For ``prompt=longbench``, in the form of LongBench's templates; our words."""


class OwnCard(Card):
    """The card of a data set that the project does not know; it accepts any name in the data file."""

    def accepts(self, dataset: str) -> bool:
        """True: data of the user's own may have any name."""
        return True


def name_of(title: str) -> str:
    """The name in files and tables of data called that: letters and digits in lower case, ``_`` between."""
    return re.sub(r"[^a-z0-9]+", "_", title.lower())[:100].strip("_") or "documents"


def own_card(title: str, task: Task = "qa") -> OwnCard:
    """A card for data of that name."""
    return OwnCard(
        name=name_of(title),
        title=title,
        summary="data of the user's own",
        task=task,
        homepage="",
        citation="",
        licence="",
        formats=("folder", "bench"),
        metrics=_METRICS[task],
        max_new_tokens=_MAX_NEW_TOKENS[task],
        longbench_prompt=_PROMPT if task == "qa" else None,
        query="Summarize the documents." if task == "summarization" else "",
    )


def card_for(dataset: str, data: str = "sample") -> Card:
    """The card of a data set: the shipped one of that name, or where ``data`` is a path one of its own.

    dataset: its name; empty: whatever the data at the path call themselves, else the name of the file or
    folder. Raises UnknownNameError for an unknown name that is no path's or looks like a slip, ConfigError
    where a name is needed.
    """
    if data in NOT_PATHS:
        if not dataset:
            raise ConfigError(f"--data {data} needs --dataset as well; see: bench list datasets.")
        return load_card(dataset)
    if not data.strip():
        raise ConfigError("--data is empty; expected: sample, hub, or a file or folder, such as .")
    known = card_names()
    if dataset in known:
        return load_card(dataset)
    path = written_path(data)
    if not dataset and (parts := sets_in(path)):
        raise ConfigError(f"{path} holds data sets by their names; give --dataset: {' or '.join(parts)}.")
    first = _first_example(path)
    declared = first.datasets if first else ()
    task: Task = first.example.task if first else "qa"
    path = path.resolve()
    own = own_card(declared[0] if declared else path.name if path.is_dir() else path.stem, task)
    if not dataset:
        shipped = [card for card in list_cards() if any(card.accepts(name) for name in declared)]
        return shipped[0] if shipped else load_card(own.name) if own.name in known else own
    slip = difflib.get_close_matches(dataset, known, n=1, cutoff=0.8)
    if slip and dataset not in (*declared, own.name):
        raise UnknownNameError("data set", dataset, known, hint="Data of your own: any other name will do.")
    return own_card(dataset, task)


def _first_example(path: Path) -> Parsed | None:
    """The first example of a file or folder; None where it has none, which loading reports."""
    try:
        return next((item for item in open_source(path).examples() if isinstance(item, Parsed)), None)
    except DataError:
        return None


def datasets_at(data: str, asked: Sequence[str]) -> tuple[str, ...]:
    """The data sets that a table or figure shows of ``--data``: those it asks for, or what a path holds.

    A file, or a folder of one data set, is that data set alone, whether it is asked for or the user's own; a
    folder of several may have all that are asked for.
    """
    path = written_path(data)
    if data in NOT_PATHS or set(sets_in(path)) & set(asked):
        return tuple(asked)
    return (card_for("", data).name,)
