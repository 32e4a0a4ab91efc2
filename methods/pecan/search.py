"""Dynamic search (PECAN, Sec. 3.2): read node after node until the model says that it knows enough.

The search is greedy best-first over the graph. Everything that is read stays in one reading context: each
node's tokens are forwarded once, and that forward yields both the attention that ranks the remaining nodes
and, with a probe after it, the confidence that decides whether to continue.

Which nodes are read, and in which order, does not depend on the stop rule. So one walk serves any number of
rules: it continues until the last of them has stopped; where a rule stops, the answer is generated and the
context rolled back. :func:`ask` does that, for one rule or for a whole grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.method import (
    ConfigError,
    Generation,
    LanguageModel,
    Meter,
    ModelSet,
    Probe,
    ReadingContext,
    Span,
    WindowExceededError,
    charged,
    question_vector,
    read,
    token_span,
    unit_rows,
)
from bench.schema import JsonValue, Prediction, Question
from methods.pecan.config import PecanConfig
from methods.pecan.content_words import content_tokens
from methods.pecan.graph import Graph
from methods.pecan.heads import heads_of
from methods.pecan.prompts import (
    PECAN_CHOICES,
    PECAN_NODE,
    PECAN_QUESTION_BEHIND,
    PECAN_SEARCH_BEFORE_QUESTION,
    pecan_turns,
)
from methods.pecan.scores import Scoring

YES = PECAN_CHOICES[0]
DEFAULT_T_C = 0.5
"""Threshold for data sets without a published one: Yes is likelier than No."""

Stop = Literal["patience", "exhausted", "window", "n_nodes"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Visit:
    """A node that was read."""

    node: int
    """Position in the graph."""
    position: int
    """Its position in the context: the question is 1, the first node 2."""
    tokens: int
    z: float | None
    similarity: float | None
    score: float | None
    """The score by which it was chosen; None for the initial nodes."""
    r: float | None
    """The attention between it and the question, times its position; None with attention=off."""


@dataclass(frozen=True)
class Step:
    """The nodes read between two decisions, the model's verdict after them, and their cost."""

    visits: tuple[Visit, ...]
    p_yes: float | None
    """None if the model was not asked (progress_control=off)."""
    mass: float | None
    """Probability of Yes and No together among all tokens."""
    meter: Meter


@dataclass(frozen=True)
class Stopped:
    """Where and why a rule ended the walk, and the answer given there."""

    steps: tuple[Step, ...]
    stop: Stop
    answer: Prediction
    """The reader's answer, with the passages of answer_from=chunks as its context."""
    meter: Meter
    """Cost of the walk up to this point and of this answer, as if run alone."""
    left_out: int
    """Top-level nodes that were not read initially, for lack of room or because of progress_control=off."""
    cut: bool
    """Whether they were left out for lack of room."""
    lowest_mass: float
    """The least probability of Yes and No together that a probe found; 1 without a probe."""


@dataclass
class StopRule:
    """Stops at the t_p-th Yes; a step is a Yes if its confidence > t_c (PECAN prints t_p there: a typo)."""

    t_p: int
    t_c: float
    patience: Literal["cumulative", "consecutive"]
    confidence: Literal["absolute", "over_nothing", "over_top"] = "absolute"
    base: float | None = field(default=None, init=False)
    """The p_yes of the same question that confidence is relative to; the walk sets it."""
    count: int = field(default=0, init=False)

    @classmethod
    def of(cls, config: PecanConfig, question: Question) -> StopRule:
        """The rule of a config; an unset t_c is the variant's paper's value for the data set.

        That is one for p_yes itself; relative to a probe, an unset t_c is DEFAULT_T_C.
        """
        t_c = config.t_c
        if t_c is None and config.confidence != "absolute":
            t_c = DEFAULT_T_C
        if t_c is None:
            t_c = float(_paper_value(question, config.variant, "t_c", DEFAULT_T_C))
            if not 0 <= t_c <= 1:
                raise ConfigError(
                    f"t_c={t_c:g} in the card of data set {question.dataset!r} ({config.variant}): expected "
                    "a probability, 0 to 1. Correct the card, or set t_c."
                )
        return cls(config.t_p, t_c, config.patience, config.confidence)

    def stops(self, p_yes: float | None) -> bool:
        """Whether the walk ends after this step; must be called for every step in order."""
        if p_yes is None:
            return False
        if relative(p_yes, self.base) > self.t_c:
            self.count += 1
        elif self.patience == "consecutive":
            self.count = 0
        return self.count >= self.t_p


