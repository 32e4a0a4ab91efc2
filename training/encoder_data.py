"""Questions and the passages that answer them, for the small encoders; seed and step alone make a batch.

A group is one generated world told as a document of the sample sets' styles, cut into passages as the methods
cut it, and questions of which it is known which passages tell the answer. The other passages of the group are
the negatives that matter: they are about the same people and things. All other groups of the batch serve too.
With notes, a group may have the short statements of its facts, one by one or several in a row, beside the
passages or for them: what graphs and trees of summaries have for nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bench.method.chunking import chunk_documents
from bench.models.api import Tokenization
from bench.schema import Document, DocumentSet
from training.generator.names import NameSource
from training.generator.rendering import Article, articles, chronicle, report, story
from training.generator.world import QA, Fact, World, ask, ask_check, ask_hops, make_world, running_sentences

CHUNK_TOKENS = (30, 50, 75, 75, 75, 120)
"""Lengths of passages that are drawn; 75 is what ``tiny`` is used with."""
FACTS = (16, 70)
SHARE = 0.6
QUESTIONS = 10
NOTES_IN_A_ROW = 8
Notes = Literal["none", "drawn", "single"]
"""Of notes a group has none; some, beside its passages or in place of them; or one for each fact, alone."""
GROUPS = 6


@dataclass(frozen=True)
class Group:
    """Passages of one document, and questions with the positions of the passages that answer them."""

    passages: tuple[str, ...]
    questions: tuple[str, ...]
    positives: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class EncoderBatch:
    """Token ids, (n, longest) padded with 0, of all questions and passages, and which belong together."""

    questions: NDArray[np.int64]
    passages: NDArray[np.int64]
    positives: NDArray[np.bool_]
    """(questions, passages)."""


def draw_group(
    rng: random.Random,
    names: NameSource,
    tokenize: Callable[[str], Tokenization],
    *,
    chunk_tokens: int = 0,
    notes: Notes = "none",
) -> Group:
    """One document and questions about it; chunk_tokens: length of its passages (0: drawn)."""
    world = make_world(rng, names, rng.randint(*FACTS), share=SHARE)
    documents = _documents(rng, world)
    chunks = chunk_documents(
        DocumentSet(tuple(Document(a.title, a.text) for a in documents)),
        tokenize,
        chunk_tokens or rng.choice(CHUNK_TOKENS),
    )
    passage_of = _passages_of_facts(documents, [(c.document, c.start, c.end) for c in chunks])
    texts = [c.text for c in chunks]
    tellers = {fact: {passage} for fact, passage in passage_of.items()}
    if notes == "single" or (notes == "drawn" and rng.random() < 0.6):
        if notes == "single" or rng.random() < 0.4:
            texts, tellers = [], {}
        told = [s.fact for document in documents for s in document.sentences() if s.fact]
        most = NOTES_IN_A_ROW if notes == "drawn" and rng.random() < 0.5 else 1
        _add_notes(rng, told, most, texts, tellers)
    asked: list[str] = []
    positives: list[tuple[int, ...]] = []
    for fact in rng.sample(world.facts, min(QUESTIONS, len(world.facts))):
        qa = _question(rng, world, fact)
        if all(f in tellers for f in qa.facts):
            asked.append(qa.question)
            positives.append(tuple(sorted(set().union(*(tellers[f] for f in qa.facts)))))
    return Group(tuple(texts), tuple(asked), tuple(positives))


def _add_notes(
    rng: random.Random, told: Sequence[Fact], most: int, texts: list[str], tellers: dict[Fact, set[int]]
) -> None:
    """Adds notes about the facts in their order, up to ``most`` in one, and to each fact who tells it."""
    start = 0
    while start < len(told):
        own = told[start : start + rng.randint(1, most)]
        start += len(own)
        for fact in own:
            tellers.setdefault(fact, set()).add(len(texts))
        texts.append(" ".join(running_sentences(own)))


def make_batch(
    step: int, seed: int, tokenizer: Tokenizer, bos: int, names: NameSource, notes: Notes = "none"
) -> EncoderBatch:
    """The batch of a step."""
    rng = random.Random(f"dual:{seed}:{step}")

    def tokenize(text: str) -> Tokenization:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return Tokenization(tuple(encoding.ids), tuple(encoding.offsets))

    groups = [draw_group(rng, names, tokenize, notes=notes) for _ in range(GROUPS)]
    questions = [q for g in groups for q in g.questions]
    passages = [p for g in groups for p in g.passages]
    positives = np.zeros((len(questions), len(passages)), dtype=np.bool_)
    row = column = 0
    for group in groups:
        for own in group.positives:
            positives[row, [column + i for i in own]] = True
            row += 1
        column += len(group.passages)
    return EncoderBatch(padded(questions, tokenizer, bos), padded(passages, tokenizer, bos), positives)


def padded(texts: Sequence[str], tokenizer: Tokenizer, bos: int) -> NDArray[np.int64]:
    """Ids of the texts, each after ``bos`` (its vector becomes the text's), padded with 0 at the end."""
    lines = [[bos, *e.ids] for e in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    ids = np.zeros((len(lines), max(map(len, lines))), dtype=np.int64)
    for row, line in enumerate(lines):
        ids[row, : len(line)] = line
    return ids


def _documents(rng: random.Random, world: World) -> list[Article]:
    style = rng.choice(("story", "report", "articles", "chronicle"))
    if style == "articles":
        return articles(rng, world.facts)
    if style == "story":
        return [story(rng, world, world.facts)]
    if style == "report":
        return [report(rng, world.facts, f"Report on {rng.choice(world.towns)}")]
    return [chronicle(rng, world.facts)]


def _question(rng: random.Random, world: World, fact: Fact) -> QA:
    draw = rng.random()
    if draw < 0.25:
        return ask_hops(rng, world.facts, rng.choice((2, 2, 2, 3))) or ask(rng, fact)
    if draw < 0.35:
        return ask_check(rng, world, fact, truth=rng.random() < 0.5)
    return ask(rng, fact)


def _passages_of_facts(
    documents: Sequence[Article], spans: Sequence[tuple[int, int, int]]
) -> dict[Fact, int]:
    """The passage that holds most of the sentence of each fact; spans: document, start, end of passages."""
    passage_of: dict[Fact, int] = {}
    for number, document in enumerate(documents):
        own = [(i, start, end) for i, (d, start, end) in enumerate(spans) if d == number]
        text = document.full_text
        at = len(text) - len(document.text)
        for sentence in document.sentences():
            at = text.index(sentence.text, at)
            to = at + len(sentence.text)
            if sentence.fact:
                best = max(own, key=lambda p: min(p[2], to) - max(p[1], at))
                passage_of[sentence.fact] = best[0]
            at = to
    return passage_of
