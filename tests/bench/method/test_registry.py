from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from bench.method import registry
from bench.method.registry import BrokenPluginError, load_method, registered_methods
from tests.stand_ins import Echo


class OddConfig(Echo):
    Config = dict  # type: ignore[assignment]


def install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.GROUP)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_package:X", "cannot be imported: ModuleNotFoundError"),
        ("bench.errors:BenchError", "expected a subclass of bench.method.contract.Method"),
        ("methods.retrievers.bm25:Bm25", "calls itself 'bm25'"),
        ("bench.method.contract:Method", "does not define name, version, summary, paper, Config, answer:"),
        ("tests.bench.method.test_registry:OddConfig", "does not define Config:"),
    ],
)
def test_a_broken_plugin_is_named(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    install(monkeypatch, point("mine", value))
    with pytest.raises(BrokenPluginError, match=message):
        load_method("mine")


def test_two_packages_with_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, point("mine", "a:X"), point("mine", "b:X"))
    with pytest.raises(BrokenPluginError, match="Two packages register a method 'mine'"):
        registered_methods()


def test_listing_and_help_import_no_torch() -> None:
    code = """
import sys
from bench.cli.main import main
for arguments in (["--help"], ["list", "methods"], ["list", "models"], ["model", "flops", "--help"]):
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, (arguments, ended.code)
    heavy = {"torch", "transformers", "mlflow", "datasets", "pandas", "sklearn"} & set(sys.modules)
    assert not heavy, (arguments, heavy)
"""
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
