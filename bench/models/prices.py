"""What a model's tokens cost in dollars: a price card, in YAML (``prices.yaml`` is an example)."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.errors import ConfigError
from bench.files.yaml import read_yaml

Dollars = Annotated[float, Field(ge=0, strict=True)]


class Price(BaseModel):
    """Dollars per million tokens of one model."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    input: Dollars
    cached_input: Dollars
    """Of input tokens whose keys and values are kept from an earlier call."""
    output: Dollars
    """Of generated tokens."""

    @model_validator(mode="after")
    def _cached_input_is_not_dearer(self) -> Price:
        if self.cached_input > self.input:
            raise ValueError(
                f"cached_input {self.cached_input:g} is above input {self.input:g}; without a discount "
                "give both the same price"
            )
        return self


class PriceCard(BaseModel):
    """The prices of some models, by the names under which their FLOPs are credited."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    date: datetime.date
    """Of the prices, ISO 8601, in quotes."""
    source: str = Field(min_length=1)
    """Where the prices stand, as tables print it."""
    prices: dict[str, Price]

    def of(self, model: str) -> Price:
        """The model's price; raises ConfigError if the card does not have it."""
        if model not in self.prices:
            raise ConfigError(
                f"No price for {model!r}; the card of {self.source}, {self.date}, has: "
                f"{', '.join(sorted(self.prices)) or 'none'}. Give a card with this name (prices of 0 for a "
                "model that costs nothing): BENCH_PRICES=FILE, in the format of bench/models/prices.yaml."
            )
        return self.prices[model]


def read_prices(path: Path | None = None) -> PriceCard:
    """The card in a YAML file, by default the shipped example.

    Raises DataError naming file:line for a price that is missing, negative or no number.
    """
    return read_yaml(path or Path(__file__).with_suffix(".yaml"), PriceCard, "price card")
