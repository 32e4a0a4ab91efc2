"""How true PECAN's graphs of the sample sets are: ``python -m training.graphs [RESULTS]``.

Reads the records of ``make table1`` and compares the bullets at the top of each graph, with which a search
begins, with the facts that the generator told in the documents: how many of these the bullets keep, and how
many bullets state what no fact says. Each graph counts once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bench.results.finished import find_finished
from bench.results.records import RECORDS_FILE, Record, read_records
from training.evaluate import bullet_figures
from training.generator.sets import SHAPES, facts_told


def main(arguments: list[str] | None = None) -> None:
    """Command line of the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="default: results")
    results = parser.parse_args(arguments).results
    lines = list(figures(results))
    if not lines:
        raise SystemExit(f"No finished cell of pecan on the sample sets below {results}; first: make table1")
    print(f"{'shape':12} {'graphs':>6} {'facts kept':>10} {'bullets a graph':>15} {'wrong':>6}")
    for dataset, graphs, kept, bullets, wrong in lines:
        print(f"{dataset:12} {graphs:6} {kept:10.2f} {bullets:15.1f} {wrong:6.2f}")


def figures(results: Path) -> Iterator[tuple[str, int, float, float, float]]:
    """Data set, graphs, share of facts kept, bullets of a graph, share of wrong bullets."""
    tops = top_bullets(results)
    for dataset in SHAPES:
        graphs = [(id, text) for (of, _), (id, text) in tops.items() if of == dataset]
        if not graphs:
            continue
        facts = facts_told(dataset)
        counts = [(*bullet_figures(text, facts[id]), len(set(facts[id]))) for id, text in graphs]
        kept, written, wrong, told = map(sum, zip(*counts, strict=True))
        yield dataset, len(graphs), kept / told, written / len(graphs), wrong / max(1, written)


def top_bullets(results: Path) -> dict[tuple[str, tuple[str, ...]], tuple[str, str]]:
    """(data set, its documents) -> a question about them and the bullets that its search began with."""
    found: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}
    for cell in find_finished(results)[0]:
        described = cell.description
        if (described.method, described.data_source, described.model) != ("pecan", "sample", "tiny"):
            continue
        for record in read_records(cell.folder / RECORDS_FILE):
            if not _searched_a_graph(record):
                continue
            bullets = [item.text for item in record.context if item.text and item.score is None]
            key = described.dataset, tuple(record.document_ids)
            found.setdefault(key, (record.example_id, "\n".join(bullets)))
    return found


def _searched_a_graph(record: Record) -> bool:
    """Whether it is a search of a graph as PECAN builds it that began with the whole top level."""
    match record.trace:
        case {"variant": "pecan", "graph": {"kind": "ip"}, "top_level": {"left_out": 0}}:
            return record.error is None
    return False


if __name__ == "__main__":
    main()
