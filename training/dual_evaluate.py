"""What ``tiny-dual`` finds, measured beside BM25 and MiniLM: ``python -m training.dual_evaluate``.

Unseen documents with names that never occur in training, cut into passages of 75 tokens. A question counts by
the share of its passages (one, or one for each hop) among the first k of its own document. ``start`` is the
encoder pair before its first training step, which is a sum of random word vectors.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.files.paths import ASSETS
from bench.models.api import Tokenization
from bench.models.presets import Pooling
from methods.retrievers.bm25 import words
from training.dual_data import Group, draw_group
from training.evaluate import RECORDS
from training.generator.names import NameSource

log = logging.getLogger(__name__)
OUT = RECORDS / "tiny-dual" / "evaluation.jsonl"
DOCUMENTS = 60
SEED = 999
FIRST = (1, 2, 5)
Ranker = Callable[[Group], NDArray[np.float32]]
"""Scores, (questions, passages), of a document."""


def main(arguments: list[str] | None = None) -> None:
    """Command line of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, default=ASSETS / "tiny-dual", help="folder of query and context"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--card", type=Path, metavar="RUN", help="write the model card, with this run's log")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    groups = held_out(options.documents)
    rankers: dict[str, Ranker] = {
        "tiny-dual": pair(options.model),
        "start": start(),
        "minilm": single("minilm"),
        "bm25": bm25,
    }
    lines = []
    for name, ranker in rankers.items():
        for figure in recall(ranker, groups):
            lines.append(json.dumps({"figure": "recall", "ranker": name, **figure}))
            log.info("%s", lines[-1])
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.card:
        text = card([json.loads(line) for line in lines], read_log(options.card), options.documents)
        (options.model / "README.md").write_text(text, encoding="utf-8")


def read_log(run: Path) -> list[dict[str, Any]]:
    """The log of a run, which is copied to the records; what a resume did again counts once."""
    entries: dict[int, dict[str, Any]] = {}
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        entries = {step: kept for step, kept in entries.items() if step < entry["step"]}
        entries[entry["step"]] = entry
    kept = "".join(json.dumps(entry) + "\n" for entry in entries.values())
    OUT.with_name("log.jsonl").write_text(kept, encoding="utf-8")
    return list(entries.values())


CARD = Path(__file__).with_name("dual_card.md")
"""The card's text, with places for figures."""


def card(figures: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]], documents: int) -> str:
    """The model card as Markdown."""
    kinds = sorted({(f["questions"], f["k"], f["n"]) for f in figures})
    rows = ["| questions | k | n | " + " | ".join(dict.fromkeys(f["ranker"] for f in figures)) + " |"]
    rows.append("|---" * (rows[0].count("|") - 1) + "|")
    for questions, k, n in kinds:
        values = [f"{f['value']:.2f}" for f in figures if (f["questions"], f["k"]) == (questions, k)]
        rows.append(f"| {questions} | {k} | {n} | {' | '.join(values)} |")
    steps = curve[:: max(1, len(curve) // 8)]
    shown = ["| step | loss | best passage is a right one |", "|---|---|---|"]
    shown += [
        f"| {e['step']} | {e['loss']:.2f} | {e['first_is_positive']:.2f} |" for e in (*steps, curve[-1])
    ]
    return CARD.read_text(encoding="utf-8").format(
        steps=f"{curve[-1]['step']:,}",
        minutes=round(curve[-1]["seconds"] / 60),
        documents=documents,
        table="\n".join(rows),
        curve="\n".join(shown),
    )


def held_out(documents: int, seed: int = SEED) -> list[Group]:
    """Documents and questions of the evaluation, the same for the same seed."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ASSETS / "tiny" / "tokenizer.json"))
    tokenizer.encode_special_tokens = True

    def tokenize(text: str) -> Tokenization:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    names = NameSource("held_out")
    return [
        draw_group(random.Random(f"dual:evaluation:{seed}:{i}"), names, tokenize, chunk_tokens=75)
        for i in range(documents)
    ]


def recall(ranker: Ranker, groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Mean share of each question's passages among the first k, for questions of one hop and of more."""
    shares_by_kind: dict[tuple[str, int], list[float]] = {}
    for group in groups:
        if not group.questions:
            continue
        order = np.argsort(-ranker(group), axis=1, kind="stable")
        for row, wanted in zip(order, group.positives, strict=True):
            for k in FIRST:
                kind = "one passage" if len(wanted) == 1 else "several passages"
                share = len(set(wanted) & set(row[:k].tolist())) / len(wanted)
                shares_by_kind.setdefault((kind, k), []).append(share)
    for (kind, k), shares in sorted(shares_by_kind.items()):
        yield {"questions": kind, "k": k, "value": round(float(np.mean(shares)), 4), "n": len(shares)}


def pair(folder: Path) -> Ranker:
    """The dot products of a pair of encoders."""
    query, context = _encoder(str(folder / "query"), "cls"), _encoder(str(folder / "context"), "cls")
    return lambda group: query(group.questions) @ context(group.passages).T


def start() -> Ranker:
    """The pair before its first training step."""
    import tempfile

    import torch

    from training.checkpoint import Checkpoint
    from training.dual import DualEncoder, export

    torch.manual_seed(1)
    folder = Path(tempfile.mkdtemp())
    export(Checkpoint(DualEncoder().state_dict(), {}, {}, {"step": 0}), folder)
    return pair(folder)


def single(name: str) -> Ranker:
    """The cosine of one encoder's vectors, which it makes of length 1 itself."""
    encode = _encoder(name, None)
    return lambda group: encode(group.questions) @ encode(group.passages).T


def _encoder(name: str, pooling: Pooling | None) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    from bench.models.loader import load_encoder
    from bench.models.spec import resolve

    model = load_encoder(resolve(name), pooling=pooling)
    return lambda texts: np.asarray(model.encode(list(texts), show_progress_bar=False), dtype=np.float32)


def bm25(group: Group) -> NDArray[np.float32]:
    """BM25 as the method of that name ranks."""
    from rank_bm25 import BM25Okapi

    index = BM25Okapi([words(passage) for passage in group.passages])
    return np.array([index.get_scores(words(q)) for q in group.questions], dtype=np.float32)


if __name__ == "__main__":
    main()
