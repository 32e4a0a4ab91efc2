"""PECAN as one would write it first: one question at a time, everything anew at each step.

The baseline follows the paper with plain transformers and nothing else: eager attention with
`output_attentions=True`; at each step of a search one forward over the whole conversation so far, for the
confidence and for the attention of every node to the question; an information point's edges from one more
forward over prompt and summary. It shares the prompts, the tokenizer, the parser of bullets and the sentence
encoder with ours, and no other code. Both build the graphs of the same documents and ask the same questions
of the same graphs, one at a time; ours also with 32 questions in flight. What both found is compared: a
path is the nodes read, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.flops.meter import Meter, metered
from bench.method.chunking import chunk_documents
from bench.method.prompts import ANSWER_INSTRUCTION
from bench.models.api import Generation
from bench.models.embedder import Embedder
from bench.schema import DocumentSet, Index, Question
from methods.pecan.bullets import Bullet, parse_bullets
from methods.pecan.graph import Graph, Node, fold
from performance.measuring import Candidate, by_turns
from performance.plain import PlainModel, plain_model
from performance.report import Measurement, ratio
from performance.workloads import Asked, PecanWork, pecan_work

IN_FLIGHT = 32
T_P, DEFAULT_T_C = 1, 0.5
"""PECAN, Sec. 4.3; the second where the paper gives a data set no threshold of its own."""


def measure(quick: bool) -> list[Measurement]:
    """Searches and graphs, ours over the straight ones."""
    if quick:
        work, rounds = pecan_work((("hotpotqa", 1),)), 1
    else:
        work, rounds = pecan_work((("hotpotqa", 4), ("musique", 4), ("qasper", 2))), 2
    plain = plain_model(work.lm, "eager")
    built, measurements = _graphs(work, plain, rounds)
    return [*measurements, *_searches(work, plain, built, rounds)]


def _graphs(work: PecanWork, plain: PlainModel, rounds: int) -> tuple[dict[str, Index], list[Measurement]]:
    spent: dict[str, Meter] = {}

    def ours() -> dict[str, Index]:
        with metered(Meter()) as spent["ours"]:
            return work.build(1)

    def straight() -> list[StraightGraph]:
        with metered(Meter()) as spent["straight"]:
            graphs = [build(plain, one, options) for one in work.documents]
            for graph in graphs:
                asyncio.run(embedder.embed([node.text for node in graph.nodes]))
            return graphs

    options = next(iter(work.cells.values())).method.index_options()
    embedder = work.models.embedder()
    units = len(work.documents)
    timed = by_turns(
        {"ours": Candidate(ours, units), "straight": Candidate(straight, units)}, rounds, warm_up=False
    )
    indexes: dict[str, Index] = timed["ours"].result
    same = edges = 0
    worst = 0.0
    for one, graph in zip(work.documents, timed["straight"].result, strict=True):
        mine = Graph.from_index(indexes[one.id], one)
        if mine.nodes != graph.nodes:
            continue
        same += 1
        for node, row in graph.edges.items():
            lower, weight = mine.sources(node)
            worst = max(worst, float(np.abs([row[int(j)] for j in lower] - weight).max()))
            edges += len(lower)
    what = f"graphs of {units} documents, one at a time"
    return indexes, [
        ratio(f"{what}: straight over ours, time", timed["straight"], timed["ours"]),
        Measurement(f"{what}: straight over ours, FLOPs", spent["straight"].flops / spent["ours"].flops, "x"),
        Measurement("graphs with the same nodes", 100 * same / units, "%", details={"documents": units}),
        Measurement("largest difference of an edge's weight", worst, "", details={"edges": edges}),
    ]


def _searches(
    work: PecanWork, plain: PlainModel, indexes: Mapping[str, Index], rounds: int
) -> list[Measurement]:
    graphs = {one.id: Graph.from_index(indexes[one.id], one) for one in work.documents}

    def straight() -> list[Straight]:
        return [
            search(
                plain,
                graphs[example.documents.id],
                work.cell(example).question(example),
                work.models.embedder(),
                int(work.cell(example).method.index_options()["window"]),
            )
            for example in work.examples
        ]

    units = len(work.examples)
    timed = by_turns(
        {
            "ours": Candidate(lambda: work.ask(indexes, 1), units),
            "straight": Candidate(straight, units),
            "in flight": Candidate(lambda: work.ask(indexes, IN_FLIGHT), units),
        },
        rounds,
        warm_up=False,
    )
    mine: list[Asked] = timed["ours"].result
    theirs: list[Straight] = timed["straight"].result
    paths = sum(
        _path(a, graphs[e.documents.id]) == b.path
        for a, b, e in zip(mine, theirs, work.examples, strict=True)
    )
    answers = sum(a.prediction.text == b.answer.text.strip() for a, b in zip(mine, theirs, strict=True))
    flops = [sum(one.meter.flops for one in each) for each in (theirs, mine)]
    steps = sum(len(a.prediction.trace["steps"]) for a in mine) / units
    what = f"{units} questions, {steps:.1f} steps each"
    return [
        ratio(f"{what}, one at a time: straight over ours, time", timed["straight"], timed["ours"]),
        ratio(
            f"{what}: straight over ours with {IN_FLIGHT} in flight, time",
            timed["straight"],
            timed["in flight"],
        ),
        Measurement(f"{what}: straight over ours, FLOPs", flops[0] / flops[1], "x"),
        Measurement("same path", 100 * paths / units, "%", "= 100"),
        Measurement("same answer", 100 * answers / units, "%", "= 100"),
    ]


def _path(asked: Asked, graph: Graph) -> tuple[int, ...]:
    """Positions in the graph of the nodes that a search read, in order."""
    position = {name: at for at, name in enumerate(graph.ids)}
    steps = asked.prediction.trace["steps"]
    return tuple(position[visit["id"]] for step in steps for visit in step["nodes"])


@dataclass(frozen=True)
class StraightGraph:
    """A graph's nodes, and e_ij by upper node as a row over all nodes."""

    nodes: tuple[Node, ...]
    edges: Mapping[int, NDArray[np.float64]]


