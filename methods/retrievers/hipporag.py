"""HippoRAG 2: a graph of phrases and passages from triples that a model extracts, ranked by PageRank.

Gutiérrez et al. 2025 (arXiv 2502.14802). Once per document set: the builder lists the named entities of each
chunk, then triples about them. Subjects and objects are phrase nodes; an edge joins the two of a triple,
another a phrase and each passage with it, another phrases with similar embeddings. Once per question: the
facts (triples) most similar to it are found, the reader keeps those that help (recognition memory), and
personalised PageRank from their phrases and, a little, from all passages ranks the passages. Where no fact is
kept, passages are ranked by similarity.

Steps and constants are those of the authors' code (OSU-NLP-Group/HippoRAG), which gives the same ranking for
the same extractions and vectors, but for ties: where phrases of equal weight compete for the last place in
the restart, it takes them in the order of a Python set. It fails on a fact whose similarity is the lowest of
all; here such a phrase has weight 0. It merges identical passages; here each stands for itself. Its prompts
have examples, its encoder an instruction for the question; here the prompts only say what to do, in our
words, and the question is embedded once  # our choices.

A reader that was not trained to write triples, such as ``tiny``, gives few or none: the flags
``graph_triples_not_parsed`` and ``graph_no_facts`` count these, and the rank is then that of similarity.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import (
    ConfigError,
    Geometry,
    LanguageModel,
    ModelSet,
    RankConfig,
    RankThenRead,
    Role,
    Switch,
    fits,
    question_vector,
    restored as chunks_of,
    unit_rows,
)
from bench.method.ranking import RankedChunks
from bench.schema import Chunk, Index, JsonValue, Question
from methods.retrievers.page_rank import min_max, page_rank

DAMPING, PASSAGE_WEIGHT = 0.5, 0.05
"""Of PageRank, and of passages' similarity in its restart (the authors' config_utils.py)."""
FACTS = 5
"""Most facts that a question is linked to, and most phrases from which PageRank restarts (the same)."""
SYNONYMS = 0.8
"""Least cosine of phrases that are joined (the same)."""
MOST_SYNONYMS, LEAST_LETTERS = 101, 3
"""Synonyms of a phrase at most, and letters and digits of a phrase that looks for any (the authors' code)."""
BLOCK = 1000
"""Phrases that are compared with all others at a time."""
ENTITIES = (
    "Text:\n{text}\n\nList the named entities of the text: people, places, organisations, works, dates and "
    'other names. Write only a JSON list of the form ["...", "..."].'
)
TRIPLES = (
    "Text:\n{text}\n\nNamed entities:\n{entities}\n\nWrite the facts of the text as a JSON list of triples "
    'of three strings each: [["subject", "relation in a few words", "object"], ...]. In each, subject or '
    "object, better both, is one of the named entities. Write a name wherever the text has a pronoun."
)
FILTER = (
    "Question:\n{question}\n\nFacts:\n{facts}\n\nWrite this list of facts again, as JSON, but leave out "
    "every fact that has nothing to do with the question. Write nothing else."
)
"""Without an example: a small reader takes over its names as facts."""
_QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_ITEM = rf"(?:{_QUOTED}" + r'|[^\s\[\]{},"\'](?:[^\[\]{},"]*[^\s\[\]{},"])?)'
_RUN = rf"\[\s*({_ITEM}(?:\s*,\s*{_ITEM})*)"
_BEGUN, _LIST, _ITEMS = re.compile(_RUN), re.compile(rf"{_RUN}\s*(?:,\s*)?\]"), re.compile(_ITEM)
_EMPTY = re.compile(r"\[\s*\]")
_NO_PHRASE = re.compile(r"[^\w ]|_")

Triple = tuple[str, str, str]


class HippoRagConfig(RankConfig):
    """Who extracts how much, and whether the reader keeps only what helps."""

    encoder: str = Field(
        "minilm",
        description="sentence-transformers preset, hub id or folder, of passages, phrases and facts (the "
        "authors' code: NV-Embed-v2)",
    )
    graph_model: str = Field(
        "", description="the model that extracts entities and triples; default: --model (the authors' code)"
    )
    extract_tokens: int | None = Field(
        None,
        ge=8,
        description="most tokens of a chunk's entities, and of its triples; default: the geometry's summary "
        "(the authors' code: 2048)",
    )  # our choice
    filter: Switch = Field(
        "on", description="on: the reader keeps the facts that help; off: all are kept (the paper's ablation)"
    )


class HippoRag(RankThenRead[HippoRagConfig]):
    """Triples, recognition memory and PageRank."""

    name = "hipporag"
    version = "3"
    summary = "rank chunks by PageRank over a graph of triples that a model extracts (HippoRAG 2)"
    paper = "Gutiérrez et al. 2025 (HippoRAG 2, arXiv 2502.14802)"
    family = "graphs and trees"
    Config = HippoRagConfig

    def __init__(self, config: HippoRagConfig, geometry: Geometry, seed: int = 0) -> None:
        """As every ranker; raises ConfigError where chunk, entities and triples are more than a context."""
        super().__init__(config, geometry, seed)
        if self.chunk_tokens + 2 * self.extract_tokens > (limit := geometry.input_limit):
            raise ConfigError(
                f"extract_tokens={self.extract_tokens}: entities, triples and a chunk exceed the {limit:,} "
                "tokens that the model reads; set less."
            )

    @property
    def extract_tokens(self) -> int:
        """Most tokens of one extraction."""
        return self.config.extract_tokens or self.geometry.summary_tokens

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, the builder that extracts, and the sentence encoder."""
        return {
            "reader": Role(),
            "builder": Role(self.config.graph_model),
            "embedder": Role(self.config.encoder),
        }

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the text is cut, and how much is extracted."""
        return {**super().index_options(), "extract_tokens": self.extract_tokens}

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """Facts, phrases with their number of passages, the edges, and unit vectors of facts and passages.

        Nodes are the phrases, then the passages. ``events`` counts what could not be parsed.
        """
        events, encoder = Counter[str](), models.embedder()
        extracted = await asyncio.gather(
            *(_extract(chunk.text, models.lm("builder"), self.extract_tokens, events) for chunk in chunks)
        )
        graph = phrase_graph([[_plain(triple) for triple in triples] for triples in extracted])
        events["no_facts"] = int(bool(chunks) and not graph.facts)
        vectors = unit_rows(await encoder.embed(graph.phrases))
        edges = {**graph.edges, **synonym_edges(graph.phrases, vectors, SYNONYMS)}
        data: dict[str, JsonValue] = {
            "facts": [list(fact) for fact in graph.facts],
            "phrases": graph.phrases,
            "passages_with": graph.passages_with,
            "events": {name: count for name, count in sorted(events.items()) if count},
        }
        arrays: dict[str, NDArray[np.generic]] = {
            "facts": unit_rows(await encoder.embed([str(fact) for fact in graph.facts])),
            "passages": unit_rows(await encoder.embed([chunk.text for chunk in chunks])),
            "edges": np.array(list(edges), np.int64).reshape(-1, 2),
            "weights": np.array(list(edges.values()), np.float64),
        }
        return data, arrays

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedChunks:
        """The chunks from best to worst, with the facts that were found and kept."""
        chunks = chunks_of(index.data["chunks"], question.documents)
        events: Mapping[str, int] = index.data["events"]
        linked = await self._linked(index, question, models) if chunks else _Linked(np.zeros(0))
        about = {"facts": len(index.data["facts"]), "phrases": len(index.data["phrases"]), **events}
        return RankedChunks(
            chunks,
            linked.scores,
            np.argsort(-linked.scores, kind="stable"),
            (*(f"graph_{event}" for event in events), *linked.flags),
            {"graph": about, "found": linked.facts, "kept": linked.kept},
        )

    async def _linked(self, index: Index, question: Question, models: ModelSet) -> _Linked:
        """What the question finds in the graph."""
        query = unit_rows(await question_vector(models.embedder(), question.query)).astype(np.float64)
        similarity = min_max(np.asarray(index.arrays["passages"], np.float64) @ query)
        if not index.data["facts"]:
            return _Linked(similarity, ("no_fact_kept",))
        of_facts = min_max(np.asarray(index.arrays["facts"], np.float64) @ query)
        best = [int(at) for at in np.argsort(-of_facts, kind="stable")[:FACTS]]
        facts: list[Triple] = [tuple(index.data["facts"][at]) for at in best]
        kept, flags = list(range(len(facts))), tuple[str, ...]()
        if self.config.filter == "on":
            kept, flags = await self._recognised(facts, question, models.lm())
        texts, texts_kept = [list(fact) for fact in facts], [list(facts[at]) for at in kept]
        if not kept:
            return _Linked(similarity, ("no_fact_kept", *flags), texts, texts_kept)
        place = {phrase: node for node, phrase in enumerate(index.data["phrases"])}
        restart = np.concatenate([np.zeros(len(place)), PASSAGE_WEIGHT * similarity])
        scored = [(facts[at], float(of_facts[best[at]])) for at in kept]
        for node, weight in phrase_weights(scored, place, index.data["passages_with"], FACTS):
            restart[node] = weight
        first, second = np.asarray(index.arrays["edges"], np.intp).T
        ranks = page_rank(restart, first, second, np.asarray(index.arrays["weights"]), damping=DAMPING)
        return _Linked(ranks[len(place) :], flags, texts, texts_kept)

    async def _recognised(
        self, facts: Sequence[Triple], question: Question, lm: LanguageModel
    ) -> tuple[list[int], tuple[str, ...]]:
        """Which of the facts the reader keeps, in its order, and flags; a triple stands for the closest fact.

        A fact that it names twice counts twice, as in the authors' code. Of facts that do not fit its window,
        the last are not shown.
        """
        tokens = self.geometry.summary_tokens
        for shown in range(len(facts), 0, -1):
            listed = json.dumps(facts[:shown], ensure_ascii=False)
            prompt = FILTER.format(question=question.text, facts=listed)
            if fits(prompt, lm, tokens, lm.geometry.input_limit):
                break
        reply = (await lm.generate(prompt, tokens)).text
        named = [items for items in lists_in(reply) if len(items) == 3]
        flags = () if named or _EMPTY.search(reply) else ("filter_not_parsed",)
        texts = [str(fact) for fact in facts[:shown]]
        closest = [difflib.get_close_matches(str(tuple(items)), texts, 1, cutoff=0)[0] for items in named]
        return [texts.index(text) for text in closest][:FACTS], flags


@dataclass(frozen=True)
class _Linked:
    """The scores of the passages, and how they came about."""

    scores: NDArray[np.float64]
    flags: tuple[str, ...] = ()
    facts: list[list[str]] = field(default_factory=list)
    """The most similar, best first."""
    kept: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class PhraseGraph:
    """The graph before synonyms."""

    facts: list[Triple]
    """Each once."""
    phrases: list[str]
    passages_with: list[int]
    """Passages with each phrase."""
    edges: Mapping[tuple[int, int], float]
    """(node, node) -> weight. A pair of phrases has an edge in each direction, so it weighs double, as in the
    authors' graph; passages come after the phrases."""


async def _extract(text: str, builder: LanguageModel, tokens: int, events: Counter[str]) -> list[list[str]]:
    """The triples of one passage, each once, by two generations; an unreadable list of entities is empty."""
    reply = await builder.generate(ENTITIES.format(text=text), tokens)
    entities = list(dict.fromkeys(entities_in(reply.text)))
    events["cut_entities"] += reply.finish != "stop"
    events["entities_not_parsed"] += not entities and not _EMPTY.search(reply.text)
    while True:  # as JSON they may have more tokens than they were written with
        prompt = TRIPLES.format(text=text, entities=json.dumps(entities, ensure_ascii=False))
        if not entities or fits(prompt, builder, tokens, builder.geometry.input_limit):
            break
        entities.pop()
        events["left_out_entities"] += 1
    reply = await builder.generate(prompt, tokens)
    lists = lists_in(reply.text)
    triples = [items for items in lists if len(items) == 3]
    events["cut_triples"] += reply.finish != "stop"
    events["triples_not_parsed"] += not triples and not _EMPTY.search(reply.text)
    events["not_three_parts"] += len(lists) - len(triples)
    return [list(triple) for triple in dict.fromkeys(map(tuple, triples))]


def entities_in(reply: str) -> list[str]:
    """The items of the first list that has any; of a list that is cut, those before the cut."""
    begun = _BEGUN.search(reply)
    return [_text(item) for item in _ITEMS.findall(begun[1])] if begun else []


def lists_in(reply: str) -> list[list[str]]:
    """The items of every innermost list that is not empty; quotes of both kinds, or none, around an item."""
    return [[_text(item) for item in _ITEMS.findall(match[1])] for match in _LIST.finditer(reply)]


def _text(item: str) -> str:
    """The item without quotes and escapes."""
    if item[0] == '"':
        try:
            return str(json.loads(item, strict=False))
        except json.JSONDecodeError:
            pass
    return item[1:-1] if item[0] in "\"'" else item.strip()


def _plain(triple: Sequence[str]) -> Triple:
    """The triple in lower case; what is neither letter nor digit is a space.

    The authors' code knows the letters a to z alone, with which all phrases of another script are one.
    """
    subject, relation, thing = (_NO_PHRASE.sub(" ", part.lower()).strip() for part in triple)
    return subject, relation, thing


def phrase_graph(triples: Sequence[Sequence[Triple]]) -> PhraseGraph:
    """The graph of the triples of each passage."""
    place: dict[str, int] = {}
    between = Counter[tuple[int, int]]()
    of_passage: list[list[int]] = []
    for in_passage in triples:
        pairs = [
            (place.setdefault(subject, len(place)), place.setdefault(thing, len(place)))
            for subject, _, thing in in_passage
        ]
        between.update(pair for a, b in pairs if a != b for pair in ((a, b), (b, a)))
        of_passage.append(list(dict.fromkeys(node for pair in pairs for node in pair)))
    edges = {pair: float(times) for pair, times in between.items()}
    edges |= {(len(place) + at, node): 1.0 for at, nodes in enumerate(of_passage) for node in nodes}
    passages_with = Counter(node for nodes in of_passage for node in nodes)
    facts = list(dict.fromkeys(fact for in_passage in triples for fact in in_passage))
    return PhraseGraph(facts, list(place), [passages_with[node] for node in place.values()], edges)


def synonym_edges(
    phrases: Sequence[str], vectors: NDArray[np.float32], threshold: float
) -> dict[tuple[int, int], float]:
    """(phrase, synonym) -> cosine, for every phrase and the most similar others; vectors: of length 1.

    Put over the graph's edges, it replaces a triple's in its direction, as the authors' does.
    """
    edges = {}
    for start in range(0, len(phrases), BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        for node, row in enumerate(cosines, start):
            if len(phrases[node].replace(" ", "")) < LEAST_LETTERS:
                continue
            near = [at for at in np.flatnonzero(row >= threshold).tolist() if at != node and phrases[at]]
            for other in sorted(near, key=lambda at: -row[at])[:MOST_SYNONYMS]:
                edges[node, other] = float(row[other])
    return edges


def phrase_weights(
    facts: Sequence[tuple[Triple, float]], place: Mapping[str, int], passages_with: Sequence[int], most: int
) -> list[tuple[int, float]]:
    """(phrase, restart weight) of the heaviest phrases of the facts.

    A weight is the mean score of the facts with the phrase, divided by the number of passages with it.
    """
    scores: dict[int, list[float]] = {}
    for (subject, _, thing), score in facts:
        for node in (place[subject], place[thing]):
            scores.setdefault(node, []).append(score / passages_with[node])
    means = [(node, sum(of_node) / len(of_node)) for node, of_node in scores.items()]
    return sorted(means, key=lambda mean: -mean[1])[:most]
