"""Four engines, one machine, one model, by turns: ours, transformers, vLLM and llama-server.

Qwen2.5-Coder-0.5B-Instruct in bfloat16 (`BENCH_READER` names another), on as many threads as there are
cores; llama-server also with 4-bit weights. The servers are those that `make test-servers` has installed, on
the loopback address, and take drawn tokens, no text. *Prefill*: one prompt, one token of answer. *Decoding*:
prompts of 32 tokens and 32 tokens of answer each. *Six questions a story*: 2,048 tokens that all six begin
with, 32 of their own, 16 of answer, one after the other. *bm25*: questions of HotpotQA's sample set as a
whole, models loaded before; transformers has no such run. Rates are per token, or per question.
``python -m performance.engines`` draws what was found last into ``docs/images/engines.png``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.engine.scheduler import Request
from bench.errors import BenchError
from bench.models.language_model import CausalLanguageModel
from bench.models.loader import load_causal
from bench.models.model_set import load_language_model
from bench.models.processor import faster_dtype
from bench.models.spec import resolve
from bench.run.cell import CellRequest, plan_cell
from bench.run.session import Session
from performance.drawn import in_flight, random_tokens
from performance.measuring import REPOSITORY, Candidate, Timed, by_turns
from performance.report import Measurement, NotRun, rate, ratio
from performance.serve import SERVERS, serving

log = logging.getLogger(__name__)

READER = os.environ.get("BENCH_READER", "qwen2.5-coder-0.5b")
_LLAMA = ["-fa", "auto", "-ctk", "f16", "-ctv", "f16", "-np", "32", "--kv-unified", "-c", "65536"]
QUICKLY = {"vllm": ["--dtype", "bfloat16"], "llamacpp:BF16": _LLAMA, "llamacpp:Q4_0": _LLAMA}
"""What a server is started with to be fast, after what makes it exact."""
FOUR_BITS = "llamacpp:Q4_0"

Prompt = list[int]
Read = Callable[[Sequence[Prompt], int, int], list[tuple[int, ...]]]
"""(prompts, tokens of each answer, in flight) -> the answers."""


def measure(quick: bool) -> list[Measurement]:
    """Each load by each engine; quick: a few tokens.

    Raises NotRun without the reader or any server, and where bfloat16 is emulated.
    """
    if faster_dtype() != "bfloat16":
        raise NotRun("this processor has no bfloat16 units, and emulating them takes hours")
    spec = resolve(READER, dtype="bfloat16", device="cpu")
    kinds = [kind for kind in QUICKLY if (SERVERS / kind.partition(":")[0] / ".installed").is_file()]
    if not spec.source.here() or not kinds:
        raise NotRun(f"needs {READER} (bench model fetch) and a server (make test-servers)")
    lm, stock = load_language_model(spec), load_causal(spec)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addresses, left_out = dict[str, str](), dict[str, str]()
        for kind in kinds:
            start = serving(kind, spec.source.locate(READER), READER, Path(folder), *QUICKLY[kind])
            try:
                addresses[kind] = stack.enter_context(start)
            except BenchError as error:  # such as instructions that this processor does not have
                left_out[kind] = str(error).replace(f"{REPOSITORY}/", "").replace(folder, "")
        engines: dict[str, Read] = {
            "ours": partial(_ours, lm),
            "transformers": partial(_transformers, stock),
            **{kind: partial(_served, kind, address) for kind, address in addresses.items()},
        }
        found = list[Measurement]()
        for load in [QUICK] if quick else LOADS:
            for one in load.compared(engines):
                log.info("%s: %.3g %s", one.name, one.value, one.unit)
                found.append(one)
        without = Measurement("servers that did not start", len(left_out), "", details=left_out)
        return [without, *found, *_whole(addresses, Path(folder), 2 if quick else 24)]


_drawn = random.Random(7)


@dataclass(frozen=True)
class Load:
    """Prompts of drawn tokens to be answered; every run has others, so that no engine has read them."""

    what: str
    shared: int
    """Tokens that all prompts of a run begin with."""
    own: int
    prompts: int
    new: int
    """Tokens of each answer."""
    most: int
    """In flight."""
    unit: str
    units: int
    rounds: int = 2
    four_bits: str = ""
    """Target of our rate over llama-server's with 4-bit weights."""

    def run(self, read: Read) -> list[tuple[int, ...]]:
        """The answers."""
        story = random_tokens(self.shared, _drawn)
        prompts = [[*story, *random_tokens(self.own, _drawn)] for _ in range(self.prompts)]
        return read(prompts, self.new, self.most)

    def compared(self, engines: Mapping[str, Read]) -> Iterator[Measurement]:
        """Our rate over the best of the others, and every engine's."""
        failed = dict[str, str]()

        def run(name: str, read: Read) -> None:
            try:
                self.run(read)
            except OSError as error:  # a server's refusal among them: the engine is left out of this load
                failed[name] = str(error)

        work = {name: Candidate(partial(run, name, read), self.units) for name, read in engines.items()}
        timed = by_turns(work, self.rounds)
        timed = {name: one for name, one in timed.items() if name not in failed}
        others = [name for name in timed if name not in ("ours", FOUR_BITS)]
        best = min(others, key=lambda name: timed[name].wall_s)
        name = f"{self.what}: ours over the best other, {best}"
        yield ratio(name, timed[best], timed["ours"], ">= 1", failed=failed)
        if FOUR_BITS in timed:
            name = f"{self.what}: ours over llama-server with 4-bit weights"
            yield ratio(name, timed[FOUR_BITS], timed["ours"], self.four_bits)
        for name, one in timed.items():
            yield rate(f"{self.what}: {name}", one, f"{self.unit}/s")