def build(
    plain: PlainModel, documents: DocumentSet, options: Mapping[str, int], *, attention: bool = True
) -> StraightGraph:
    """The graph of the documents, batch after batch (PECAN, Sec. 3.1).

    options: ``window``, ``chunk_tokens``, ``summary_tokens``, ``max_levels``; attention False: nodes only.
    """
    chunks = chunk_documents(documents, plain.lm.tokenize, options["chunk_tokens"])
    nodes = [Node(1, fold(c.text), c.document, c.start, c.end) for c in chunks if fold(c.text)]
    level, edges = list(range(len(nodes))), dict[int, NDArray[np.float64]]()
    room = options["window"] - options["summary_tokens"] - len(plain.summary_prompt([]).ids)
    for number in range(2, options["max_levels"] + 1):
        batches, left = list[list[int]](), 0
        for node in level:
            cost = len(plain.node(nodes[node]).ids)
            if not batches or cost > left:
                batches.append([])
                left = room
            batches[-1].append(node)
            left -= cost
        above: dict[str, int] = {}
        rows: dict[int, list[tuple[list[int], NDArray[np.float64]]]] = {}
        for batch in batches:
            prompt = plain.summary_prompt([nodes[node] for node in batch])
            summary = plain.generate(prompt.ids, options["summary_tokens"])
            bullets = parse_bullets(summary).bullets
            weights = _edge_rows(plain, prompt.ids, prompt.spans, summary, bullets) if attention else None
            for at, bullet in enumerate(bullets):
                there = above.get(bullet.text)
                if there is None:
                    cut = summary.finish != "stop" and at == len(bullets) - 1
                    there = above[bullet.text] = len(nodes)
                    nodes.append(Node(number, bullet.text, cut=cut))
                if weights is not None:
                    rows.setdefault(there, []).append((batch, weights[at]))
        for node, its in rows.items():
            row = np.zeros(len(nodes))
            for batch, weight in its:
                row[batch] += weight
            edges[node] = row / row.sum()
        below, level = level, list(above.values())
        if len(batches) == 1 or not level:
            break
        tokens = [sum(len(plain.node(nodes[node]).ids) for node in each) for each in (below, level)]
        if len(level) >= len(below) and tokens[1] >= tokens[0]:
            break
    return StraightGraph(tuple(nodes), edges)


