"""PECAN, and its earlier variant GARLIC: a graph of information points, searched while it is read.

Once per document (:mod:`construction <methods.pecan.construction>`): the text is cut into chunks; a
model summarises them, a window at a time, into lists of information points, and those again, until a
level fits one window. How much attention a point paid to each text that it was written from is the
weight of the edge between them. Nothing else is computed for it.

Once per question (:mod:`search <methods.pecan.search>`): the model reads the question and the top
level, and is asked whether that suffices. If not, the node is read next that gets most attention
through the graph (from nodes which themselves attend to the question) plus similarity to the question.
It stops when the model has said Yes ``t_p`` times with more confidence than ``t_c``, and answers.

The pieces: :mod:`config <methods.pecan.config>` (options), :mod:`bullets <methods.pecan.bullets>` (a
generated list taken apart), :mod:`graph <methods.pecan.graph>` (nodes, edges, storage),
:mod:`describing <methods.pecan.describing>` (a path as text and as a picture).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.method import ConfigError, Geometry, GraphView, LanguageModel, Method, ModelSet, Replayed, read
from bench.schema import DocumentSet, Index, JsonValue, Prediction, Question
from methods.pecan.config import PecanConfig
from methods.pecan.construction import GraphPlan, build_graph
from methods.pecan.describing import describe, draw, prediction_of
from methods.pecan.graph import Graph
from methods.pecan.search import StopRule, ask, charged

__all__ = ["Pecan", "PecanConfig"]


class Pecan(Method[PecanConfig]):
    """Build a graph of information points with attention as edges, search it step by step, answer.

    Roles: ``builder`` writes the graph, ``searcher`` reads nodes and says Yes or No, ``reader`` answers.
    All three are the run's ``--model`` unless ``graph_model`` or ``search_model`` names another. Where
    the searcher is another model than the reader, the reader reads the visited nodes once, to answer.
    """

    name = "pecan"
    version = "2"
    summary = "search a graph of information points while reading it (variant=garlic: its earlier version)"
    paper = "PECAN (Table 1); GARLIC, its earlier version, with variant=garlic"
    Config = PecanConfig
    replayed = frozenset({"t_p", "t_c", "patience"})

    def __init__(self, config: PecanConfig, geometry: Geometry, seed: int = 0) -> None:
        """Keep options, geometry and seed; raises ConfigError for a window that the model cannot have."""
        super().__init__(config, geometry, seed)
        if config.window is not None and config.window > geometry.input_limit:
            raise ConfigError(
                f"window={config.window}: the model takes {geometry.input_limit} tokens. Lower window, or "
                "choose a model with more.",
                option="window",
            )

    def models(self) -> Mapping[str, str]:
        """Reader, builder, searcher and the sentence encoder."""
        return {
            "reader": "",
            "builder": self.config.graph_model,
            "searcher": self.config.search_model,
            "embedder": self.config.embedder,
        }

    def choices(self) -> Mapping[str, JsonValue]:
        """How the two scores are added, how the question is asked again, how long a tree's summaries are."""
        tree = {"summary_tokens": self._plan().summary_tokens} if self.config.graph == "tree" else {}
        again = {} if self.config.second_turn == "paper" else {"second_turn": self.config.second_turn}
        return {"score_norm": self.config.norm, **again, **tree}

    def index_options(self) -> Mapping[str, JsonValue]:
        """How the graph is built; every search option shares it."""
        plan = asdict(self._plan())
        del plan["seed"]  # part of every index's key already
        return plan

    def index_roles(self) -> frozenset[str]:
        """Who builds the graph; who searches it does not matter."""
        return frozenset({"builder", "embedder"})

    def local_roles(self) -> Mapping[str, str]:
        """With attention=on, who builds the graph and who searches it."""
        if self.config.attention == "off":
            return {}
        needed = (
            "PECAN's graph and search are made of attention by span, which no server gives. Two ways out:"
            " --set"
            " attention=off, which ranks by similarity alone; or models that are loaded here beside the"
            " served"
            " reader, --set search_model=NAME --set graph_model=NAME."
        )
        return {"builder": needed, "searcher": needed}

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
        """One search for all the configs: what :meth:`answer` gives under each, with its cost as if alone.

        The search goes on until the last of them has stopped; one answer is generated per distinct
        stopping point. The surrounding meter is credited with what was really spent.
        Raises ValueError for configs that differ in more than their stop rule.
        """
        self._require_same_search(configs)
        graph = Graph.from_index(index, question.documents)
        if not graph.nodes:
            return await self._without_context(question, models, len(configs))
        window = {role: self._window(models.lm(role)) for role in ("searcher", "reader")}
        rules = [StopRule.of(config, question) for config in configs]
        ends = await ask(graph, question, models, self.config, window, rules)
        return [
            Replayed(prediction_of(graph, question, config, rule, end), end.meter)
            for config, rule, end in zip(configs, rules, ends, strict=True)
        ]

    @classmethod
    def describe_trace(cls, trace: Mapping[str, JsonValue]) -> str:
        """The path through the graph as a table: nodes in order, scores, confidence, why it stopped."""
        return describe(trace)

    def graph_view(
        self, index: Index, documents: DocumentSet, trace: Mapping[str, JsonValue] | None = None
    ) -> GraphView:
        """The graph as ``bench graph`` draws it, with the path of a question where a trace is given."""
        return draw(Graph.from_index(index, documents), documents, trace)

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
        )

    def _window(self, lm: LanguageModel) -> int:
        """Window s for a model: as set, else the smaller of the run's and the model's own."""
        if self.config.window is None:
            return min(self.geometry.window, lm.geometry.window)
        if self.config.window > lm.geometry.input_limit:
            raise ConfigError(
                f"window={self.config.window}: {lm.name} takes {lm.geometry.input_limit} tokens. Lower "
                "window, or choose a model with more."
            )
        return self.config.window

    def _require_same_search(self, configs: Sequence[PecanConfig]) -> None:
        searches = [config.model_dump(exclude=set(self.replayed)) for config in (self.config, *configs)]
        different: set[Any] = {
            key for search in searches for key in search if search[key] != searches[0][key]
        }
        if different:
            raise ValueError(
                f"a replay differs in {sorted(different)}; only {sorted(self.replayed)} may differ"
            )

    async def _without_context(self, question: Question, models: ModelSet, copies: int) -> list[Replayed]:
        """No text at all: the question is asked alone, and the answer flagged."""
        with charged() as meter:
            prediction = await read([], question, models.lm(), flags=("empty_document",))
        return [Replayed(prediction, meter)] * copies
