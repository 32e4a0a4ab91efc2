"""PECAN's options; every default cites the paper or is marked as our choice."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from bench.method import DEFAULT_PROMPT, MethodConfig, PromptStyle, Switch
from methods.pecan.heads import ALL, TOP_LAYERS, HeadsOption
from methods.pecan.scores import Norm


class PecanConfig(MethodConfig):
    """Options of graph, search and ablations.

    P = PECAN, G = GARLIC (its earlier version). None stands for the paper's value for the data set, or for
    the model's geometry.
    """

    variant: Literal["pecan", "garlic"] = Field(
        "pecan", description="whose per-data-set values apply to unset options: pecan or garlic"
    )

    # When to stop (P Sec. 3.2.1, App. E). These affect nothing else, so a sweep can replay them.
    t_p: int = Field(1, ge=1, description="patience: stop after this many Yes, 1 or more (P Sec. 3.2.1: 1)")
    t_c: float | None = Field(
        None,
        ge=0,
        le=1,
        description="confidence threshold in 0..1: a step is a Yes if p_yes > t_c; default: the data set's "
        "value in the variant's paper (P App. E; garlic: 0.5), or 0.5 if there is none or confidence is "
        "relative",
    )
    patience: Literal["cumulative", "consecutive"] = Field(
        "cumulative", description="what t_p counts: all Yes so far (P Sec. 3.2.1) or those in a row"
    )
    confidence: Literal["absolute", "over_nothing", "over_top"] = Field(
        "absolute",
        exclude_if=lambda chosen: chosen == "absolute",
        description="what t_c is compared with: absolute, p_yes (P Sec. 3.2.1); over_nothing, p_yes relative "
        "to the same question's before anything is read; over_top, to that after the top level. Relative is "
        "the difference of the two log-odds as a probability: 0.5 is no change",
    )  # docs/real_reader.md: p_yes tells questions apart more than contexts

    # What to read next (P Sec. 3.2.2; G Sec. 3.2.2).
    score_norm: Norm | None = Field(
        None,
        description="normalisation of attention score and similarity before they are added: sum1_all, each "
        "divided by its sum over all nodes (G Sec. 3.2.2, the default of variant=garlic); sum1, over the "
        "unread candidates (our reading of P's equal weighting, the default of variant=pecan); none (P, read "
        "literally); ranks, reciprocal ranks among the unread candidates",
    )
    attention: Switch = Field("on", description="off: rank by similarity alone (P Table 3)")
    similarity: Switch = Field("on", description="off: rank by attention alone (P Table 3)")
    progress_control: Switch = Field("on", description="off: read n_nodes nodes, never ask (P Table 3)")
    n_nodes: int | None = Field(
        None,
        ge=1,
        description="nodes read with progress_control=off; default: the data set's value (G Table 2)",
    )

    # What the papers leave open (docs/beyond.md). A default is the paper's choice and kept out of the config,
    # so that cells from before an option stay valid.
    attention_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        exclude_if=lambda chosen: chosen == 0.5,
        description="share of the attention score in the sum of the two, 0..1 (P Sec. 3.2.2: equal, 0.5)",
    )
    position_factor: Switch = Field(
        "on",
        exclude_if=lambda chosen: chosen == "on",
        description="off: a node's attention to the question is not multiplied by its position (P App. C)",
    )
    probe_question: Literal["before", "around", "asked"] = Field(
        "before",
        exclude_if=lambda chosen: chosen == "before",
        description="where the model has the question when it says Yes or No: before the nodes (P Table A2); "
        "around, repeated behind the last one; asked, the whole Yes-or-No question behind it, too. What is "
        "behind is rolled back afterwards",
    )
    relevance: Literal["node", "question"] = Field(
        "node",
        exclude_if=lambda chosen: chosen == "node",
        description="whose attention makes a node relevant: node, its tokens' to the question before it (P "
        "Sec. 3.2.2); question, that of the question behind it (not with probe_question=before)",
    )
    tokens: Literal["all", "content"] = Field(
        "all",
        exclude_if=lambda chosen: chosen == "all",
        description="whose attention is averaged, for edges and in the search: all tokens (P), or those of "
        "content words (P Limitations)",
    )
    heads: HeadsOption = Field(
        ALL,
        exclude_if=lambda chosen: chosen == ALL,
        description="the attention heads that are averaged over, for edges and in the search: all of all "
        "layers (P Sec. 3.1); top_layers, those of the last third of the layers, rounded up; or a list of "
        "layer.head, both from 0, such as 3.1+4.0",
    )

    second_turn: Literal["paper", "restated", "none"] = Field(
        "paper",
        exclude_if=lambda chosen: chosen == "paper",
        description="what is asked after the model's Yes: paper (P Table A2); restated: the same with the "
        "question once more, for a reader that goes on answering Yes; none: the nodes are read in the prompt "
        "that asks for the answer, the question behind them (with probe_question=asked)",
    )  # kept out of a config at its default, so that cells from before the option stay valid
    answer_from: Literal["nodes", "chunks"] = Field(
        "nodes",
        exclude_if=lambda chosen: chosen == "nodes",
        description="what the answer is read from: nodes, the search's own context (P Table A2); chunks, the "
        "text that the chosen nodes go back to, in document order, in one prompt",
    )

    prompt: PromptStyle = Field(
        DEFAULT_PROMPT,
        exclude_if=lambda chosen: chosen == DEFAULT_PROMPT,
        description="whose words the restated second turn or answer_from=chunks has: pecan (P Table A2), or "
        "longbench, LongBench's template of the data set",
    )

    # The graph (P Sec. 3.1).
    graph: Literal["ip", "tree"] = Field(
        "ip", description="ip: information points, many to many; tree: one summary a cluster (P Table 3)"
    )
    chunk_tokens: int | None = Field(
        None, ge=8, description="chunk length in tokens; default: the model's geometry (P Sec. 3.1: 300)"
    )
    window: int | None = Field(
        None,
        ge=64,
        description="s: prompt, nodes and generated text together, in tokens, of graph and search; "
        "default: the model's geometry (P Sec. 4: 8K)",
    )
    summary_tokens: int | None = Field(
        None,
        ge=8,
        description="most tokens of one generated summary; default: the model's geometry (graph=tree: "
        "one chunk)",
    )  # our choice: the papers do not say
    max_levels: int = Field(8, ge=2, le=32, description="most levels, chunks included")  # our choice

    # Who does what. --model names the model that answers.
    graph_model: str = Field("", description="the model that builds the graph; default: --model")
    search_model: str = Field("", description="the model that searches (P Table 2); default: --model")
    embedder: str = Field("minilm", description="sentence encoder; the papers name no checkpoint")

    @property
    def norm(self) -> Norm:
        """``score_norm``, resolved."""
        return self.score_norm or ("sum1_all" if self.variant == "garlic" else "sum1")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.attention == "off" and self.similarity == "off":
            raise ValueError("attention=off and similarity=off leave nothing to rank nodes by; keep one on")
        if self.attention_weight != 0.5 and "off" in (self.attention, self.similarity):
            raise ValueError(
                f"attention_weight={self.attention_weight:g} weighs attention against similarity, and one of "
                "them is off; keep both on, or drop the weight"
            )
        of_switch = dict.fromkeys(("heads", "tokens", "position_factor", "relevance"), "attention")
        of_switch |= dict.fromkeys(("t_p", "t_c", "patience", "confidence"), "progress_control")
        for option, switch in of_switch.items():
            chosen, usual = getattr(self, option), type(self).model_fields[option].default
            if chosen != usual and getattr(self, switch) == "off":
                raise ValueError(f"{option}={chosen} does nothing with {switch}=off; drop one")
        unheard = self.progress_control == "off" and self.relevance == "node" and self.second_turn != "none"
        if self.probe_question != "before" and unheard:
            raise ValueError(
                f"probe_question={self.probe_question} does nothing with progress_control=off; drop one"
            )
        if self.heads not in (ALL, TOP_LAYERS) and self.graph_model != self.search_model:
            raise ValueError(
                f"heads={self.heads} are heads of one model, and graph_model and search_model are two; set "
                f"both to the same model, or heads={TOP_LAYERS}"
            )
        if self.relevance == "question" and self.probe_question == "before":
            raise ValueError(
                "relevance=question is the attention of a question behind the nodes; set "
                "probe_question=around or asked, too"
            )
        from_behind = self.relevance == "question" or self.attention == "off"
        if self.second_turn == "none" and not (self.probe_question == "asked" and from_behind):
            raise ValueError(
                "second_turn=none has no question before the nodes: set probe_question=asked, and "
                "relevance=question or attention=off"
            )
        if self.answer_from == "chunks" and self.second_turn != "paper":
            raise ValueError(
                f"second_turn={self.second_turn} is how the search's own context is asked, and "
                "answer_from=chunks asks another; drop one"
            )
        if self.prompt != DEFAULT_PROMPT and self.second_turn == "paper" and self.answer_from == "nodes":
            raise ValueError(
                f"prompt={self.prompt} repeats the question, second_turn=paper does not: set "
                f"second_turn=restated or answer_from=chunks, or prompt={DEFAULT_PROMPT}"
            )
        if self.n_nodes is not None and self.progress_control == "on":
            raise ValueError(f"n_nodes={self.n_nodes} needs progress_control=off; set that, or drop it")
        return self
