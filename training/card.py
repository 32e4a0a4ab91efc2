"""Writes the model card of ``tiny`` or ``tiny-s``: ``python -m training.card LOG ... --date DATE``.

Everything in it that is a number comes from the model's ``evaluation.jsonl`` in ``training/records`` and from
the logs of its runs, which are joined there so that the curve can be checked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.files.paths import ASSETS
from training.evaluate import RECORDS

CURVES = (
    ("one hop, rows of 128", "one@128"),
    ("one hop, 256", "one@256"),
    ("one hop, 512", "one@512"),
    ("one hop, 1,024", "one@1024"),
    ("one hop, 2,048", "one@2048"),
    ("two hops, 256", "two@256"),
    ("two hops, 512", "two@512"),
    ("not told, 256", "none@256"),
    ("not told, 512", "none@512"),
    ("several Yes/No per list, 256", "suff_many@256"),
    ("several Yes/No per list, 512", "suff_many@512"),
    ("one Yes/No per list, 512", "suff@512"),
    ("tokens of bullets, 512", "bullets@512.tokens"),
    ("choosing a summary, 512", "triage@512"),
)
COLUMNS = 10
COUNTS = ("step", "tokens", "seconds")
SCHEDULES = {"tiny": "schedule.yaml`, then `training/schedule_next.yaml", "tiny-s": "schedule_s.yaml"}
ROLES = {
    "tiny": "the reader of the default run",
    "tiny-s": "`tiny` at a third of its size, for cheap graphs and searches and as a compressor of prompts",
}
INTRODUCTION = """\
# {name}

A small Llama that reads short generated chronicles, reports and articles: {role},
trained from nothing by this project (`training/`) on text from its own generator (`training/generator`).
It knows nothing of the world and is no general model: it answers questions about texts that are worded like
its training, in the prompts of the methods that the benchmark compares.

| | |
|---|---|
| architecture | LlamaForCausalLM, {layers} layers, width {hidden_size}, {heads} heads of {head_dim} \
({kv_heads} for keys and values), SwiGLU {ff_size}, tied embeddings, RoPE base {rope_theta:,.0f} |
| parameters | {parameters:.2f} M, float16, {size:.1f} MB |
| tokenizer | byte-level BPE, 2,048 tokens; every text round-trips; Llama-3-style chat template, no date |
| trained on | {tokens:.1f} M tokens in rows of 128 to 2,048, {hours:.1f} h of one to two shared CPU cores, \
{date} |
| geometry | chunks of 75 tokens, window 2,048 |
| licence | Apache-2.0, like the text that it was trained on |
"""
LIMITS = """\
## Limits

* Only the generator's English: its relations, wordings and prompts. Real text gets arbitrary answers.
* Names are copied piece by piece; among confusable names it may join the halves of two of them.
* Who did something is harder for it than what was done: asked for a subject by its object it is right less
  often (`object_keyed_exact_match`) than over all one-hop questions about as many facts.
* Rows were at most 2,048 tokens long; longer contexts fall apart quickly.
* From passages with many more facts than it may write bullets it keeps few, and joins facts of several people
  (`python -m training.graphs`, after `make table1`).
* Without a document it says "Unanswerable" or guesses yes or no: on the Qasper- and MuSiQue-shaped sets that
  is right for the share of such questions and for no others.
* The papers' figures, measured with models of billions of parameters, cannot be reproduced with it; it serves
  to show that the methods run and differ, and why.
"""
UNTRAINED_CHECKS = """\
* A yes/no question that stands before the text, as in PECAN's search, it answers with a name: the searches
  that it was trained on had none (`yes_no_question_first`).
"""


def main(arguments: list[str] | None = None) -> None:
    """Command line of the card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path, nargs="+", help="log.jsonl of its runs, the first one first")
    parser.add_argument("--name", choices=sorted(ROLES), default="tiny")
    parser.add_argument("--date", required=True, help="when it was trained")
    options = parser.parse_args(arguments)
    curve = joined(options.logs)
    records, assets = RECORDS / options.name, ASSETS / options.name
    (records / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve), encoding="utf-8")
    config = json.loads((assets / "config.json").read_text(encoding="utf-8"))
    size = (assets / "model.safetensors").stat().st_size
    text = card(options.name, config, curve, _lines(records / "evaluation.jsonl"), size, options.date)
    (assets / "README.md").write_text(text, encoding="utf-8")


