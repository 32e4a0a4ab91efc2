"""Options as ``bench list methods NAME`` and docs/methods.md show them."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bench.method.contract import Method, MethodConfig
from bench.method.reference import described, markdown, options

ROOT = Path(__file__).parents[3]


class Config(MethodConfig):
    """One option of each kind."""

    k: int = Field(5, ge=1, description="passages kept (Sec. 3: 5)")
    t: float | None = Field(None, ge=0, le=1, description="threshold; default: the card's")
    mode: Literal["ct", "tt", "none"] = Field("ct", description="a | b")
    encoder: str = Field("", description="encoder; default: --model")
    room: Annotated[int, Field(ge=64)] | Literal["window"] | None = Field(None, description="most tokens")
    rest: dict[str, Any] = Field(default_factory=dict, description="of the ranker")
    needed: str = Field(description="has no default")


class Sample(Method[Config]):
    """A method that is only described."""

    name, version, summary, paper = "sample", "1", "read the best k", "Somebody 2020"
    Config, replayed = Config, frozenset({"k"})

    async def answer(self, index: Any, question: Any, models: Any) -> Any:
        """Never called."""


def test_an_option_has_its_values_default_and_meaning() -> None:
    shown = {option.name: (option.values, option.default, option.replayed) for option in options(Sample)}
    assert shown == {
        "k": ("whole number, 1 or more", "5", True),
        "t": ("number, 0 or more, 1 or less", "", False),
        "mode": ("ct, tt or none", "ct", False),
        "encoder": ("text", "", False),
        "room": ("whole number (64 or more) or window", "", False),
        "rest": ("mapping", "{}", False),
        "needed": ("text", "", False),
    }
    text = described(Sample)
    assert "k  (whole number, 1 or more; default 5; a sweep asks once for all values)" in text
    assert "    passages kept (Sec. 3: 5)" in text and "--set k=5" in text
    assert "`k=5`\\*, `t`, `mode=ct`, `encoder`, `room`, `rest={}`, `needed`." in markdown([Sample])


def test_docs_methods_is_current() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    places = [place.split(":") for place in project["entry-points"]["bench.methods"].values()]
    shipped = [getattr(importlib.import_module(module), name) for module, name in places]
    assert (ROOT / "docs/methods.md").read_text() == markdown(shipped), (
        "run: pip install -e . && bench list methods --markdown > docs/methods.md"
    )
    assert not [(one.name, o.name) for one in shipped for o in options(one) if not o.meaning]