def relative(p_yes: float, base: float | None) -> float:
    """The difference of the log-odds of two probabilities of Yes, as a probability; p_yes without a base."""
    if base is None:
        return p_yes
    more, less = p_yes * (1 - base), base * (1 - p_yes)
    return more / (more + less) if more + less > 0 else 0.5


async def ask(
    graph: Graph,
    question: Question,
    models: ModelSet,
    config: PecanConfig,
    window: Mapping[str, int],
    rules: Sequence[StopRule],
) -> list[Stopped]:
    """One walk through the graph, stopped by each of the rules; results in the order of the rules.

    Rules that end at the same node for the same reason get the same object.
    The graph must have nodes. config: everything except the stop rules; window: s of the roles ``searcher``
    and ``reader``. The surrounding meter is credited with the actual cost.
    Raises WindowExceededError if the question leaves no room to read or answer.
    """
    found: list[tuple[dict[int, tuple[Stop, bool]], int, tuple[Prediction, Meter] | None]] = []
    walk = _Walk(graph, question, models, config, window)
    async with walk:
        if any(rule.confidence == "over_nothing" for rule in rules):
            await walk.ask_before_reading()
        await walk.begin()
        for rule in rules:
            rule.base = walk.base(rule.confidence)
        running = set(range(len(rules)))
        while running:
            p_yes = walk.steps[-1].p_yes
            here: dict[int, Stop] = {i: "patience" for i in sorted(running) if rules[i].stops(p_yes)}
            upcoming: _Choice | None = None
            if len(here) < len(running):
                upcoming, end = walk.choose()
                if end is not None:
                    here.update({i: end for i in running if i not in here})
            if here:
                kinds = {i: (stop, rules[i].confidence == "over_nothing") for i, stop in here.items()}
                found.append((kinds, len(walk.steps), await walk.answer()))
                running.difference_update(here)
            if running:
                assert upcoming is not None
                await walk.read(upcoming)
    ends: dict[int, Stopped] = {}
    for kinds, steps, answered in found:
        answer, meter = answered or await walk.answer_from_chunks(steps)
        stopped = {kind: walk.stopped(*kind, steps, answer, meter) for kind in set(kinds.values())}
        ends |= {i: stopped[kind] for i, kind in kinds.items()}
    return [ends[i] for i in range(len(rules))]


@dataclass(frozen=True)
class _Choice:
    """The node to read next, with its scores."""

    node: int
    z: float | None
    similarity: float | None
    score: float