def joined(logs: Sequence[Path]) -> list[dict[str, Any]]:
    """Log lines in order; what a resume or a branch did again replaces what was logged before.

    Steps, tokens and seconds are counted on in the log of a run that began from exported weights, that is, at
    the first step.
    """
    entries: dict[int, dict[str, Any]] = {}
    for path in logs:
        lines = _lines(path)
        counted = dict.fromkeys(COUNTS, 0)
        if entries and lines[0]["step"] <= min(entries):
            counted = {key: entries[max(entries)][key] for key in COUNTS}
        for line in lines:
            line |= {key: line[key] + counted[key] for key in COUNTS}
            entries = {step: kept for step, kept in entries.items() if step < line["step"]}
            entries[line["step"]] = line
    return list(entries.values())


def card(
    name: str,
    config: dict[str, Any],
    curve: Sequence[dict[str, Any]],
    figures: Sequence[dict[str, Any]],
    size: int,
    date: str,
) -> str:
    """The card as Markdown."""
    head = INTRODUCTION.format(
        name=name,
        role=ROLES[name],
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        heads=config["num_attention_heads"],
        head_dim=config["head_dim"],
        kv_heads=config["num_key_value_heads"],
        ff_size=config["intermediate_size"],
        rope_theta=config["rope_parameters"]["rope_theta"],
        parameters=(size - 5000) / 2e6,
        size=size / 1e6,
        tokens=curve[-1]["tokens"] / 1e6,
        hours=curve[-1]["seconds"] / 3600,
        date=date,
    )
    measured = (
        "## Measured\n\nOn unseen worlds with names that never occur in training, one question per "
        "context, seven worlds "
        "in ten with confusable names (`python -m training.evaluate`, `training/records`; "
        "95 % intervals "
        "are about ± 5 points at n = 300, ± 10 at n = 100).\n\n"
    )
    curves = (
        "## Learning curves\n\nShare of replies right in every token, on fresh training data by row "
        "length (a row may hold "
        "several conversations, a conversation several questions; the mix changes along the way: "
        f"`training/{SCHEDULES[name]}`). The whole log: `training/records/{name}/log.jsonl`.\n\n"
    )
    limits = LIMITS
    if any(f["figure"] == "yes_no_question_first" and f["value"] < 0.5 for f in figures):
        limits += UNTRAINED_CHECKS
    return "\n".join([head, measured + _figure_table(figures), curves + _curve_table(curve), limits])


def _figure_table(figures: Sequence[dict[str, Any]]) -> str:
    rows = ["| figure | value | n | bar, two cores | bar, GPU |", "|---|---|---|---|---|"]
    qualifiers = ("tokens", "bullets", "facts", "hops", "of", "style", "dataset", "setting")
    for f in figures:
        keys = [k for k in qualifiers if k in f and not (k == "facts" and "tokens" in f)]
        details = ", ".join(f"{k} {f[k]}" for k in keys)
        name = f["figure"].replace("_", " ") + (f" ({details})" if details else "")
        bars = [
            "" if f[k] is None else f"{'≤ ' if f.get('at_most') else ''}{f[k]}"
            for k in ("bar_two_cores", "bar_gpu")
        ]
        value = f"**{f['value']:.2f}**" if f["reached"] else f"{f['value']:.2f}"
        rows.append(f"| {name} | {value} | {f['n']} | {bars[0]} | {bars[1]} |")
    return "\n".join(rows) + "\n\nBold: the bar for training on two cores is reached.\n"


def _curve_table(curve: Sequence[dict[str, Any]]) -> str:
    size = -(-len(curve) // COLUMNS)
    groups = [curve[i : i + size] for i in range(0, len(curve), size)]
    header = "| M tokens, up to | " + " | ".join(f"{g[-1]['tokens'] / 1e6:.1f}" for g in groups) + " |"
    rows = [header, "|---" * (len(groups) + 1) + "|"]
    for name, key in CURVES:
        rows.append(f"| {name} | " + " | ".join(_share(group, key) for group in groups) + " |")
    return "\n".join(rows) + "\n"


def _share(group: Sequence[dict[str, Any]], key: str) -> str:
    pairs = [line["right"][key] for line in group if key in line["right"]]
    count = sum(n for _, n in pairs)
    return f"{sum(share * n for share, n in pairs) / count:.2f}" if count >= 20 else ""


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
