"""RAPTOR: a tree of summaries over clusters of similar passages (Sarthi et al. 2024; PECAN Table 1).

Once per document (:mod:`tree <methods.raptor.tree>`): the text is cut into leaves of whole sentences
(:mod:`leaves <methods.raptor.leaves>`); similar nodes are clustered (:mod:`methods.raptor.clustering`), each
cluster is summarised, and the summaries are clustered again, until a layer is small.

Once per question (:mod:`retrieval <methods.raptor.retrieval>`): the question is compared with the nodes of
the tree, from the top layer down (``mode=tt``) or with all at once (``mode=ct``), and the best are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from bench.method import (
    DEFAULT_PROMPT,
    JOIN_DOCUMENTS,
    PAPER_WINDOW,
    PROMPT_CHOICES,
    ConfigError,
    Geometry,
    MethodConfig,
    ModelSet,
    PickAndRead,
    Picked,
    PromptStyle,
    Role,
    Switch,
    passages,
    question_vector,
    read,
    unit_rows,
)
from bench.schema import ContextItem, DocumentSet, Index, JsonValue, Prediction, Question
from methods.companion_models import AUTO, PAPER_TREE_ENCODER, SMALL_ENCODER, companion
from methods.raptor.retrieval import Scores, collapse, traverse
from methods.raptor.tree import Tree, TreePlan, build_tree

LEAVES_PER_CHUNK = 3
"""RAPTOR's leaves have 100 tokens, PECAN's chunks 300."""
PAPER_BUDGET_TOKENS = 3500
"""RAPTOR's limit for a cluster and for a context, in tokens."""
K_PER_LAYER, K_COLLAPSED = 5, 10


class RaptorConfig(MethodConfig):
    """Options of tree and retrieval; R = RAPTOR's paper or released code."""

    mode: Literal["tt", "ct"] = Field(
        "ct",
        description="tt: tree traversal, layer by layer; ct: collapsed tree, all layers at once (R Sec. 3)",
    )
    k: int | None = Field(
        None,
        ge=1,
        description="nodes picked: tt, per layer (R code, tr_top_k: 5); ct, in all (R code, retrieve: 10; "
        "likely the setting of PECAN's row 'Top-5', its Top-X are 12 to 42)",
    )
    max_tokens: Annotated[int, Field(ge=16)] | Literal["window"] | None = Field(
        None,
        description="ct: most tokens of the picked nodes together; window: the geometry's window (8K in the "
        "papers; the cost that PECAN's Table 1 prints for 42 nodes is that of 3,740 tokens, the prompt "
        "included); default: 3,500 at a window of 8,192 (R code), in proportion at smaller ones",
    )
    leaf_tokens: int | None = Field(
        None,
        ge=4,
        description="most tokens of a leaf; default: a third of the geometry's chunk (R Sec. 3: 100)",
    )
    summary_tokens: int | None = Field(
        None,
        ge=4,
        description="most tokens of a summary; default: a third of the geometry's chunk (R code, "
        "summarization_length: 100)",
    )
    cluster_tokens: int | None = Field(
        None,
        ge=16,
        description="a cluster with more tokens is divided again; default: 3,500 at a window of 8,192 "
        "(R code), in proportion at smaller ones",
    )
    join_documents: Switch = Field("on", description=JOIN_DOCUMENTS)
    max_layers: int = Field(5, ge=0, le=16, description="most layers of summaries (R code, tb_num_layers: 5)")
    embedder: str = Field(
        AUTO,
        description="sentence encoder; auto: R's (in its code multi-qa-mpnet), and minilm for a "
        "reader used below the papers' lengths",
    )
    prompt: PromptStyle = Field(DEFAULT_PROMPT, description=PROMPT_CHOICES)


@dataclass(frozen=True)
class RankedTree:
    """The tree with the similarity of each of its nodes to the question, shape (nodes,)."""

    tree: Tree
    scores: Scores


