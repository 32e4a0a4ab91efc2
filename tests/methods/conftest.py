"""What several files here load."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random models: a pair of plain BERTs, as Dragon or Contriever are stored, and a reader."""
    from tests.bench.models.builders import save_causal, save_plain_encoder

    folder = tmp_path_factory.mktemp("weights")
    save_causal(folder / "reader", num_hidden_layers=1)
    save_plain_encoder(folder / "query", seed=1)
    save_plain_encoder(folder / "context", seed=2)
    return folder
