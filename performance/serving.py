"""Many questions, or documents, served together, against one at a time and against plain transformers.

*PECAN questions* are the shipped sample sets' own, asked by the shipped model of graphs that it built. *Drawn
searches* are the load that the target was set with: an opening of 300 tokens, 20 nodes of 25 with a probe of
10 after each, an instruction of 15 and an answer of 12, all random. *Graphs* are built of documents of all
sets. Plain transformers do the same one at a time: questions on a cache that is cropped after each probe
(they are told which nodes to read, and record no attention), graphs by `generate()` (without edges). The
texts of all sides are compared. Arithmetic is on one thread, as in every command with a small reader.

What there is to gain depends on how many tokens a question brings at a time. One row in a forward uses a
tenth of a core's arithmetic, about 250 saturate it: decoding gains most, a search whose every step reads a
chunk of 75 tokens little, the first reading of a long top level nothing. A graph also needs embeddings of its
nodes, which take as long for one document as for sixteen, so the sentence encoder's part is also shown by
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench.engine.setup import build_engine
from bench.models.api import Generation
from bench.schema import Index, Prediction
from methods.pecan.graph import Graph
from performance.drawn import CHOICES, SMALL, TINY, Search, in_flight, model, run_searches, searches
from performance.measuring import Candidate, Timed, by_turns
from performance.plain import PlainModel, plain_model, search_on_a_cache
from performance.report import Measurement, rate, ratio
from performance.straight import StraightGraph, build
from performance.workloads import PecanWork, pecan_work

QUESTIONS_IN_FLIGHT, DOCUMENTS_IN_FLIGHT = 32, 16


def measure(quick: bool) -> list[Measurement]:
    """Questions, drawn searches, graphs."""
    if quick:
        work, rounds, alone = pecan_work((("hotpotqa", 2),)), 1, 2
    else:
        sets = (("hotpotqa", 4), ("musique", 4), ("qasper", 4), ("narrativeqa", 4))
        work, rounds, alone = pecan_work(sets), 3, 8
    plain = plain_model(work.lm, "sdpa")
    indexes, measurements = _graphs(work, plain, max(1, rounds - 1))
    measurements = [*_questions(work, plain, indexes, rounds), *measurements]
    for name in (TINY,) if quick else (TINY, SMALL):
        measurements += _drawn_searches(name, 4 if quick else 2 * QUESTIONS_IN_FLIGHT, alone, rounds)
    return measurements


def _graphs(work: PecanWork, plain: PlainModel, rounds: int) -> tuple[dict[str, Index], list[Measurement]]:
    options = next(iter(work.cells.values())).method.index_options()

    def one_at_a_time() -> list[StraightGraph]:
        return [build(plain, one, options, attention=False) for one in work.documents]

    indexes: dict[str, Index] = {}

    def together() -> None:
        indexes.update(work.build(DOCUMENTS_IN_FLIGHT))

    def encode() -> None:
        graphs = (Graph.from_index(indexes[one.id], one) for one in work.documents)
        texts = [[node.text for node in graph.nodes] for graph in graphs]
        asyncio.run(in_flight(work.models.embedder().embed, texts, 1))

    units = len(work.documents)
    timed = by_turns(
        {
            "together": Candidate(together, units),
            "alone": Candidate(partial(work.build, 1), units),
            "plain": Candidate(one_at_a_time, units),
            "encoder": Candidate(encode, units),
        },
        rounds,
        warm_up=False,
    )
    alone: dict[str, Index] = timed["alone"].result
    what = f"graphs of {units} documents"
    measurements = compared(what, timed, DOCUMENTS_IN_FLIGHT, "documents/s", ">= 3")
    encoded = timed["encoder"].wall_s
    share = 100 * encoded / timed["together"].wall_s
    gain = (timed["alone"].wall_s - encoded) / (timed["together"].wall_s - encoded)
    measurements += [
        Measurement(f"{what}, {DOCUMENTS_IN_FLIGHT} in flight: the sentence encoder's part", share, "%"),
        Measurement(
            f"{what}, what the language model does: {DOCUMENTS_IN_FLIGHT} in flight over 1", gain, "x"
        ),
    ]
    same, stock = 0, 0
    for one, graph in zip(work.documents, timed["plain"].result, strict=True):
        nodes = Graph.from_index(indexes[one.id], one).nodes
        same += nodes == Graph.from_index(alone[one.id], one).nodes
        stock += nodes == graph.nodes
    return indexes, [
        *measurements,
        Measurement("graphs with the same text alone", 100 * same / units, "%", "= 100"),
        Measurement("graphs with the same text by generate()", 100 * stock / units, "%"),
    ]


def _questions(
    work: PecanWork, plain: PlainModel, indexes: Mapping[str, Index], rounds: int
) -> list[Measurement]:
    graphs = [Graph.from_index(indexes[one.documents.id], one.documents) for one in work.examples]
    most = [work.cell(one).card.max_new_tokens for one in work.examples]
    paths = [
        [[graph.ids.index(visit["id"]) for visit in step["nodes"]] for step in one.prediction.trace["steps"]]
        for graph, one in zip(graphs, work.ask(indexes, QUESTIONS_IN_FLIGHT), strict=True)
    ]
    cases = list(zip(graphs, [one.question for one in work.examples], paths, strict=True))

    def one_at_a_time() -> list[Generation]:
        return [search_on_a_cache(plain, *one, n) for one, n in zip(cases, most, strict=True)]

    units = len(work.examples)
    timed = by_turns(
        {
            "together": Candidate(partial(work.ask, indexes, QUESTIONS_IN_FLIGHT), units),
            "alone": Candidate(partial(work.ask, indexes, 1), units),
            "plain": Candidate(one_at_a_time, units),
        },
        rounds,
    )
    before = work.lm.engine.runner.tokens
    together = [one.prediction for one in work.ask(indexes, QUESTIONS_IN_FLIGHT)]
    forwarded = work.lm.engine.runner.tokens - before
    lengths = [one.completion_tokens for one in together]
    needed = sum(_needed(plain, *one, a, n) for one, a, n in zip(cases, lengths, most, strict=True))
    alone = [one.prediction.text for one in timed["alone"].result]
    stock = [one.text.strip() for one in timed["plain"].result]
    steps = sum(map(len, paths)) / units
    what = f"{units} PECAN questions of {forwarded / units:,.0f} tokens in {steps:.1f} steps"
    return [
        *compared(what, timed, QUESTIONS_IN_FLIGHT, "questions/s", ">= 1.8", ">= 1.3"),
        Measurement(
            "tokens forwarded over tokens of prompt, nodes, probes and answer",
            forwarded / needed,
            "x",
            "<= 1",
        ),
        *(
            Measurement(f"answers that are the same {how}", _share(together, others), "%", target)
            for how, others, target in (("alone", alone, "= 100"), ("on plain transformers", stock, ""))
        ),
    ]


def _share(predictions: Sequence[Prediction], others: Sequence[str]) -> float:
    """How many of the answers are these texts, in percent."""
    return 100 * sum(a.text == b for a, b in zip(predictions, others, strict=True)) / len(others)


def _needed(
    plain: PlainModel, graph: Graph, question: str, steps: Sequence[Sequence[int]], answer: int, most: int
) -> int:
    """Tokens that a search cannot do without: each text once, and a probe's closing at each step.

    answer: tokens of the answer; the last one is forwarded only where more would have been allowed.
    """
    nodes = [plain.node(graph.nodes[node]).ids for step in steps for node in step]
    prompt = len(plain.head(question).ids) + sum(map(len, nodes)) + len(plain.second_turn)
    return prompt + len(steps) * len(plain.closing) + min(answer, most - 1)


def _drawn_searches(name: str, count: int, alone: int, rounds: int) -> list[Measurement]:
    """alone: how many of them are run one at a time; times are per search."""
    stock = model(name)
    engine = build_engine(name, stock, max_context=2048)
    work = searches(count)
    timed = by_turns(
        {
            "together": Candidate(partial(run_searches, engine, work, QUESTIONS_IN_FLIGHT), count),
            "alone": Candidate(partial(run_searches, engine, work[:alone], 1), alone),
            "plain": Candidate(partial(plain_searches, stock, work[:alone]), alone),
        },
        rounds,
    )
    answers = [one.answer for one in timed["together"].result[:alone]]
    same = [
        100 * sum(map(tuple.__eq__, answers, others)) / alone
        for others in ([one.answer for one in timed["alone"].result], timed["plain"].result)
    ]
    return [
        *compared(f"drawn searches, {name}", timed, QUESTIONS_IN_FLIGHT, "searches/s", ">= 2.2"),
        Measurement(
            f"drawn searches, {name}: the same answer alone and on plain transformers", min(same), "%"
        ),
    ]


def plain_searches(stock: Any, work: Sequence[Search]) -> list[tuple[int, ...]]:
    """Drawn searches on transformers' cache, one at a time; their answers."""
    import torch
    from transformers import DynamicCache

    def search(one: Search) -> tuple[int, ...]:
        cache = DynamicCache(config=stock.config)

        def forward(ids: Sequence[int]) -> torch.Tensor:
            out = stock(torch.tensor([list(ids)]), past_key_values=cache, logits_to_keep=1)
            logits: torch.Tensor = out.logits[0, -1]
            return logits

        for node in (one.opening, *one.nodes):
            forward([*node, *one.probe])[list(CHOICES)].tolist()
            cache.crop(-len(one.probe))
        answer = [int(forward(one.instruction).argmax())]
        while len(answer) < one.answer:
            answer.append(int(forward(answer[-1:]).argmax()))
        return tuple(answer)

    with torch.inference_mode():
        return [search(one) for one in work]


def compared(
    what: str, timed: Mapping[str, Timed], most: int, unit: str, target: str = "", plain_target: str = ""
) -> list[Measurement]:
    """``most`` in flight, one in flight and plain transformers against each other."""
    together, alone, plain = timed["together"], timed["alone"], timed["plain"]
    return [
        ratio(f"{what}: {most} in flight over 1", alone, together, target),
        ratio(f"{what}: {most} in flight over plain transformers", plain, together, plain_target),
        ratio(f"{what}: 1 in flight over plain transformers", plain, alone),
        rate(f"{what}: {most} in flight", together, unit),
    ]
