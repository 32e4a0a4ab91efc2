"""Whose attention counts: all heads (PECAN, Sec. 3.1), those of the upper layers, or a list of heads."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from bench.method import ConfigError, Heads, LanguageModel

ALL = "all"
TOP_LAYERS = "top_layers"


def read_heads(option: object) -> object:
    """The option ``heads`` in its one spelling: heads that are listed, each once, in ascending order.

    Raises ValueError for a text that is neither a word of the option nor a list.
    """
    if isinstance(option, float):
        raise ValueError("one head alone reads as a number; quote it: --set 'heads=\"3.1\"'")
    return str(Heads.parse(option)) if isinstance(option, str) and option not in (ALL, TOP_LAYERS) else option


HeadsOption = Annotated[str, BeforeValidator(read_heads)]
"""The type of an option ``heads``."""


def heads_of(option: str, lm: LanguageModel) -> Heads | None:
    """The heads of a model that the option names; None: all.

    Raises ConfigError for a model that does not have them.
    """
    if option == ALL:
        return None
    layers, heads = lm.architecture.layers, lm.architecture.heads
    if option == TOP_LAYERS:
        return Heads.of_layers(range(layers - -(-layers // 3), layers), heads)
    chosen = Heads.parse(option)
    if not chosen.fit(layers, heads):
        raise ConfigError(
            f"heads={chosen}: {lm.name} has {layers} layers of {heads} attention heads, 0.0 to "
            f"{layers - 1}.{heads - 1}. List some of these, or set heads={TOP_LAYERS}.",
        )
    return chosen
