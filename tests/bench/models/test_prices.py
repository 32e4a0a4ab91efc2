from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import ConfigError, DataError
from bench.models.presets import presets
from bench.models.prices import read_prices

CARD = """date: "2026-01-31"
source: a page
prices:
  reader: {input: 2, cached_input: 0.5, output: 8}
"""


def card(folder: Path, text: str = CARD) -> Path:
    path = folder / "prices.yaml"
    path.write_text(text)
    return path


def test_a_card_is_read_from_a_file(tmp_path: Path) -> None:
    price = read_prices(card(tmp_path)).of("reader")
    assert (price.input, price.cached_input, price.output) == (2, 0.5, 8)


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("input: 2", "input: -2", "prices.reader.input.*greater than or equal to 0"),
        ("input: 2", "input: cheap", "prices.reader.input.*number; found 'cheap'"),
        (", output: 8", "", "prices.reader.output: is missing"),
        ("output", "outputs", "Did you mean 'output'"),
        ("cached_input: 0.5", "cached_input: 3", "cached_input 3 is above input 2; without a discount"),
        ("2026-01-31", "2026-13-31", "date"),
        ("source: a page\n", "", "source: is missing"),
    ],
)
def test_a_wrong_price_names_its_line(tmp_path: Path, given: str, instead: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"prices\.yaml:\d+: .*{message}"):
        read_prices(card(tmp_path, CARD.replace(given, instead)))


def test_a_model_that_the_card_does_not_have_says_which_it_has_and_where_to_add_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No price for 'other'.* has: reader.*BENCH_PRICES"):
        read_prices(card(tmp_path)).of("other")
    with pytest.raises(DataError, match="No such file"):
        read_prices(tmp_path / "none.yaml")


def test_the_shipped_card_is_marked_as_an_example_and_names_presets() -> None:
    shipped = read_prices()
    assert "example" in shipped.source and "made-up" in shipped.source
    assert shipped.prices.keys() <= presets().keys()
