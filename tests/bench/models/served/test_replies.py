"""What a real vLLM and a real llama-server said is read as what this process gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from performance.recording import CELLS, MODEL, REPLIES, cell_request
from tests.bench.models.served.test_parity import answered, same
from tests.servers import replaying_app, serving

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("kind", ["llamacpp", "vllm"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell[0]))
def test_the_replies_of_a_real_server_give_the_answer_of_this_process(
    kind: str, cell: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    """Every request that we make today is one that the server was asked, word for word."""
    replies = json.loads((REPLIES / f"{kind}.json").read_text())
    with serving(replaying_app(replies)) as url:
        (there,) = answered(tmp_path / "there", cell_request(*cell, f"server:{url}#{MODEL}"))
    (here,) = answered(tmp_path / "here", cell_request(*cell, MODEL))
    same(here, there)
