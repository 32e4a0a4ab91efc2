"""The harness knows no method: their names stand in docstrings and comments, as citations, nowhere else."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import bench

FOLDER = Path(bench.__file__).parent
METHOD = re.compile(r"pecan|garlic|raptor|memwalker|longllmlingua|\bgor(\b|_)", re.IGNORECASE)

ALLOWED = {("method/prompts.py", '"pecan"')}
"""The reader's usual wording is an option's value, so it is part of every cell's identity."""


def named(source: str) -> Iterator[tuple[int, str]]:
    """Line and token of every name of a method outside of docstrings and comments."""
    lines = {line for first, last in docstrings(ast.parse(source)) for line in range(first, last + 1)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT and token.start[0] not in lines and METHOD.search(token.string):
            yield token.start[0], token.string


def docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of every string that stands as a statement, below a class's field too."""
    for node in ast.walk(tree):
        for below in ast.iter_child_nodes(node):
            value = below.value if isinstance(below, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield below.lineno, below.end_lineno or below.lineno


def test_the_check_sees_names_in_code_and_none_in_docstrings() -> None:
    source = '"""RAPTOR."""\nx = 1  # as PECAN\n"""Of GARLIC."""\ny = f"{x} gor"\ndef run_pecan(): ...\n'
    assert [line for line, _ in named(source)] == [4, 5]


def test_no_method_is_named() -> None:
    mentions = [
        f"{path.relative_to(FOLDER).as_posix()}:{line}: {token}"
        for path in sorted(FOLDER.rglob("*.py"))
        for line, token in named(path.read_text("utf-8"))
        if (path.relative_to(FOLDER).as_posix(), token) not in ALLOWED
    ]
    assert not mentions, "bench/ may not know methods by name:\n" + "\n".join(mentions)


def test_no_method_is_named_in_pages_and_data() -> None:
    for path in FOLDER.rglob("*"):
        if path.suffix in (".js", ".css", ".html", ".yaml"):
            assert not METHOD.search(path.read_text("utf-8")), path
