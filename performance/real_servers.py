"""Every method that a server can serve, through a real server and in this process: equal answers and costs?

``python -m performance.real_servers [--kind vllm|llamacpp] [--model NAME]`` starts each server that
``make test-servers`` has installed below ``build/servers``, one at a time, on a free port of this machine. It
serves the same weights in float32, and both sides are asked the same questions. Where a text differs, every
token that the server chose is scored by the model in this process: one within ``NEAR`` of the best logit is a
tie that two orders of summation decide differently, anything else is a fault.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch

from bench.files.atomic import write_json
from bench.models.model_set import load_language_model
from bench.models.served.language_model import ServedLanguageModel
from bench.models.spec import resolve
from bench.results.finished import FinishedCell
from bench.run.cell import CellRequest, plan_cell
from bench.run.provenance import git_commit
from bench.run.session import Session
from performance.measuring import REPOSITORY, Machine, wrapped
from performance.serve import SERVERS, serving

RESULT = REPOSITORY / "performance" / "results" / "servers.json"
SETS = ("hotpotqa", "qasper")
NEAR = 1e-3
"""Logits that are this close are a tie in float32; a wrong token is further off by orders of magnitude."""

METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("closed_book", {}),
    ("bm25", {}),
    ("tfidf", {}),
    ("sbert", {}),
    ("hyde", {"encoder": "minilm"}),
    ("iter_retgen", {}),
    ("ircot", {}),
    ("rerank", {}),
    ("self_route", {}),
    ("linear_rag", {}),
    ("hipporag", {"extract_tokens": 100}),
    ("full_context", {}),
    ("cached_context", {}),
    ("chain_of_agents", {}),
    ("read_agent", {}),
    ("longllmlingua", {"compressor": "tiny"}),
    ("raptor", {"embedder": "minilm"}),
    ("memwalker", {}),
    ("pecan", {"attention": "off"}),
)
"""What a server can serve and needs no weights that are not shipped, with the options that make it so."""
QUICK = ("closed_book", "bm25", "rerank", "memwalker", "pecan")


@dataclass(frozen=True)
class Compared:
    """One cell through a server beside the same cell in this process."""

    server: str
    model: str
    method: str
    dataset: str
    questions: int
    same_texts: int
    f1: float
    served_f1: float
    same_flops: int
    """Questions whose FLOPs, index included, are equal."""
    failed: int
    furthest: float
    """How far below the best logit a chosen token was, where texts differ; 0: none does."""
    served_s: float
    local_s: float

    @property
    def verdict(self) -> str:
        """Equal, ties, or a fault."""
        if self.failed:
            return "FAILED"
        if self.same_texts == self.questions:
            return "equal" if self.same_flops == self.questions else "COSTS"
        return "near-ties" if self.furthest <= NEAR else "DIFFERS"


class Asked:
    """What a server was asked and has answered, for the cells that need a second look."""

    def __init__(self) -> None:
        self.generated: list[tuple[list[int], list[int]]] = []
        """(prompt, answer) of each request that generated."""

    def around(self, ask: Any) -> Any:
        """``ServedLanguageModel.ask`` that is remembered."""

        async def asked(lm: Any, question: Any) -> Any:
            answer = await ask(lm, question)
            if not question.choices and answer.ids:
                self.generated.append((list(question.ids), list(answer.ids)))
            return answer

        return asked

    def furthest(self, model: Any) -> float:
        """The largest distance of a chosen token's logit from the best one's, over all that was generated."""
        worst = 0.0
        for prompt, answer in self.generated:
            ids = torch.tensor([[*prompt, *answer]])
            with torch.inference_mode():
                logits = model(ids, use_cache=False, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
            chosen = logits.gather(1, ids[0, -len(answer) :, None])[:, 0]
            worst = max(worst, float((logits.max(-1).values - chosen).max()))
        return worst


def compare(
    session: Session, server: str, address: str, model: str, which: Sequence[str], questions: int
) -> Iterator[Compared]:
    """Each method on each set through the server, beside the same in this process."""
    stock = load_language_model(resolve(model, dtype="float32", device="cpu"))
    for method, options in METHODS:
        if method not in which:
            continue
        for dataset in SETS:
            setting = CellRequest(limit=questions, dtype="float32", model_named=True)
            local = plan_cell(setting.of(method, dataset, options, model=model))
            served = plan_cell(setting.of(method, dataset, options, model=address))
            began = time.perf_counter()
            ours = session.run(local)
            middle = time.perf_counter()
            asked = Asked()
            with wrapped(ServedLanguageModel, "ask", asked.around):
                theirs = session.run(served)
            ended = time.perf_counter()
            yield _compared(
                server, model, ours, theirs, asked, stock.hf_model, ended - middle, middle - began
            )


def _compared(
    server: str, model: str, ours: FinishedCell, theirs: FinishedCell, asked: Asked, stock: Any,
    served_s: float, local_s: float,
) -> Compared:  # fmt: skip
    pairs = list(zip(ours.records, theirs.records, strict=True))
    same = sum(one.prediction == other.prediction for one, other in pairs)
    cost = sum(
        (one.flops.query, one.flops.index) == (other.flops.query, other.flops.index) for one, other in pairs
    )
    failed = sum(record.error is not None for pair in pairs for record in pair)
    return Compared(
        server=server,
        model=model,
        method=ours.description.method,
        dataset=ours.description.dataset,
        questions=len(pairs),
        same_texts=same,
        f1=_f1(ours),
        served_f1=_f1(theirs),
        same_flops=cost,
        failed=failed,
        furthest=0.0 if same == cost == len(pairs) else asked.furthest(stock),
        served_s=round(served_s, 1),
        local_s=round(local_s, 1),
    )


def _f1(cell: FinishedCell) -> float:
    return 100 * sum(record.scores["f1"] for record in cell.records) / len(cell.records)


@click.command()
@click.option("--kind", "kinds", type=click.Choice(("vllm", "llamacpp")), multiple=True)
@click.option(
    "--model", "models", multiple=True, help="preset; default: tiny, and a real reader that is here"
)
@click.option("--questions", default=8, show_default=True)
@click.option("--quick", is_flag=True, help="five methods in place of all")
def main(kinds: Sequence[str], models: Sequence[str], questions: int, quick: bool) -> None:
    """Compare what is installed, print a line a cell, and write performance/results/servers.json."""
    logging.getLogger("bench").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows: list[Compared] = []
    versions: dict[str, str] = {}
    which = QUICK if quick else [method for method, _ in METHODS]
    with tempfile.TemporaryDirectory() as folder:
        for model in models or _here():
            spec = resolve(model)
            for kind in kinds or [kind for kind in ("vllm", "llamacpp") if (SERVERS / kind).is_dir()]:
                with serving(kind, spec.source.locate(model), model, Path(folder)) as address:
                    served = resolve(address).server
                    assert served is not None
                    versions[kind] = served.info.version
                    session = Session(Path(folder) / "results", in_flight=8)
                    for row in compare(session, kind, address, model, which, questions):
                        rows.append(row)
                        _write(rows, versions)
                        click.echo(
                            f"{row.server:<9}{row.model:<20}{row.method:<16}{row.dataset:<10}{row.verdict:<10}"
                            f"texts {row.same_texts}/{row.questions}  F1 {row.f1:5.1f} {row.served_f1:5.1f}  "
                            f"FLOPs {row.same_flops}/{row.questions}  furthest {row.furthest:.1e}  "
                            f"{row.served_s:.0f} s, here {row.local_s:.0f} s"
                        )
    bad = [row for row in rows if row.verdict.isupper()]
    raise SystemExit(f"{len(bad)} of {len(rows)} cells differ." if bad else 0)


def _write(rows: Sequence[Compared], versions: dict[str, str]) -> None:
    """Put the rows in place of those of the same cells."""
    before: dict[str, Any] = (
        json.loads(RESULT.read_text()) if RESULT.is_file() else {"versions": {}, "rows": []}
    )
    kept = {(row["server"], row["model"], row["method"], row["dataset"]): row for row in before["rows"]}
    for row in rows:
        kept[row.server, row.model, row.method, row.dataset] = {**asdict(row), "verdict": row.verdict}
    machine = {"commit": git_commit(), "machine": asdict(Machine.here())}
    write_json(RESULT, {**machine, "versions": before["versions"] | versions, "rows": list(kept.values())})


def _here() -> list[str]:
    """The shipped model, and the smallest real reader if it has been fetched."""
    real = "qwen2.5-coder-0.5b"
    return ["tiny", *([real] if resolve(real).source.here() else [])]


if __name__ == "__main__":
    main()
