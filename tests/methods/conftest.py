"""What several files here load."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of plain BERTs with random weights, as a hub repository of Dragon or Contriever holds them."""
    from tests.bench.models.builders import save_plain_encoder

    folder = tmp_path_factory.mktemp("encoders")
    save_plain_encoder(folder / "query", seed=1)
    save_plain_encoder(folder / "context", seed=2)
    return folder
