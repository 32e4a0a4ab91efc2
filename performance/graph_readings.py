"""What PECAN's graph loses: one cell's graphs and questions, read in several ways in one prompt each.

``python -m performance.graph_readings RESULTS/cells/pecan--... --results RESULTS`` reads, for every question
that the cell has answered, in the cell's prompt:

- *search order*: every node of the graph, those that the search read first and in its order;
- *list*: the same as the list of points that a search reads, in place of paragraphs;
- *source order*: every node, summaries before what they summarise, in the order of the documents;
- *chunks* alone, which are the text, and *summaries* alone;
- *chosen chunks*: the text below the nodes that the search chose, in document order (``answer_from=chunks``).

It prints F1 and TFLOPs of each and the paired difference from the chunks, documents resampled. The FLOPs are
those of the reading alone. A second table splits what lies between the text and the answers of searches: what
the summaries change, the order, the list, the search's turns (the cell of FOLDER, whose search should read
everything), and the stop (each further cell, such as the same search by another rule). Its steps add up.
First it says how much of the summaries is the text again; ``--limit 0`` says that alone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from bench.errors import DataError
from bench.flops.meter import Meter, metered
from bench.method import read
from bench.method.trace import SearchTrace
from bench.metrics import get_metrics
from bench.metrics.scoring import question_scores
from bench.metrics.statistics import clustered_bootstrap
from bench.models.model_set import LoadedModels
from bench.results.index_store import IndexStore
from bench.results.models import read_description
from bench.results.records import Record, load_records
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.run.question_runner import stored_index
from bench.run.threads import Threads
from bench.schema import ContextItem, DocumentSet, Example
from bench.tables.formats import percent
from methods.pecan.graph import Graph
from methods.pecan.prompts import PECAN_NODE
from performance.command import run_command

AT_ONCE = 4
RUN = 8
"""Words in a row that count as copied."""
BASE = "chunks"
"""The reading that the others are compared with."""
STEPS = {
    BASE: "the text",
    "source order": "with summaries",
    "search order": "in the search's order",
    "list": "as a list of points",
}
"""The readings on the way to a search, and what each changes about the one before it."""


@dataclass(frozen=True)
class Reading:
    """The answer to a question from one context; cell: the folder whose graphs and searches it is of."""

    question: str
    documents: str
    way: str
    prediction: str
    f1: float
    tflops: float
    prompt_tokens: int
    cell: str = ""


def by_source(graph: Graph) -> list[int]:
    """All nodes, highest level first, each level as it was written, which is the order of the documents."""
    return list(dict.fromkeys(node for level in reversed(graph.levels) for node in level))


def visited(graph: Graph, record: Record) -> list[int]:
    """The nodes that the search read, in its order."""
    search = SearchTrace.read(record.trace)
    place = {name: at for at, name in enumerate(graph.ids)}
    return [] if search is None else [place[node.id] for node in search.read_nodes]


def in_search_order(graph: Graph, record: Record) -> list[int]:
    """All nodes: those that were read, then the others."""
    first = visited(graph, record)
    return [*first, *(node for node in by_source(graph) if node not in set(first))]


def chosen_chunks(graph: Graph, record: Record) -> list[int]:
    """As answer_from=chunks picks them: below what was chosen by score, or below the top level."""
    search = SearchTrace.read(record.trace)
    read_at_first = len(search.steps[0].nodes) if search is not None else 0
    order = visited(graph, record)
    return sorted({graph.main_chunk(node) for node in order[read_at_first:] or order})


WAYS: Mapping[str, Callable[[Graph, Record], list[int]]] = {
    BASE: lambda graph, record: [at for at, node in enumerate(graph.nodes) if node.start is not None],
    "summaries": lambda graph, record: [at for at in by_source(graph) if graph.nodes[at].start is None],
    "source order": lambda graph, record: by_source(graph),
    "search order": in_search_order,
    "list": in_search_order,
    "chosen chunks": chosen_chunks,
}


def copied(graph: Graph) -> tuple[float, float]:
    """The summaries' words over the text's, and the share of them that it has in runs of ``RUN``."""
    text, summaries = (
        [re.findall(r"\w+", node.text.lower()) for node in graph.nodes if (node.start is None) is summary]
        for summary in (False, True)
    )
    runs = {tuple(words[at : at + RUN]) for words in text for at in range(len(words) - RUN + 1)}
    found = total = 0
    for words in summaries:
        starts = [at for at in range(len(words) - RUN + 1) if tuple(words[at : at + RUN]) in runs]
        found += len({at + offset for at in starts for offset in range(RUN)})
        total += len(words)
    return total / max(1, sum(map(len, text))), found / max(1, total)


async def readings(
    cell: Cell, record: Record, example: Example, graph: Graph, models: LoadedModels, ways: Collection[str]
) -> list[Reading]:
    """One answer a way."""
    style = cell.method.config.prompt
    found = []
    for way in ways:
        nodes = WAYS[way](graph, record)
        items = [graph.passage(node, example.documents) for node in nodes]
        if way == "list":
            points = "".join(PECAN_NODE.format(text=graph.nodes[node].text) for node in nodes)
            items = [ContextItem(points, node="list")]
        with metered(Meter()) as meter:
            answer = await read(items, cell.question(example), models.lm(), style)
        f1 = question_scores(answer.text, example.answers, get_metrics(["f1"])).get("f1", 0.0)
        documents = " ".join(record.document_ids)
        found.append(
            Reading(example.id, documents, way, answer.text, f1, meter.flops / 1e12, answer.prompt_tokens)
        )
    return found


def mean(values: Sequence[float], clusters: Sequence[str]) -> str:
    """With an interval that resamples documents."""
    return percent(clustered_bootstrap(values, clusters, rng=np.random.default_rng(0)), "")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.argument("others", type=click.Path(path_type=Path, exists=True), nargs=-1)
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--limit", type=int, help="only the first questions that have a record")
@click.option("--out", type=click.Path(path_type=Path), help="keep every answer; goes on with what is there")
def main(folder: Path, others: Sequence[Path], results: Path, limit: int | None, out: Path | None) -> None:
    """Read the graphs of the cell in FOLDER in several ways; the split ends with the answers of OTHERS."""
    about = read_description(folder)
    cell = plan_cell(
        CellRequest(
            about.method,
            about.dataset,
            about.model,
            about.data_path or about.data_source,
            about.config,
            about.limit,
            about.seed,
            about.dtype or None,
        )
    )
    Threads.begin(None).settle(cell.roles.values(), alone=True)
    store, models = IndexStore(results / "indexes"), LoadedModels(cell.roles)
    examples = {example.id: example for example in cell.data.examples}
    kept = [Reading(**one) for one in json.loads(out.read_text("utf-8"))] if out and out.exists() else []
    done = {(reading.question, reading.way) for reading in kept if reading.cell == folder.name}
    records = [record for record in load_records(folder) if record.error is None]
    show_copied(cell, store, [examples[record.example_id].documents for record in records])
    if not (records := records[:limit]):
        return

    async def run() -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(record: Record) -> None:
            example = examples[record.example_id]
            stored = stored_index(cell, store, example.documents)
            ways = [way for way in WAYS if (record.example_id, way) not in done]
            if stored is None or not ways:
                return
            if stored.meter.flops != record.flops.index:
                click.echo(f"{record.example_id}: left out, its graph was built again since its search")
                return
            async with slots:
                graph = Graph.from_index(stored.index, example.documents)
                new = await readings(cell, record, example, graph, models, ways)
                kept.extend(replace(reading, cell=folder.name) for reading in new)
            if out:
                out.write_text(json.dumps([reading.__dict__ for reading in kept], indent=1), "utf-8")

        await asyncio.gather(*map(one, records))

    asyncio.run(run())
    asked = {record.example_id for record in records}
    of_cell = [reading for reading in kept if reading.cell == folder.name and reading.question in asked]
    by_way = {way: {r.question: r for r in of_cell if r.way == way} for way in WAYS}
    if not by_way[BASE]:
        raise DataError(f"{results}: it has no graph that {folder} searched; expected that cell's --results.")
    clusters = [reading.documents for reading in by_way[BASE].values()]
    click.echo(f"{len(clusters)} questions of {about.data}, read by {cell.reader.label}\n")
    click.echo(f"{'':<16}{'F1':>22}{'TFLOPs':>10}{'prompt tokens':>16}{f'against {BASE}':>24}")
    for way, own in by_way.items():
        score = mean([100 * own[q].f1 for q in by_way[BASE]], clusters)
        against = mean([100 * (own[q].f1 - one.f1) for q, one in by_way[BASE].items()], clusters)
        cost = np.mean([reading.tflops for reading in own.values()])
        tokens = np.mean([reading.prompt_tokens for reading in own.values()])
        difference = "" if way == BASE else against
        click.echo(f"{way:<16}{score:>22}{cost:>10.3g}{tokens:>16.0f}{difference:>24}")
    show_split(by_way, [folder, *others])


def show_copied(cell: Cell, store: IndexStore, sets: Sequence[DocumentSet]) -> None:
    """How much of the graphs is the text again: mean over document sets, and median."""
    stored = ((one, stored_index(cell, store, one)) for one in {one.id: one for one in sets}.values())
    found = np.array([copied(Graph.from_index(of.index, one)) for one, of in stored if of is not None])
    if len(found):
        (length, share), (_, middle) = found.mean(0), np.median(found, 0)
        click.echo(f"{len(found)} graphs: summaries {length:.2f} times as long as the text, in words")
        click.echo(f"{share:.0%} of these (median {middle:.0%}) stand in the text in runs of {RUN}")


def show_split(by_way: Mapping[str, Mapping[str, Reading]], cells: Sequence[Path]) -> None:
    """From the text to each cell's own answers: what every step changes, on the questions that all have."""
    stages = [(says, {q: one.f1 for q, one in by_way[way].items()}) for way, says in STEPS.items()]
    for cell in cells:
        scores = {r.example_id: r.scores["f1"] for r in load_records(cell) if r.error is None}
        stages.append((f"answered by {cell.name}", scores))
    asked = [q for q in by_way[BASE] if all(q in scores for _, scores in stages)]
    clusters = [by_way[BASE][q].documents for q in asked]
    click.echo(f"\n{len(asked)} questions: F1, and its difference from the line above")
    before: Mapping[str, float] | None = None
    for says, scores in stages:
        score = mean([100 * scores[q] for q in asked], clusters)
        step = mean([100 * (scores[q] - before[q]) for q in asked], clusters) if before else ""
        click.echo(f"{says:<56}{score:>20}{step:>22}")
        before = scores


if __name__ == "__main__":
    run_command(main, "performance.graph_readings")
