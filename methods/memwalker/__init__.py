"""MeMWalker: walk down a tree of summaries to the segment that answers (Chen et al. 2023; PECAN Table 1).

Once per document: the text is cut into segments, each is summarised, and up to eight neighbouring
summaries are summarised again, until one is left. Once per question: starting at the root, the model sees
the summaries of the children and chooses one; at a segment it answers or goes back. What it has seen on the
way is its working memory. Each of these calls depends on the question.

MeMWalker's code was never released. Formats, actions and lengths are the paper's (Sec. 3); edge cases are
our choice and marked in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from bench.method import ConfigError, Geometry, Method, MethodConfig, ModelSet, chunk_documents, read
from bench.schema import DocumentSet, Index, JsonValue, Prediction, Question
from methods.companion_models import is_small
from methods.memwalker.prompts import Wording
from methods.memwalker.tree import Tree, build_tree, pack
from methods.memwalker.walk import Walk

CHUNKS_PER_SEGMENT = 4
"""MeMWalker's segments have 1,000 to 1,200 tokens, PECAN's chunks 300."""
BARE_REPLY_TOKENS = 16
"""Maximum tokens of an action without a reason."""


class MemWalkerConfig(MethodConfig):
    """Options of tree and walk; M = MeMWalker, P = PECAN."""

    segment_tokens: int | None = Field(
        None,
        ge=8,
        description="most tokens of a segment; default: four chunks of the geometry (M: 1,000-1,200)",
    )
    group: int = Field(8, ge=2, description="most summaries under one parent (M: 8, on one data set 5)")
    summary_tokens: int | None = Field(
        None, ge=4, description="most tokens of a summary; default: one chunk of the geometry"
    )  # our choice: no source says
    reasoning: Literal["on", "off"] = Field(
        "off",
        description="whether the model gives a reason before each action: off as in P, for every method "
        "(Sec. 4: without chain of thought); on as in M",
    )
    wording: Literal["auto", "paper", "ours"] = Field(
        "auto",
        description="wording of the prompts: paper (M App. A.1), or ours, on which the small readers were "
        "trained; auto: paper, or ours for a reader used below the papers' lengths",
    )
    retries: int = Field(3, ge=0, description="retries after a reply without a valid action (M: 3)")
    window: int | None = Field(
        None,
        ge=64,
        description="s: maximum tokens of a prompt and its reply; working memory is dropped, oldest first, "
        "to fit; default: the model's geometry",
    )


class MemWalker(Method[MemWalkerConfig]):
    """Build a tree of summaries over segments, and let the model walk it to a segment that answers."""

    name = "memwalker"
    version = "1"
    summary = "walk down a tree of summaries, with working memory, until a segment answers"
    paper = "Chen et al. 2023 (MeMWalker, arXiv 2310.05029); baseline of PECAN, Table 1"
    family = "graphs and trees"
    Config = MemWalkerConfig

    def __init__(self, config: MemWalkerConfig, geometry: Geometry, seed: int = 0) -> None:
        """Store options, geometry and seed; raises ConfigError for lengths that exceed the window."""
        super().__init__(config, geometry, seed)
        needed = max(config.group * self.summary_tokens, self.segment_tokens)
        needed += max(self.reply_tokens, self.summary_tokens)
        if needed > self.window:
            raise ConfigError(
                f"A prompt may need more than {needed} tokens (segment_tokens={self.segment_tokens}, group="
                f"{config.group} x summary_tokens={self.summary_tokens}, reply_tokens={self.reply_tokens}), "
                f"the window has {self.window}. Lower these, or raise window if the model can take more."
            )
        if self.window > geometry.input_limit:
            raise ConfigError(
                f"window={self.window}: the model takes {geometry.input_limit} tokens. Lower window, or "
                "choose a model with more.",
            )

    @property
    def segment_tokens(self) -> int:
        """Most tokens of a segment."""
        return self.config.segment_tokens or CHUNKS_PER_SEGMENT * self.geometry.chunk_tokens

    @property
    def summary_tokens(self) -> int:
        """Most tokens of a summary."""
        return self.config.summary_tokens or self.geometry.chunk_tokens

    @property
    def reply_tokens(self) -> int:
        """Most tokens of a reason and action; a segment's reply gets the data set's answer length as well."""
        # our choice: no source says
        return max(self.geometry.chunk_tokens if self.config.reasoning == "on" else 0, BARE_REPLY_TOKENS)

    @property
    def window(self) -> int:
        """Tokens of a prompt and its reply."""
        return self.config.window or min(self.geometry.window, self.geometry.input_limit)

    @property
    def wording(self) -> Wording:
        """The resolved wording of the prompts."""
        if self.config.wording == "auto":
            return "ours" if is_small(self.geometry) else "paper"
        return self.config.wording

    def choices(self) -> Mapping[str, JsonValue]:
        """Whether reasons are asked for, and the wording."""
        return {"reasoning": self.config.reasoning, "wording": self.wording}

    def index_options(self) -> Mapping[str, JsonValue]:
        """The options of the tree; walks with different options share it."""
        return {
            "segment_tokens": self.segment_tokens,
            "group": self.config.group,
            "summary_tokens": self.summary_tokens,
            "wording": self.wording,
        }

    async def index(self, documents: DocumentSet, models: ModelSet) -> Index:
        """The tree of the documents."""
        lm = models.lm()
        segments = pack(chunk_documents(documents, lm.tokenize, self.segment_tokens), self.segment_tokens)
        tree = await build_tree(segments, lm, self.config.group, self.summary_tokens, self.wording)
        return tree.to_index()

    async def answer(self, index: Index, question: Question, models: ModelSet) -> Prediction:
        """The answer at the end of the walk; empty, and flagged, if there is none."""
        tree = Tree.from_index(index, question.documents)
        if not tree.nodes:
            return await read([], question, models.lm(), flags=("empty_document",))
        config = self.config
        walk = Walk(
            tree,
            question,
            models.lm(),
            reasoning=config.reasoning == "on",
            retries=config.retries,
            reply_tokens=self.reply_tokens,
            window=self.window,
            wording=self.wording,
        )
        return await walk.prediction()