QUICK = Load("prefill of 64 tokens", 0, 64, 1, 1, 1, "tokens", 64, rounds=1)
LOADS = (
    Load("prefill of 512 tokens", 0, 512, 1, 1, 1, "tokens", 512),
    Load("prefill of 2,048 tokens", 0, 2048, 1, 1, 1, "tokens", 2048),
    Load("prefill of 8,192 tokens", 0, 8192, 1, 1, 1, "tokens", 8192, rounds=1),
    Load("decoding, 1 in flight", 0, 32, 1, 32, 1, "tokens", 32, four_bits=">= 0.8"),
    Load("decoding, 4 in flight", 0, 32, 4, 32, 4, "tokens", 128),
    Load("decoding, 16 in flight", 0, 32, 16, 32, 16, "tokens", 512),
    Load("decoding, 32 in flight", 0, 32, 32, 32, 32, "tokens", 1024),
    Load("six questions a story", 2048, 32, 6, 16, 1, "questions", 6),
)


def _ours(lm: CausalLanguageModel, prompts: Sequence[Prompt], new: int, most: int) -> list[tuple[int, ...]]:
    async def one(prompt: Prompt) -> tuple[int, ...]:
        slot = await lm.engine.reserve(len(prompt) + new)
        answer = await lm.engine.run(Request(slot, prompt, decode=new, limit=len(prompt) + new))
        lm.engine.release(slot, retain=True)  # for a prompt that begins alike, as a closed context does
        return answer.answer

    return asyncio.run(in_flight(one, prompts, most))


def _transformers(model: Any, prompts: Sequence[Prompt], new: int, most: int) -> list[tuple[int, ...]]:
    """Its own ``generate``, on a batch of as many prompts of one length as are in flight."""
    import torch

    answers: list[tuple[int, ...]] = []
    for at in range(0, len(prompts), most):
        batch = torch.tensor(prompts[at : at + most])
        out = model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
        )
        answers += [tuple(row) for row in out[:, batch.shape[1] :].tolist()]
    return answers


def _served(kind: str, address: str, prompts: Sequence[Prompt], new: int, most: int) -> list[tuple[int, ...]]:
    url = address.removeprefix("server:").partition("/v1#")[0]
    path, count = ("/v1/completions", "max_tokens") if kind == "vllm" else ("/completion", "n_predict")

    def one(at: int, prompt: Prompt) -> tuple[int, ...]:
        body = {"model": READER, "prompt": prompt, count: new, "temperature": 0, "ignore_eos": True}
        if kind != "vllm":
            body["id_slot"] = at % most  # else it keeps every slot's last prompt, until there is no room left
        request = urllib.request.Request(
            f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            json.load(reply)
        return ()

    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(one, range(len(prompts)), prompts))


def _whole(addresses: Mapping[str, str], folder: Path, questions: int) -> Iterator[Measurement]:
    """bm25 through every server and in this process; each side's first questions load what it needs."""
    setting = CellRequest(limit=questions, dtype="bfloat16", model_named=True)
    timed: dict[str, Timed] = {}
    for name, model in {"ours": READER, **addresses}.items():
        with _session(folder / name) as session:
            few = CellRequest(limit=1, dtype="bfloat16", model_named=True)
            session.run(plan_cell(few.of("bm25", "qasper", {}, model=model)))
            cell = plan_cell(setting.of("bm25", "hotpotqa", {}, model=model))
            timed |= by_turns({name: Candidate(partial(session.run, cell), questions)}, 1, warm_up=False)
    best = min((name for name in timed if name != "ours"), key=lambda name: timed[name].wall_s)
    what = f"bm25 on {questions} questions of HotpotQA's shape"
    yield ratio(f"{what}: ours over the best other, {best}", timed[best], timed["ours"], ">= 1")
    for name, one in timed.items():
        yield rate(f"{what}: {name}", one, "questions/s")


@contextmanager
def _session(results: Path) -> Iterator[Session]:
    session = Session(results)
    try:
        yield session
    finally:
        session.close()


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Every engine's rate over ours, by load."""
    from matplotlib.figure import Figure

    from bench.figures.drawing import COLOURS, styled

    rates: dict[str, dict[str, float]] = {}
    for one in result["measurements"]:
        if one["unit"].endswith("/s"):
            load, _, engine = one["name"].partition(": ")
            rates.setdefault(load, {})[engine] = one["value"]
    names = list(dict.fromkeys(name for own in rates.values() for name in own if name != "ours"))
    height = 0.8 / len(names)
    with styled:
        figure = Figure(figsize=(6.4, 0.55 * len(rates) + 0.8), layout="constrained")
        axes = figure.subplots()
        for at, name in enumerate(names):
            shown = [(row, own[name] / own["ours"]) for row, own in enumerate(rates.values()) if name in own]
            places = [row + (at - (len(names) - 1) / 2) * height for row, _ in shown]
            bars = axes.barh(places, [share for _, share in shown], height, label=name, color=COLOURS[at])
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(rates)), list(rates))
        axes.invert_yaxis()
        axes.set_xlabel("rate over ours; the line is this engine")
        axes.legend(frameon=False, loc="best")
        figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    RESULT = REPOSITORY / "performance" / "results" / "engines.json"
    draw(json.loads(RESULT.read_bytes()), REPOSITORY / "docs" / "images" / "engines.png")