class Raptor(PickAndRead[RaptorConfig, RankedTree]):
    """Build a tree of cluster summaries, retrieve from it, read what was retrieved."""

    name = "raptor"
    version, index_version = "2", "3"
    summary = "retrieve from a tree of cluster summaries: mode=ct (collapsed) or mode=tt (traversal)"
    paper = "Sarthi et al. 2024 (RAPTOR); baseline of PECAN, Table 1"
    family = "graphs and trees"
    Config = RaptorConfig

    def packages(self) -> Mapping[str, str]:
        """What reduces and clusters embeddings."""
        return dict.fromkeys(("umap", "numba", "sklearn"), "longdoc-bench[raptor]")

    def __init__(self, config: RaptorConfig, geometry: Geometry, seed: int = 0) -> None:
        """Store options, geometry and seed; raises ConfigError for inconsistent lengths."""
        super().__init__(config, geometry, seed)
        plan = self._plan()
        if config.mode == "tt" and config.max_tokens is not None:
            raise ConfigError(f"max_tokens={config.max_tokens} limits mode=ct, not mode=tt; drop it.")
        if plan.leaf_tokens > plan.cluster_tokens or plan.summary_tokens > plan.cluster_tokens:
            raise ConfigError(
                f"cluster_tokens={plan.cluster_tokens} is less than one node may have (leaf_tokens="
                f"{plan.leaf_tokens}, summary_tokens={plan.summary_tokens}). Raise it, or lower the others.",
            )
        if plan.cluster_tokens + plan.summary_tokens > geometry.input_limit:
            raise ConfigError(
                f"cluster_tokens={plan.cluster_tokens} plus summary_tokens={plan.summary_tokens} exceed the "
                f"model's limit of {geometry.input_limit} tokens. Lower one of them."
            )

    def roles(self) -> Mapping[str, Role]:
        """The run's reader, which also writes the summaries, and the sentence encoder."""
        encoder = companion(self.config.embedder, SMALL_ENCODER, PAPER_TREE_ENCODER, self.geometry)
        return {"reader": Role(), "embedder": Role(encoder)}

    def index_options(self) -> Mapping[str, JsonValue]:
        """The options of the tree; both modes share it."""
        plan = asdict(self._plan())
        del plan["seed"]  # already part of every index's key
        return plan

    def choices(self) -> Mapping[str, JsonValue]:
        """How leaves are cut."""
        return {"join_documents": self.config.join_documents}

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The tree of the documents."""
        tree = await build_tree(documents, models.lm(), models.embedder(), self._plan())
        return tree.to_index()

    async def rank(self, index: Index, question: Question, models: ModelSet) -> RankedTree:
        """Cosine of the question with every node, in -1..1; without nodes, nothing is embedded."""
        tree = Tree.from_index(index, question.documents)
        if not tree.nodes:
            return RankedTree(tree, np.zeros(0))
        query = unit_rows(await question_vector(models.embedder(), question.query))
        return RankedTree(tree, np.asarray(tree.embeddings @ query, dtype=np.float64))

    def pick(self, ranked: RankedTree, config: RaptorConfig) -> Picked:
        """The nodes that the mode retrieves, in reading order."""
        if config.mode == "tt":
            return traverse(ranked.tree, ranked.scores, config.k or K_PER_LAYER)
        option = config.max_tokens
        budget = self.geometry.window if option == "window" else option or self._budget
        return collapse(ranked.tree, ranked.scores, config.k or K_COLLAPSED, budget)

    async def read_picked(
        self, ranked: RankedTree, positions: Sequence[int], question: Question, models: ModelSet
    ) -> Prediction:
        """The reader's answer; if the nodes do not fit its window, the least similar are dropped."""
        tree, scores = ranked.tree, ranked.scores
        parts = [(at, part) for at in positions for part in _items(tree, at, float(scores[at]), question)]
        context = [part for _, part in parts]
        worst_first = sorted(range(len(parts)), key=lambda at: (scores[parts[at][0]], -at))
        flags, lm = [f"tree_{event}" for event in tree.notes["events"]], models.lm()
        flags += [] if tree.nodes else ["empty_document"]
        return await read(context, question, lm, self.config.prompt, drop_order=worst_first, flags=flags)

    def _plan(self) -> TreePlan:
        """The options of the tree with their defaults filled in."""
        config = self.config
        short = max(4, self.geometry.chunk_tokens // LEAVES_PER_CHUNK)
        return TreePlan(
            leaf_tokens=config.leaf_tokens or short,
            summary_tokens=config.summary_tokens or short,
            cluster_tokens=config.cluster_tokens or self._budget,
            max_layers=config.max_layers,
            seed=self.seed,
            join_documents=config.join_documents,
        )

    @property
    def _budget(self) -> int:
        """3,500 tokens at a window of 8,192, proportionally fewer at a smaller one."""
        return max(16, min(PAPER_WINDOW, self.geometry.window) * PAPER_BUDGET_TOKENS // PAPER_WINDOW)


def _items(tree: Tree, node: int, score: float, question: Question) -> list[ContextItem]:
    """A leaf as passages of its documents, a summary as a named node."""
    at = tree.nodes[node]
    if at.leaf is not None:
        return passages(at.leaf, question, score)
    return [ContextItem(at.text, node=tree.id(node), score=score)]
