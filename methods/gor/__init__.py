"""Graph of Records: retrieve by what a graph neural network makes of the text and of earlier answers.

Once per document set (:mod:`records <methods.gor.records>`): a model simulates queries about random chunks
(:mod:`simulation <methods.gor.simulation>`) and answers them from what is most similar, earlier answers
included; an edge joins every answer with what it was written from.

Once per corpus (:mod:`training <methods.gor.training>`): a graph neural network
(:mod:`model <methods.gor.model>`) learns embeddings of the nodes, so that a simulated query is near the
nodes that say what it was asked about (:mod:`ranking <methods.gor.ranking>`, :mod:`losses
<methods.gor.losses>`). Nothing of a data set's questions and answers is used for this, so the documents
that are asked about may themselves be learned from; ``train_on`` names others.

Once per question (:mod:`retrieval <methods.gor.retrieval>`): the nodes whose learned embeddings are nearest
to the question are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bench.method import ModelSet, Role, Switch, Training, TrainingItem, question_vector
from bench.schema import Index, JsonValue, Question
from methods.companion_models import AUTO, PAPER_RANKING_ENCODER, SMALL_ENCODER, companion
from methods.gor.records import Records, cosines
from methods.gor.retrieval import RecordsConfig, RecordsMethod, Scores

if TYPE_CHECKING:
    from methods.gor.training import Recipe

PAPER_SETTINGS: Mapping[str, tuple[float, float]] = {
    "qmsum": (0.2, 0.9),
    "academic_eval": (0.0, 0.6),
    "wcep": (0.1, 0.7),
    "booksum": (0.2, 0.2),
    "gov_report": (0.5, 0.7),
    "squality": (0.1, 0.4),
}
"""Data set -> dropout and alpha (R Table 6; the last two: C)."""
LEARNING = frozenset("loss in_batch_negatives supervised gnn edges epochs learning_rate".split())
"""Options that what is learned depends on, besides those that follow the data set."""
LAYERS, HEADS, ATTENTION_DROPOUT = 2, 4, 0.1
"""Of the network (R Table 6), and of its GAT layers (C)."""
TAU, BATCH_GRAPHS = 1.0, 32
"""Temperature of similarities in training (R Eq. 5; C), and graphs in a batch (R Table 6)."""
OTHER_SETS = PAPER_SETTINGS["qmsum"]
"""For data sets that the paper does not have.  # our choice"""


