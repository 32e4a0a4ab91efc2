"""``python -m performance.gor_retrieval``: what GoR's training does to retrieval, without a reader.

Half of a data set's documents are learned from. New queries are then simulated about both halves, with
another seed, and those that the records hold already are left out. A query finds its node if that is among
the k nearest: the chunk that it was asked about, which is what BERTScore ranks first. Compared are the
texts' own embeddings (``train=off``), those of the network before its training and those after it, on
documents that were learned from and on others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bench.flops.meter import Meter, metered
from bench.method.contract import TrainingItem
from bench.method.options import parse_assignments
from bench.models.conversation import ModelSet
from bench.models.model_set import LoadedModels
from bench.results.index_store import IndexStore, StoredIndex, index_key
from bench.run.cell import Cell, CellRequest, plan_cell
from bench.schema import DocumentSet, Index
from methods.gor import Gor
from methods.gor.records import Records, most_similar
from methods.gor.simulation import Asked, simulate_queries
from performance.command import run_command

HELD_OUT_SEED = 1_000_003


@dataclass
class Hits:
    """Queries, and how many of them found their node by each embedding."""

    queries: int = 0
    text: int = 0
    untrained: int = 0
    trained: int = 0

    def line(self, name: str) -> str:
        """A row of the table."""
        counts = (self.text, self.untrained, self.trained)
        shares = (f"{100 * hits / max(1, self.queries):.1f}" for hits in counts)
        return f"| {name} | {self.queries} | {' | '.join(shares)} |"


@click.command()
@click.option("--dataset", required=True)
@click.option("--data", default="sample", show_default=True)
@click.option("--model", default="tiny", show_default=True)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="an option of gor")
@click.option("--queries", type=click.IntRange(min=1), default=15, show_default=True, help="new ones, each")
@click.option("--limit", type=click.IntRange(min=1), help="only the documents of the first N questions")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
def command(
    dataset: str,
    data: str,
    model: str,
    assignments: tuple[str, ...],
    queries: int,
    limit: int | None,
    results: Path,
) -> None:
    """Hits of held-out simulated queries before and after training."""
    request = CellRequest("gor", dataset, model, data, parse_assignments(assignments), limit)
    cell = plan_cell(request)
    store = IndexStore(results / "indexes")
    groups = asyncio.run(_compare(cell, store, LoadedModels(cell.roles), queries))
    k = cell.identity.config["k"]
    click.echo(f"| {dataset}, hits@{k} in % | held-out queries | text | untrained | trained |")
    click.echo("|---|---|---|---|---|")
    for name, hits in groups.items():
        click.echo(hits.line(name))


async def _compare(cell: Cell, store: IndexStore, models: ModelSet, queries: int) -> dict[str, Hits]:
    assert cell.training is not None and isinstance(cell.method, Gor)
    sets = cell.training.sets
    indexes = await asyncio.gather(*(_index(cell, store, models, documents) for documents in sets))
    items = [TrainingItem(documents, index) for documents, index in zip(sets, indexes, strict=True)]
    key = index_key({**cell.training_key_parts(), "half of": [documents.id for documents in sets]})
    learned = store.load("gor_retrieval", key)
    if learned is None:
        with metered(Meter()) as meter:
            weights = await cell.method.train(items[::2], cell.training.training, models)
        store.save("gor_retrieval", key, weights, meter)
        learned = StoredIndex(weights, meter)
    untrained = random_network(learned.index, cell.request.seed)
    groups = {"documents learned from": Hits(), "other documents": Hits()}
    for at, item in enumerate(items):
        hits = list(groups.values())[at % 2]
        await _count(cell.method, item, untrained, learned.index, models, queries, hits)
    return groups


def random_network(learned: Index, seed: int) -> Index:
    """What was learned, with the weights that a training of that seed begins with."""
    from methods.gor.model import Shape
    from methods.gor.training import initial_network

    return Index(learned.data, initial_network(Shape(**learned.data["shape"]), seed).arrays())


async def _index(cell: Cell, store: IndexStore, models: ModelSet, documents: DocumentSet) -> Index:
    key = index_key({**cell.index_key_parts(), "documents": documents.id})
    stored = store.load(cell.index_name, key)
    if stored is None:
        with metered(Meter()) as meter:
            index = await cell.method.index(documents, models)
        store.save(cell.index_name, key, index, meter)
        stored = StoredIndex(index, meter)
    return stored.index


async def _count(
    method: Gor,
    item: TrainingItem,
    untrained: Index,
    trained: Index,
    models: ModelSet,
    queries: int,
    hits: Hits,
) -> None:
    """Add the hits of new queries about one document set."""
    records = Records.from_index(item.index, item.documents)
    asked = await _held_out(method, records, item.documents, models, queries)
    if not asked:
        return
    vectors = await models.embedder().embed([query.text for query in asked])
    before, after = (method.finish(item.index, w).arrays["learned"] for w in (untrained, trained))
    for query, vector in zip(asked, vectors, strict=True):
        hits.queries += 1
        hits.text += query.source in most_similar(records.embeddings, vector, method.config.k)
        hits.untrained += query.source in most_similar(before, vector, method.config.k)
        hits.trained += query.source in most_similar(after, vector, method.config.k)


async def _held_out(
    method: Gor, records: Records, documents: DocumentSet, models: ModelSet, queries: int
) -> Sequence[Asked]:
    """New queries about the chunks, none of them known to the records."""
    known = {query.text for query in records.queries}
    asked = await simulate_queries(
        [node.text for node in records.nodes[: records.chunks]],
        models.lm("builder"),
        wanted=queries,
        temperature=method.plan.temperature,
        max_new_tokens=method.plan.question_tokens,
        seed=(method.seed + HELD_OUT_SEED, int(documents.id, 16)),
        events=Counter(),
    )
    return [query for query in asked if query.text not in known]


if __name__ == "__main__":
    run_command(command, "performance.gor_retrieval")