def _edge_rows(
    plain: PlainModel,
    prompt: Sequence[int],
    spans: Sequence[tuple[int, int]],
    summary: Generation,
    bullets: Sequence[Bullet],
) -> NDArray[np.float64]:
    """e_ij of each bullet over the nodes of its batch, shape (bullets, nodes)."""
    forwarded = summary.token_ids if summary.finish == "stop" else summary.token_ids[:-1]
    _, attention = plain.look([*prompt, *forwarded])
    to_nodes = np.stack([attention[:, a:b].mean(1, dtype=np.float64) for a, b in spans], axis=1)
    rows = []
    for bullet in bullets:
        at = [len(prompt) + token for token in bullet.tokens]
        # The last token was never forwarded: it pays no attention.
        row = to_nodes[[token for token in at if token < len(attention)]].sum(0) / max(1, len(at))
        rows.append(row / row.sum() if row.sum() > 0 else np.full(len(spans), 1 / len(spans)))
    return np.array(rows)


@dataclass(frozen=True)
class Straight:
    """A straight search: the nodes read, in order, the answer, and what it cost."""

    path: tuple[int, ...]
    answer: Generation
    meter: Meter


def search(plain: PlainModel, graph: Graph, question: Question, embedder: Embedder, window: int) -> Straight:
    """One question asked of a graph (PECAN, Sec. 3.2), the whole conversation forwarded at each step."""
    with metered(Meter()) as meter:
        vector = asyncio.run(embedder.embed([question.text]))[0]
        similarity = graph.embeddings.astype(np.float64) @ (vector / np.linalg.norm(vector))
        edge = np.zeros((len(graph.nodes), len(graph.nodes)))
        edge[graph.upper, graph.lower] = graph.weight
        head = plain.head(question.text)
        asked = slice(*head.focus)
        ids, spans = list(head.ids), dict[int, tuple[int, int]]()
        t_c = question.paper_values.get("pecan", {}).get("t_c") or DEFAULT_T_C
        room = window - _reserve(plain, question)

        def read(node: int) -> None:
            piece = plain.node(graph.nodes[node])
            spans[node] = (len(ids) + piece.focus[0], len(ids) + piece.focus[1])
            ids.extend(piece.ids)

        for node in graph.top:
            read(node)
        said_yes = 0
        while True:
            logits, attention = plain.look([*ids, *plain.closing])
            yes, no = plain.choices(logits)
            said_yes += 1 / (1 + np.exp(no - yes)) > t_c
            left = [node for node in range(len(graph.nodes)) if node not in spans]
            if said_yes >= T_P or not left:
                break
            r = np.zeros(len(graph.nodes))
            for position, (node, (a, b)) in enumerate(spans.items(), start=2):
                r[node] = attention[a:b, asked].mean(dtype=np.float64) * position
            score = _shares((edge.T @ r)[left]) + _shares(similarity[left])
            best = left[int(np.argmax(score))]
            if len(ids) + len(plain.node(graph.nodes[best]).ids) > room:
                break
            read(best)
        answer = plain.generate([*ids, *plain.second_turn], question.max_new_tokens)
    return Straight(tuple(spans), answer, meter)


def _reserve(plain: PlainModel, question: Question) -> int:
    """Tokens kept free for the second turn and the answer; the template is counted as ours counts it."""
    lm = plain.lm
    instruction = lm.count_tokens("Yes") + lm.count_tokens(ANSWER_INSTRUCTION)
    return len(plain.closing) + 2 * lm.chat_overhead + instruction + question.max_new_tokens


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values over their sum, negative ones as 0."""
    positive = np.maximum(values, 0)
    return np.asarray(positive / (positive.sum() or 1.0), dtype=np.float64)
