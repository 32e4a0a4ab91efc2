"""What the small encoders find, beside BM25 and MiniLM: ``python -m training.encoder_evaluate [MODEL]``.

Unseen documents with names that never occur in training, cut into passages of 75 tokens. A question counts by
the share of its passages (one, or one for each hop) among the first k of its own document; for
``tiny-sentence`` also by the share of the notes that tell its facts, one fact each, among a document's notes.
``start`` is the model before its first training step, which is a sum of random word vectors.
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
from training.checkpoint import Checkpoint
from training.encoder_data import Group, Notes, draw_group
from training.encoders import MODELS, export
from training.evaluate import RECORDS
from training.generator.names import NameSource

log = logging.getLogger(__name__)
DOCUMENTS = 60
SEED = 999
FIRST = (1, 2, 5)
Ranker = Callable[[Group], NDArray[np.float32]]
"""Scores, (questions, passages), of a document."""


def main(arguments: list[str] | None = None) -> None:
    """Command line of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", choices=list(MODELS), default="tiny-dual")
    parser.add_argument("--folder", type=Path, help="of the weights (default: the shipped ones)")
    parser.add_argument("--out", type=Path, help="JSON lines (default: training/records/MODEL)")
    parser.add_argument("--card", type=Path, metavar="RUN", help="write the model card, with this run's log")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    model: str = options.model
    folder: Path = options.folder or ASSETS / model
    out: Path = options.out or RECORDS / model / "evaluation.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    rankers: dict[str, Ranker] = {
        model: trained(model, folder),
        "start": start(model),
        "minilm": single("minilm"),
        "bm25": bm25,
    }
    kinds: list[Notes] = ["none"] if MODELS[model].notes == "none" else ["none", "single"]
    lines = []
    for notes in kinds:
        groups = held_out(options.documents, notes=notes)
        for name, ranker in rankers.items():
            for figure in recall(ranker, groups, "passage" if notes == "none" else "note"):
                lines.append(json.dumps({"figure": "recall", "ranker": name, **figure}))
                log.info("%s", lines[-1])
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.card:
        curve = read_log(options.card, out.with_name("log.jsonl"))
        text = card(model, [json.loads(line) for line in lines], curve, options.documents)
        (folder / "README.md").write_text(text, encoding="utf-8")


def read_log(run: Path, copy: Path) -> list[dict[str, Any]]:
    """The log of a run, which is copied; what a resume did again counts once."""
    entries: dict[int, dict[str, Any]] = {}
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        entries = {step: kept for step, kept in entries.items() if step < entry["step"]}
        entries[entry["step"]] = entry
    kept = "".join(json.dumps(entry) + "\n" for entry in entries.values())
    copy.write_text(kept, encoding="utf-8")
    return list(entries.values())


CARDS = {name: Path(__file__).with_name(f"{name.replace('-', '_')}_card.md") for name in MODELS}
"""The cards' texts, with places for figures."""


def card(
    model: str, figures: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]], documents: int
) -> str:
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
    return (
        CARDS[model]
        .read_text(encoding="utf-8")
        .format(
            steps=f"{curve[-1]['step']:,}",
            minutes=round(curve[-1]["seconds"] / 60),
            documents=documents,
            table="\n".join(rows),
            curve="\n".join(shown),
        )
    )


def held_out(documents: int, seed: int = SEED, notes: Notes = "none") -> list[Group]:
    """Documents and questions of the evaluation, the same for the same seed."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ASSETS / "tiny" / "tokenizer.json"))
    tokenizer.encode_special_tokens = True

    def tokenize(text: str) -> Tokenization:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    names = NameSource("held_out")
    return [
        draw_group(
            random.Random(f"dual:evaluation:{seed}:{i}"), names, tokenize, chunk_tokens=75, notes=notes
        )
        for i in range(documents)
    ]


def recall(ranker: Ranker, groups: Sequence[Group], unit: str = "passage") -> Iterator[dict[str, Any]]:
    """Mean share of each question's passages among the first k, for questions of one hop and of more."""
    shares_by_kind: dict[tuple[str, int], list[float]] = {}
    for group in groups:
        if not group.questions:
            continue
        order = np.argsort(-ranker(group), axis=1, kind="stable")
        for row, wanted in zip(order, group.positives, strict=True):
            for k in FIRST:
                kind = f"one {unit}" if len(wanted) == 1 else f"several {unit}s"
                share = len(set(wanted) & set(row[:k].tolist())) / len(wanted)
                shares_by_kind.setdefault((kind, k), []).append(share)
    for (kind, k), shares in sorted(shares_by_kind.items()):
        yield {"questions": kind, "k": k, "value": round(float(np.mean(shares)), 4), "n": len(shares)}


def trained(model: str, folder: Path) -> Ranker:
    """The model in a folder: dot products of the pair's vectors, or cosines of the sentence encoder's."""
    if model == "tiny-dual":
        query, context = _encoder(str(folder / "query"), "cls"), _encoder(str(folder / "context"), "cls")
        return lambda group: query(group.questions) @ context(group.passages).T
    encode = _encoder(str(folder), "mean")
    return lambda group: _unit(encode(group.questions)) @ _unit(encode(group.passages)).T


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def start(model: str) -> Ranker:
    """The model before its first training step."""
    import tempfile

    import torch

    torch.manual_seed(1)
    folder = Path(tempfile.mkdtemp())
    export(Checkpoint(MODELS[model]().state_dict(), {}, {}, {"step": 0, "model": model}), folder)
    return trained(model, folder)


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
