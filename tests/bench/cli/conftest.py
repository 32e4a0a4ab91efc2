from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _loggers_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command logs to the error stream of its test, which is closed afterwards."""
    for logger in map(logging.getLogger, ("bench", "methods")):
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