class GorConfig(RecordsConfig):
    """Options of training and retrieval; R = Graph of Records, C = its released code."""

    # What is learned, and from what (R Sec. 2.3, 3.5).
    train: Switch = Field("on", description="off: nodes keep their texts' embeddings (R Table 3, w/o train)")
    loss: Literal["both", "cl", "rank"] = Field(
        "both", description="both losses (R Eq. 8), or the contrastive or ranking loss alone (R Table 3)"
    )
    in_batch_negatives: Switch = Field(
        "on", description="off: a query is told apart from nodes of its own graph only (R Table 3)"
    )
    supervised: Switch = Field(
        "off",
        description="on: learn from questions and reference summaries of the documents named by train_on, in "
        "the place of simulated queries (R Fig. 3)",
    )
    train_on: str = Field(
        "auto",
        min_length=1,
        description="documents to learn from: auto, the training part of the same data where it has one (R "
        "Table 5), else as run; run, those that are asked about (none of their questions and "
        "answers is used); train, the training part of the same data; hub or sample, theirs; or a file or "
        "folder",
    )
    train_documents: int = Field(
        400, ge=1, description="most document sets to learn from, drawn at random (R Table 5: 400)"
    )
    train_queries: int | None = Field(
        None,
        ge=1,
        description="simulated queries of each document set to learn from, the first n; the graph keeps "
        "all of them; default: all (R Fig. 2: fewer)",
    )
    ranking_encoder: str = Field(
        AUTO,
        description="encoder of BERTScore, by which nodes are ranked for training; auto: microsoft/"
        "deberta-xlarge-mnli (C; from the hub), and minilm for a reader that is used below the papers' "
        "lengths; name a revision with safetensors as ID@REVISION",
    )
    # The network (R Sec. 2.3, Table 6).
    gnn: Literal["gat", "gcn", "sgc", "gin", "sage"] = Field(
        "gat", description="kind of the network: gat (R), gcn, sgc, gin or sage (R Fig. 4)"
    )
    edges: Literal["undirected", "directed"] = Field(
        "undirected",
        description="along which messages pass: undirected (R), or directed, only from what was read to the "
        "answer (C)",
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="on features; default: the data set's (R Table 6), else QMSum's 0.2"
    )
    # How it is trained (R Table 6).
    alpha: float | None = Field(
        None,
        ge=0,
        description="weight of the ranking loss; default: the data set's (R Table 6), else QMSum's 0.9",
    )
    epochs: int = Field(150, ge=1, le=100_000, description="passes over the graphs (R Table 6: 150)")
    learning_rate: float = Field(
        1e-3, gt=0, le=1, description="at the start; it falls to 0 along a cosine (R Table 6: 0.001)"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = ("train_on", "train_documents", "train_queries", "ranking_encoder", "dropout", "alpha")
        for option in (*sorted(LEARNING), *given):
            chosen, usual = getattr(self, option), type(self).model_fields[option].default
            if chosen != usual and self.train == "off":
                raise ValueError(f"{option}={chosen} is a way of training; drop it, or train=off")
        if self.alpha is not None and self.loss != "both":
            raise ValueError(f"alpha={self.alpha:g} weighs two losses, and loss={self.loss} is one; drop it")
        if self.in_batch_negatives == "off" and self.loss == "rank":
            raise ValueError("in_batch_negatives=off is of the loss cl, and loss=rank has none; drop one")
        if self.supervised == "on" and self.train_on == "run":
            raise ValueError(
                "supervised=on learns from reference summaries, which must not be those that are asked for; "
                "name training data with train_on=PATH"
            )
        if self.train_queries is not None and self.supervised == "on":
            raise ValueError("supervised=on learns from no simulated queries; drop train_queries")
        if self.train_queries is not None and self.train_queries > self.queries:
            raise ValueError(f"train_queries={self.train_queries} is above queries={self.queries}; lower it")
        return self


class Gor(RecordsMethod[GorConfig]):
    """Similarity of the question to node embeddings that a graph neural network has learned."""

    name = "gor"
    version = "3"
    summary = "retrieve from text and simulated answers by node embeddings learned on their graph"
    paper = "Zhang, Feng and You 2025 (Graph of Records), Table 1"
    Config = GorConfig
    own_models = frozenset({"gor-gnn"})

    def roles(self) -> Mapping[str, Role]:
        """Reader, builder, encoder, and the encoder of BERTScore where something is learned."""
        if self.config.train == "off":
            return super().roles()
        chosen = self.config.ranking_encoder
        encoder = companion(chosen, SMALL_ENCODER, PAPER_RANKING_ENCODER, self.geometry)
        ways_out = (
            "BERTScore needs the vectors of every token, which no server gives: choose an encoder that is "
            "loaded here with --set ranking_encoder=NAME."
        )
        return {**super().roles(), "ranking_encoder": Role(encoder, False, "tokens", ways_out)}

    def packages(self) -> Mapping[str, str]:
        """What trains the network."""
        return {} if self.config.train == "off" else {"torch_geometric": "longdoc-bench[gor]"}

    def training(self, dataset: str) -> Training | None:
        """What the network is trained on; None for train=off."""
        config = self.config
        if config.train == "off":
            return None
        dropout, alpha = PAPER_SETTINGS.get(dataset, OTHER_SETS)
        fewer = config.train_queries
        return Training(
            options={
                **config.model_dump(mode="json", include=set(LEARNING)),
                **({"train_queries": fewer} if fewer is not None and fewer < config.queries else {}),
                "dropout": dropout if config.dropout is None else config.dropout,
                "alpha": alpha if config.alpha is None else config.alpha,
            },
            roles=frozenset({"ranking_encoder"}),
            data=config.train_on,
            most=config.train_documents,
            references=config.supervised == "on",
        )

    def choices(self) -> Mapping[str, JsonValue]:
        """How records are written, and along which edges messages pass."""
        return {**super().choices(), "edges": self.config.edges}

    async def train(self, items: Sequence[TrainingItem], training: Training, models: ModelSet) -> Index:
        """The weights of the network; none where no document gave anything to learn from."""
        from methods.gor.training import Trainer, training_graphs

        graphs = await training_graphs(
            items,
            models.embedder("ranking_encoder"),
            models.embedder(),
            supervised=training.references,
            most_queries=training.options.get("train_queries"),
        )
        if not graphs:
            return Index({"graphs": 0, "history": []})
        trainer = Trainer(graphs, self._recipe(training.options, graphs[0].features.shape[1]))
        trainer.run()
        history = [vars(epoch) for epoch in trainer.history]
        shape = asdict(trainer.recipe.shape)
        return Index({"graphs": len(graphs), "history": history, "shape": shape}, trainer.network.arrays())

    def finish(self, index: Index, learned: Index | None) -> Index:
        """The graph with the network's embedding of every node, float32, shape (nodes, dim)."""
        if learned is None or not len(index.arrays["embeddings"]):
            return index
        about = {"graphs": learned.data["graphs"]}
        if not learned.arrays:
            return Index({**index.data, "learned_from": about}, index.arrays)
        from methods.gor.training import embed_nodes

        about["loss"] = learned.data["history"][-1]["loss"]
        vectors = embed_nodes(index, learned, undirected=self.config.edges == "undirected")
        return Index({**index.data, "learned_from": about}, {**index.arrays, "learned": vectors})

    async def score(self, records: Records, index: Index, question: Question, models: ModelSet) -> Scores:
        """Similarity of the question to every node's learned embedding, or to its text's where none is."""
        if self.config.train == "on" and "learned_from" not in index.data:
            raise ValueError("this index was not finished with what was learned: call finish() first")
        vectors = np.asarray(index.arrays.get("learned", records.embeddings), dtype=np.float32)
        query = await question_vector(models.embedder(), question.query)
        return cosines(vectors, query)

    def remarks(self, index: Index) -> tuple[str, ...]:
        """``untrained`` where there was nothing to learn from and texts' own embeddings are compared."""
        return ("untrained",) if self.config.train == "on" and "learned" not in index.arrays else ()

    def _recipe(self, options: Mapping[str, JsonValue], dim: int) -> Recipe:
        from methods.gor.model import Shape
        from methods.gor.training import Recipe

        return Recipe(
            shape=Shape(
                kind=options["gnn"],
                dim=dim,
                layers=LAYERS,
                heads=HEADS,
                dropout=options["dropout"],
                attention_dropout=ATTENTION_DROPOUT,
            ),
            loss=options["loss"],
            alpha=options["alpha"],
            tau=TAU,
            in_batch_negatives=options["in_batch_negatives"] == "on",
            undirected=options["edges"] == "undirected",
            epochs=options["epochs"],
            batch_graphs=BATCH_GRAPHS,
            learning_rate=options["learning_rate"],
            seed=self.seed,
        )