class _Walk:
    """The state of one search: the nodes read, and the score of every other node."""

    def __init__(
        self,
        graph: Graph,
        question: Question,
        models: ModelSet,
        config: PecanConfig,
        window: Mapping[str, int],
    ) -> None:
        self.graph, self.question, self.config, self.models = graph, question, config, models
        self.searcher, self.reader = models.lm("searcher"), models.lm("reader")
        self.heads = heads_of(config.heads, self.searcher)
        self.one_model = self.searcher.name == self.reader.name
        """Whether the same model searches and answers, in one context."""
        self.window = window["reader"] if self.one_model else window["searcher"]
        self.reader_window = window["reader"]
        self.head, self.second_turn = pecan_turns(config.second_turn, question, config.prompt)
        self.steps: list[Step] = []
        self.visited = np.zeros(len(graph.nodes), dtype=bool)
        self.order: list[int] = []
        self.z = np.zeros(len(graph.nodes))
        self.similarity: Floats | None = None
        self.n_nodes = self._fixed_nodes()
        self.left_out, self.cut = 0, False
        self.attends = False
        """Whether attention between question and nodes is recorded."""
        self.reads_from_question = False
        """Whether it is that of the repeated question to the nodes."""
        heard = config.progress_control == "on" or (
            config.attention == "on" and config.relevance == "question"
        )
        behind = PECAN_QUESTION_BEHIND[config.probe_question] if heard else ""
        self.again = behind.format(question=question.text)
        self.unread: Step | None = None
        """The verdict before anything is read."""
        self.readings: dict[tuple[int, ...], tuple[Prediction, Meter]] = {}
        """With answer_from=chunks: the answer from these chunks."""
        self.scoring = Scoring(config.norm, config.attention_weight)
        self._room = _Room(self.question, self.head, self.again, self.second_turn)
        answers = config.answer_from == "nodes"
        self._room.add_model(self.searcher, self.window, answers=self.one_model and answers)
        if answers and not self.one_model:
            self._room.add_model(self.reader, self.reader_window, answers=True)
        self._context: ReadingContext | None = None

    async def __aenter__(self) -> _Walk:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._context is not None:
            self._context.close()

    @property
    def context(self) -> ReadingContext:
        assert self._context is not None, "begin() opens the context"
        return self._context

    async def begin(self) -> None:
        """Read the question and the top level (PECAN, Sec. 3.2, step 1), and probe for the first time."""
        with charged() as meter:
            if self.config.similarity == "on":
                await self._compare()
            first = await self._initial_nodes()
            self._context = await self.searcher.open(self.window)
            at, one_turn = len(PECAN_SEARCH_BEFORE_QUESTION), self.config.second_turn == "none"
            focus = None if one_turn else (at, at + len(self.question.text))
            question = await self.context.extend(self.head, focus=focus)
            asks = bool(self.question.text.strip()) if one_turn else len(question) > 0
            self.attends = self.config.attention == "on" and asks
            self.reads_from_question = self.attends and self.config.relevance == "question"
            if self.attends and not self.reads_from_question:
                self.context.watch(question, self.heads)
            await self._read([_Choice(node, None, self._similarity_of(node), 0.0) for node in first], meter)

    async def ask_before_reading(self) -> None:
        """Probe with an empty list, in a context of its own, so that the walk itself costs the same."""
        with charged() as meter:
            async with await self.searcher.open(self.window) as context:
                for text in filter(None, (self.head, self.again)):
                    await context.extend(text)
                probe = await context.probe(PECAN_CHOICES)
        self.unread = Step((), probe.probabilities[YES], probe.mass, meter)

    def base(self, confidence: str) -> float | None:
        """The p_yes that a rule's confidence is relative to; None for an absolute one."""
        step = {"over_nothing": self.unread, "over_top": self.steps[0]}.get(confidence)
        return None if step is None else step.p_yes

    async def read(self, choice: _Choice) -> None:
        """Read one more node, and probe."""
        with charged() as meter:
            await self._read([choice], meter)

    async def answer(self) -> tuple[Prediction, Meter] | None:
        """The answer from the nodes read so far, and its cost; the walk can continue afterwards.

        None with answer_from=chunks: they are read when the walk has closed its context, since a question
        that holds one and waits for another could wait for ever.
        """
        if self.config.answer_from == "chunks":
            return None
        with charged() as meter:
            if self.one_model:
                mark = self.context.mark()
                generation = await self._second_turn(self.context)
                self.context.rewind(mark)
            else:
                async with await self.reader.open(self.reader_window) as context:
                    await context.extend(self.head)
                    for node in self.order:
                        await context.extend(self._piece(node))
                    generation = await self._second_turn(context)
        tokens = generation.prompt_tokens, len(generation.token_ids)
        return Prediction(generation.text.strip(), (), *tokens), meter

    async def answer_from_chunks(self, steps: int) -> tuple[Prediction, Meter]:
        """The answer from the text below the nodes of some steps: each one's chunk that it goes back to most.

        Where nothing was chosen yet, below the top level. Chunks that several stops share are read once.

        # our choice
        """
        of = self.steps[1:steps] or self.steps[:1]
        chosen = [visit.node for step in of for visit in step.visits]
        chunks = tuple(sorted({self.graph.main_chunk(node) for node in chosen}))  # document order
        if chunks not in self.readings:
            documents = self.question.documents
            items = [self.graph.passage(chunk, documents) for chunk in chunks]
            with charged() as meter:
                answer = await read(items, self.question, self.reader, self.config.prompt)
            self.readings[chunks] = answer, meter
        return self.readings[chunks]

    def stopped(
        self, stop: Stop, asked_before: bool, steps: int, answer: Prediction, answering: Meter
    ) -> Stopped:
        """The result, as if the walk had ended after ``steps``; asked_before: with the probe before it."""
        total = Meter()
        before = [self.unread] if asked_before and self.unread is not None else []
        asked = [*before, *self.steps[:steps]]
        for meter in [*(step.meter for step in asked), answering]:
            total.add(meter)
        lowest = min((step.mass for step in asked if step.mass is not None), default=1.0)
        return Stopped(tuple(self.steps[:steps]), stop, answer, total, self.left_out, self.cut, lowest)

    def choose(self) -> tuple[_Choice | None, Stop | None]:
        """The best node to read next, or the reason why there is none."""
        if self.n_nodes is not None and len(self.order) >= self.n_nodes:
            return None, "n_nodes"
        candidates = np.flatnonzero(~self.visited)
        if not len(candidates):
            return None, "exhausted"
        attention = self.z if self.config.attention == "on" else None
        similarity = self.similarity if self.config.similarity == "on" else None
        scores = self.scoring.combine(attention, similarity, candidates)
        best = int(np.argmax(scores))  # ties: the first, that is, the lowest level, then the earliest
        if self.config.similarity == "off" and not self.z[candidates].any():
            levels = self.graph.level_of[candidates]
            best = int(np.argmax(levels))  # the earliest of the highest level
        if attention is None and similarity is not None and not scores.any():
            best = int(np.argmax(similarity[candidates]))  # cosines of 0 and less all normalise to 0
        node = int(candidates[best])
        if not self._room.holds(self._piece(node)):
            return None, "window"
        z = float(self.z[node]) if self.config.attention == "on" else None
        return _Choice(node, z, self._similarity_of(node), float(scores[best])), None

    async def _read(self, choices: Sequence[_Choice], meter: Meter) -> None:
        """Append nodes to the context, probe, and pass their attention scores on to their sources."""
        spans, tokens = list[Span](), list[int]()
        begin = PECAN_NODE.index("{text}")
        for choice in choices:
            piece = self._piece(choice.node)
            text = len(self.graph.nodes[choice.node].text)
            spans.append(await self.context.extend(piece, focus=(begin, begin + text)))
            tokens.append(self._room.take(piece))
            self.visited[choice.node] = True
            self.order.append(choice.node)
        probe, attention = await self._judge(choices, spans)
        first = len(self.order) - len(choices) + 2
        visits = []
        for at, (choice, with_question) in enumerate(zip(choices, attention, strict=True)):
            position = first + at
            factor = position if self.config.position_factor == "on" else 1
            r = with_question * factor if self.config.attention == "on" else None
            if r:
                lower, weight = self.graph.sources(choice.node)
                self.z[lower] += r * weight.astype(np.float64)
            score = choice.score if self.steps else None
            visits.append(Visit(choice.node, position, tokens[at], choice.z, choice.similarity, score, r))
        p_yes, mass = (None, None) if probe is None else (probe.probabilities[YES], probe.mass)
        self.steps.append(Step(tuple(visits), p_yes, mass, meter))

    async def _judge(
        self, choices: Sequence[_Choice], spans: Sequence[Span]
    ) -> tuple[Probe | None, list[float]]:
        """The verdict on what was read, and the mean attention between the question and each new node.

        choices, spans: the new nodes. With progress_control=off there is no verdict. A question that is
        repeated behind the nodes is rolled back.
        """
        mark, again, columns = self.context.mark(), Span(0, 0), dict[int, int]()
        at = PECAN_QUESTION_BEHIND[self.config.probe_question].find("{question}")
        if self.again:
            if self.reads_from_question:
                columns = {
                    i: self.context.watch(span, self.heads) for i, span in enumerate(spans) if len(span)
                }
            again = await self.context.extend(self.again, focus=(at, at + len(self.question.text)))
        probe = None
        if self.config.progress_control == "on":
            probe = await self.context.probe(PECAN_CHOICES)
        elif self.attends:
            await self.context.settle()
        attention = [0.0] * len(spans)
        if columns:
            counted = self._counted(self.again, at, len(self.question.text))
            means = self.context.recorded(again)[counted].mean(axis=0, dtype=np.float64)
            attention = [float(means[columns[i]]) if i in columns else 0.0 for i in range(len(spans))]
        elif self.attends and not self.reads_from_question:
            attention = [self._to_question(*pair) for pair in zip(choices, spans, strict=True)]
        if self.again:
            self.context.rewind(mark)
        return probe, attention

    def _to_question(self, choice: _Choice, span: Span) -> float:
        """Mean attention of a node's tokens to the question's; 0 for an empty node."""
        if not len(span):
            return 0.0
        begin, text = PECAN_NODE.index("{text}"), self.graph.nodes[choice.node].text
        counted = self._counted(self._piece(choice.node), begin, len(text))
        return float(self.context.recorded(span)[counted, 0].mean(dtype=np.float64))

    def _counted(self, piece: str, begin: int, length: int) -> NDArray[np.bool_] | slice:
        """Which tokens of the text that begins there count, of those that it has in an appended piece."""
        if self.config.tokens == "all":
            return slice(None)
        tokens = self.searcher.tokenize(piece)
        span = token_span(tokens, begin, begin + length)
        return content_tokens(piece, tokens.offsets[span.start : span.end])

    async def _second_turn(self, context: ReadingContext) -> Generation:
        """PECAN, Table A2: after the model's Yes, ask for the answer; with second_turn=none in the same turn.

        The Yes is inserted even if the walk ended without one.  # our choice
        """
        if self.config.second_turn != "none":
            await context.say(YES)
        await context.extend(self.second_turn)
        return await context.generate(self.question.max_new_tokens)

    async def _initial_nodes(self) -> list[int]:
        """The top level, or the part of it that fits (or, with a fixed number of nodes, its share).

        If not all of it fits, the nodes most similar to the question are read, in document order, and the
        others remain candidates (GARLIC's rule for the fixed number).
        """
        top = list(self.graph.top)
        share = len(top)
        if self.n_nodes is not None:
            share = min(share, max(1, self.n_nodes // len(self.graph.levels)))
        if share == len(top) == self._room.most(map(self._piece, top)):
            return top
        similarity = await self._compare()
        ranked = sorted(top, key=lambda node: -similarity[node])[:share]
        initial = set(ranked[: self._room.most(map(self._piece, ranked))])
        self.left_out, self.cut = len(top) - len(initial), len(initial) < share
        return [node for node in top if node in initial]

    async def _compare(self) -> Floats:
        """Cosine of the question with every node, shape (nodes,); computed on first use."""
        if self.similarity is None:
            vector = unit_rows(await question_vector(self.models.embedder(), self.question.query))
            self.similarity = np.asarray(self.graph.embeddings @ vector, dtype=np.float64)
        return self.similarity

    def _similarity_of(self, node: int) -> float | None:
        return None if self.similarity is None else float(self.similarity[node])

    def _piece(self, node: int) -> str:
        return PECAN_NODE.format(text=self.graph.nodes[node].text)

    def _fixed_nodes(self) -> int | None:
        """The number of nodes to read with progress_control=off; None with dynamic progress control."""
        if self.config.progress_control == "on":
            return None
        if self.config.n_nodes is not None:
            return self.config.n_nodes
        known = [_paper_value(self.question, paper, "fixed_nodes", None) for paper in ("pecan", "garlic")]
        n_nodes = next((int(n) for n in known if n is not None), None)
        if n_nodes is None:
            raise ConfigError(
                f"progress_control=off: no paper has a number of nodes for data set "
                f"{self.question.dataset!r}. Set one: --set n_nodes=17."
            )
        return n_nodes


class _Room:
    """The tokens that can still be read so that the answer fits, in every model's own tokens."""

    def __init__(self, question: Question, head: str, again: str, second_turn: str) -> None:
        """again: what a probe repeats behind the nodes."""
        self.question, self.head, self.again, self.second_turn = question, head, again, second_turn
        self._models: list[LanguageModel] = []
        self._left: list[int] = []

    def add_model(self, lm: LanguageModel, window: int, *, answers: bool) -> None:
        """Also count this model's tokens; raises WindowExceededError if nothing can be read at all.

        The template of the second turn is bounded by twice that of one turn.  # our choice
        """
        frame = lm.chat_overhead + lm.count_tokens(self.head)
        after = lm.count_tokens(self.again)
        if answers:
            answer = 2 * lm.chat_overhead + lm.count_tokens(YES) + lm.count_tokens(self.second_turn)
            after = max(after, answer + self.question.max_new_tokens)
        frame += after
        if frame > window:
            raise WindowExceededError(
                f"{lm.name}: template, question and answer need {frame} tokens, the window has {window}. "
                "Shorten the question, or raise window if the model can take more."
            )
        self._models.append(lm)
        self._left.append(window - frame)

    def holds(self, piece: str) -> bool:
        """Whether the piece still fits."""
        return all(cost <= left for cost, left in zip(self._costs(piece), self._left, strict=True))

    def take(self, piece: str) -> int:
        """Subtract the piece; returns its tokens in the first model, the searcher."""
        costs = self._costs(piece)
        self._left = [left - cost for cost, left in zip(costs, self._left, strict=True)]
        return costs[0]

    def most(self, pieces: Iterable[str]) -> int:
        """The number of pieces, from the first on, that fit together."""
        left, n = list(self._left), 0
        for piece in pieces:
            left = [room - cost for cost, room in zip(self._costs(piece), left, strict=True)]
            if min(left) < 0:
                break
            n += 1
        return n

    def _costs(self, piece: str) -> list[int]:
        return [lm.count_tokens(piece) for lm in self._models]


def _paper_value(question: Question, paper: str, key: str, default: JsonValue) -> JsonValue:
    """The paper's value for the question's data set, from its card."""
    value = question.paper_values.get(paper, {}).get(key)
    return default if value is None else value
