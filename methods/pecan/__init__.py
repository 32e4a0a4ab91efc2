"""PECAN, and its earlier variant GARLIC: a graph of information points, searched while it is read.

Once per document (:mod:`construction <methods.pecan.construction>`): the text is cut into chunks; a model
summarises them, one window at a time, into lists of information points, and those again, until a level fits
one window. The attention that a point pays to each of its source texts while it is generated is the weight
of the edge between them; no extra pass is needed.

Once per question (:mod:`search <methods.pecan.search>`): the model reads the question and the top level,
and is asked whether that suffices. If not, it next reads the node with the highest score: attention passed
down the graph (from nodes that attend to the question) plus similarity to the question. The search stops
when the model has said Yes ``t_p`` times with a confidence above ``t_c``, and the model answers.

The modules: :mod:`config <methods.pecan.config>` (options), :mod:`bullets <methods.pecan.bullets>` (parsing
of generated lists), :mod:`graph <methods.pecan.graph>` (nodes, edges, storage),
:mod:`heads <methods.pecan.heads>` (whose attention counts),
:mod:`describing <methods.pecan.describing>` (a search path as record, text and picture).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench.method import (
    ConfigError,
    Geometry,
    GraphView,
    LanguageModel,
    Method,
    ModelSet,
    Replayed,
    Role,
    charged,
    read,
)
from bench.schema import DocumentSet, Index, JsonValue, Prediction, Question
from methods.pecan.config import PecanConfig
from methods.pecan.construction import GraphPlan, build_graph
from methods.pecan.describing import draw, prediction_of, stopped_by
from methods.pecan.graph import Graph
from methods.pecan.search import StopRule, ask

ATTENTION = (
    "PECAN's graph and search are made of attention by span, which no server gives, nor a model with layers "
    "that have none. Two ways out: --set attention=off, which ranks by similarity alone; or other models, "
    "loaded here, that build and search for the reader: --set search_model=NAME --set graph_model=NAME."
)
PROBABILITIES = (
    "PECAN's search asks after every node how likely Yes is. Two ways out: a server that says so (vLLM, "
    "llama.cpp); or a searcher that is loaded here, with the served model as reader: "
    "--set search_model=NAME."
)


class Pecan(Method[PecanConfig]):
    """Build a graph of information points with attention as edges, search it step by step, answer.

    Roles: ``builder`` writes the graph, ``searcher`` reads nodes and says Yes or No, ``reader`` answers.
    All three are the run's ``--model`` unless ``graph_model`` or ``search_model`` names another. If the
    searcher is not the reader, the reader reads the visited nodes once, to answer.
    """

    name = "pecan"
    version = "2"
    summary = "search a graph of information points while reading it (variant=garlic: its earlier version)"
    paper = "PECAN (Table 1); GARLIC, its earlier version, with variant=garlic"
    family = "graphs and trees"
    Config = PecanConfig
    replayed = frozenset({"t_p", "t_c", "patience", "confidence"})
    editions = frozenset({"variant"})

    def __init__(self, config: PecanConfig, geometry: Geometry, seed: int = 0) -> None:
        """Store options, geometry and seed; raises ConfigError for a window above the model's limit."""
        super().__init__(config, geometry, seed)
        if config.window is not None and config.window > geometry.input_limit:
            raise ConfigError(
                f"window={config.window}: the model takes {geometry.input_limit} tokens. Lower window, or "
                "choose a model with more.",
            )

    def roles(self) -> Mapping[str, Role]:
        """Reader, builder, searcher and the sentence encoder."""
        config = self.config
        builder, searcher = Role(config.graph_model), Role(config.search_model, index=False)
        if config.progress_control == "on":
            searcher = searcher.needing("probabilities", PROBABILITIES)
        if config.attention == "on":
            builder, searcher = (role.needing("attention", ATTENTION) for role in (builder, searcher))
        return {
            "reader": Role(index=False),
            "builder": builder,
            "searcher": searcher,
            "embedder": Role(config.embedder),
        }

    def choices(self) -> Mapping[str, JsonValue]:
        """Score normalisation, second turn, and length of a tree's summaries."""
        tree = {"summary_tokens": self._plan().summary_tokens} if self.config.graph == "tree" else {}
        again = {} if self.config.second_turn == "paper" else {"second_turn": self.config.second_turn}
        return {"score_norm": self.config.norm, **again, **tree}

    def index_options(self) -> Mapping[str, JsonValue]:
        """The options of the graph; searches with different options share it."""
        plan = asdict(self._plan())
        del plan["seed"]  # already part of every index's key
        for option in ("tokens", "heads"):
            if plan[option] == "all":
                del plan[option]  # graphs from before the option stay valid
        if plan["kind"] == "tree":
            plan["clustering"] = 3
        return plan

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The graph of the documents."""
        builder = models.lm("builder")
        plan = self._plan(self._window(builder))
        attention = self.config.attention == "on"
        graph = await build_graph(documents, builder, models.embedder(), plan, attention=attention)
        return graph.to_index()

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer after a search: a replay of one config."""
        return (await self.replay(index, question, models, [self.config]))[0].prediction

    async def replay(
        self, index: Index, question: Question, models: ModelSet, configs: Sequence[PecanConfig]
    ) -> list[Replayed]:
        """One search for all configs: the result of :meth:`answer` for each, with its cost as if run alone.

        The search continues until the last config has stopped; one answer is generated per distinct
        stopping point. The surrounding meter is credited with the actual cost.
        """
        graph = Graph.from_index(index, question.documents)
        if not graph.nodes:
            return await self._without_context(question, models, len(configs))
        window = {role: self._window(models.lm(role)) for role in ("searcher", "reader")}
        rules = [StopRule.of(config, question) for config in configs]
        ends = await ask(graph, question, models, self.config, window, rules)
        distinct = {id(end): end for end in ends}
        described = {at: prediction_of(graph, question, self.config, end) for at, end in distinct.items()}
        return [
            Replayed(stopped_by(described[id(end)], rule), end.meter)
            for rule, end in zip(rules, ends, strict=True)
        ]

    def graph_view(self, index: Index, documents: DocumentSet) -> GraphView:
        """The graph as a figure draws it (PECAN, Fig. A1)."""
        return draw(Graph.from_index(index, documents))

    def _plan(self, window: int | None = None) -> GraphPlan:
        """The options of graph construction with their defaults filled in."""
        config, geometry = self.config, self.geometry
        chunk_tokens = config.chunk_tokens or geometry.chunk_tokens
        return GraphPlan(
            kind=config.graph,
            window=window or config.window or geometry.window,
            chunk_tokens=chunk_tokens,
            summary_tokens=config.summary_tokens
            or (geometry.summary_tokens if config.graph == "ip" else chunk_tokens),
            max_levels=config.max_levels,
            seed=self.seed,
            tokens=config.tokens,
            heads=config.heads,
        )

    def _window(self, lm: LanguageModel) -> int:
        """Window s of a model: the option, or else the smaller of the run's and the model's own."""
        if self.config.window is None:
            return min(self.geometry.window, lm.geometry.window)
        if self.config.window > lm.geometry.input_limit:
            raise ConfigError(
                f"window={self.config.window}: {lm.name} takes {lm.geometry.input_limit} tokens. Lower "
                "window, or choose a model with more."
            )
        return self.config.window

    async def _without_context(self, question: Question, models: ModelSet, copies: int) -> list[Replayed]:
        """For documents without text: ask the question without context, and flag the answer."""
        with charged() as meter:
            prediction = await read([], question, models.lm(), self.config.prompt, flags=("empty_document",))
        return [Replayed(prediction, meter)] * copies
