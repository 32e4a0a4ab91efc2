"""LinearRAG: a graph of passages and the names in them, without a relation and without an LLM token.

Zhuang et al. 2025 (arXiv 2510.10114). Once per document: names are found in the sentences; a passage is
linked to each of its names by the share of its mentions, and to the passage after it. Once per question: each
name in the question activates its most similar name of the graph; activation spreads from a name through the
sentences with it that are most similar to the question to the names beside it there; personalised PageRank
from names and passages ranks the passages. Without a name in the question, passages are ranked by similarity.

Steps and constants are those of the authors' code (DEEP-PolyU/LinearRAG), which gives the same ranking for
the same names and vectors if it takes names in the order of the text; it takes them in that of a Python set.
The authors find names with spaCy; here a name is a run of capitalised words  # our choice: needs no further
model, but no name in lower case is found, and no date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bench.method import ModelSet, RankConfig, RankThenRead, Role, question_vector, unit_rows
from bench.schema import Chunk, Index, JsonValue, Question
from methods.retrievers.page_rank import min_max, page_rank

TIERS, THRESHOLD, SENTENCES = 3, 0.4, 3
"""Of names, those of the question included; least activation that is passed on; sentences through which a
name passes it on (the authors' run.py)."""
PASSAGE_RATIO = 2.0
"""Weight of a passage's own similarity (the same)."""
DAMPING, PASSAGE_WEIGHT, ADJACENT = 0.5, 0.05, 1.0
"""Of PageRank; of passages in its restart; of the edge to the next passage (config.py, LinearRAG.py)."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_NAME = re.compile(r"(?<!\w)[A-Z][\w’'-]*(?:(?:\s+(?:of|the|de|la|van|von))*\s+[A-Z][\w’'-]*)*")
_OTHER_LETTER = re.compile(r"[^\W\d_a-zA-Z]")
_NO_NAMES = frozenset(
    "A After All Although An And As At Because Before But By Did Do Does During For From Had Has Have He Her "
    "His How I If In Is It Its Later Many My No Not Of On Once One Or Our She Since So Some That The Their "
    "Then There These They This Those Through To Under Until Was We Were What When Where Which While Who "
    "Whom Whose Why With Yes You".split()
)


class LinearRagConfig(RankConfig):
    """The encoder."""

    encoder: str = Field(
        "minilm",
        description="sentence-transformers preset, hub id or folder (the authors' code: all-mpnet-base-v2)",
    )


class LinearRag(RankThenRead[LinearRagConfig]):
    """Names, sentences and PageRank."""

    name = "linear_rag"
    version = "3"
    summary = "rank chunks by PageRank over a graph of names, without an LLM at indexing"
    paper = "Zhuang et al. 2025 (LinearRAG, arXiv 2510.10114)"
    family = "graphs and trees"
    Config = LinearRagConfig

    def roles(self) -> Mapping[str, Role]:
        """The run's reader and the sentence encoder."""
        return {"reader": Role(), "embedder": Role(self.config.encoder)}

    async def prepare(
        self, chunks: Sequence[Chunk], models: ModelSet
    ) -> tuple[Mapping[str, JsonValue], Mapping[str, NDArray[np.generic]]]:
        """Names, the names of each sentence and passage, and unit vectors of all three."""
        texts, encoder = [chunk.text for chunk in chunks], models.embedder()
        sentences = {
            sentence: in_sentence
            for text in texts
            for sentence in _SENTENCE_END.split(text)
            if (in_sentence := names_in(sentence))
        }
        names = list(dict.fromkeys(name for in_sentence in sentences.values() for name in in_sentence))
        place = {name: at for at, name in enumerate(names)}
        of_passage = [
            list(dict.fromkeys(n for s in _SENTENCE_END.split(text) for n in names_in(s))) for text in texts
        ]
        data = {
            "names": names,
            "sentences": [[place[name] for name in in_sentence] for in_sentence in sentences.values()],
            "passages": [
                [[place[name], text.count(name)] for name in in_passage]
                for text, in_passage in zip(texts, of_passage, strict=True)
            ],
        }
        arrays = {
            "passages": unit_rows(await encoder.embed(texts)),
            "sentences": unit_rows(await encoder.embed(list(sentences))),
            "names": unit_rows(await encoder.embed(names)),
        }
        return data, arrays

    async def score(
        self, chunks: Sequence[Chunk], index: Index, question: Question, models: ModelSet
    ) -> NDArray[np.float64]:
        """PageRank of every chunk; its similarity to the question where the question has no name."""
        encoder, names = models.embedder(), [name.lower() for name in names_in(question.query)]
        query = unit_rows(await question_vector(encoder, question.query))
        similarity = np.asarray(_vectors(index, "passages") @ query, dtype=np.float64)
        if not names or not index.data["names"]:
            return similarity
        likeness = _vectors(index, "names") @ unit_rows(await encoder.embed(list(dict.fromkeys(names)))).T
        seeds = {int(at): float(likeness[at, column]) for column, at in enumerate(likeness.argmax(axis=0))}
        activation = self._spread(seeds, index, query)
        texts = [chunk.text.lower() for chunk in chunks]
        restart = np.concatenate(
            [activation.weights, self._passage_weights(texts, similarity, activation, index.data["names"])]
        )
        return page_rank(restart, *_edges(index), damping=DAMPING)[len(activation.weights) :]

    def _spread(self, seeds: Mapping[int, float], index: Index, query: NDArray[np.float32]) -> _Activation:
        """Activation of the names, tier by tier; a sentence passes it on once."""
        of_sentence: list[list[int]] = index.data["sentences"]
        with_name: dict[int, list[int]] = {}
        for sentence, in_sentence in enumerate(of_sentence):
            for name in in_sentence:
                with_name.setdefault(name, []).append(sentence)
        similarity = _vectors(index, "sentences") @ query
        weights = np.zeros(len(index.data["names"]))
        weights[list(seeds)] = list(seeds.values())
        last = {name: (score, 1) for name, score in seeds.items()}
        current, used = dict(seeds), set[int]()
        for tier in range(2, TIERS + 1):
            reached: dict[int, float] = {}
            for name, score in current.items():
                free = [sentence for sentence in with_name[name] if sentence not in used]
                if score < THRESHOLD or not free:
                    continue
                for sentence in sorted(free, key=lambda at: -similarity[at])[:SENTENCES]:
                    used.add(sentence)
                    passed = score * float(similarity[sentence])
                    if passed >= THRESHOLD:
                        for other in of_sentence[sentence]:
                            weights[other] += passed
                            reached[other] = passed
            last |= {name: (score, tier) for name, score in reached.items()}
            current = reached
        return _Activation(weights, last)

    def _passage_weights(
        self,
        texts: Sequence[str],
        similarity: NDArray[np.float64],
        activation: _Activation,
        names: Sequence[str],
    ) -> NDArray[np.float64]:
        """What each passage adds to the restart: its own similarity and the activated names in it."""
        bonus = [
            sum(
                score * math.log(1 + text.count(names[name].lower())) / tier
                for name, (score, tier) in activation.last.items()
            )
            for text in texts
        ]
        return np.asarray(PASSAGE_WEIGHT * (PASSAGE_RATIO * min_max(similarity) + np.log1p(bonus)))


@dataclass(frozen=True)
class _Activation:
    """How much the names of the graph were activated."""

    weights: NDArray[np.float64]
    """In all, shape (names,)."""
    last: Mapping[int, tuple[float, int]]
    """Name -> activation when it was reached last, and the tier, from 1."""


def names_in(sentence: str) -> list[str]:
    """Runs of capitalised words, each once, in order; words that begin many a sentence are no names."""
    names = []
    cases = _OTHER_LETTER.sub(lambda letter: "A" if letter[0].isupper() else "x", sentence)
    for match in _NAME.finditer(cases):
        run = sentence[match.start() : match.end()]
        words = run.split()
        while words and (words[0] in _NO_NAMES or not words[0][:1].isupper()):
            del words[0]
        if words:
            name = run.split(None, len(run.split()) - len(words))[-1]
            names.append(re.sub(r"[’']s?$", "", name))
    return list(dict.fromkeys(name for name in names if name))


def _edges(index: Index) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """The graph's edges: nodes are the names, then the passages."""
    names, passages = len(index.data["names"]), index.data["passages"]
    rows = [
        (names + at, name, count / total)
        for at, in_passage in enumerate(passages)
        if (total := sum(count for _, count in in_passage))
        for name, count in in_passage
    ]
    rows += [(names + at, names + at + 1, ADJACENT) for at in range(len(passages) - 1)]
    first, second, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(first, np.intp), np.array(second, np.intp), np.array(weights, np.float64)


def _vectors(index: Index, of: str) -> NDArray[np.float64]:
    return np.asarray(index.arrays[of], dtype=np.float64)
