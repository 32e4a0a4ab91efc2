from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from bench.errors import ConfigError
from bench.method.contract import MethodConfig
from bench.method.options import build_config, parse_assignments, parse_method


class Config(MethodConfig):
    k: int = Field(5, ge=1, description="passages kept")
    order: Literal["rank", "document"] = "rank"
    name: str = ""
    room: Annotated[int, Field(ge=64)] | Literal["window"] = "window"


def test_values_are_json_or_text() -> None:
    pairs = ["k=7", "order=document", "name=a=b", "x=true", "y=0.5"]
    assert parse_assignments(pairs) == {"k": 7, "order": "document", "name": "a=b", "x": True, "y": 0.5}


def test_an_option_may_have_commas() -> None:
    assert parse_method('rerank:ranker_options={"k1":1.2,"b":0.5},n =3') == (
        "rerank",
        {"ranker_options": {"k1": 1.2, "b": 0.5}, "n": 3},
    )


@pytest.mark.parametrize(
    ("pairs", "message"),
    [(["k"], "expected key=value"), (["=3"], "expected key=value"), (["k=1", "k=2"], "k is given twice")],
)
def test_bad_assignments(pairs: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_assignments(pairs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kk": 3}, r"no option 'kk'\. Did you mean 'k'\? Its options: k, name, order"),
        ({"k": 0}, r"k=0: Input should be greater than or equal to 1\. \(k: passages kept\)"),
        ({"k": "many"}, r"k='many': Input should be a valid integer"),
        ({"room": 3}, r"'m': room=3: Input should be greater than or equal to 64, or Input should be 'w"),
        ({"order": "best"}, r"order='best': Input should be 'rank' or 'document'"),
    ],
)
def test_an_option_that_does_not_fit_says_what_does(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(Config, values, "m")
