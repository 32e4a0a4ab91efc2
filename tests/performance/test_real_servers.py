"""The comparison with real servers, without one."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from performance.measuring import REPOSITORY
from performance.real_servers import NEAR, Asked, Compared
from performance.serve import command
from performance.to_gguf import write_gguf

TINY = REPOSITORY / "bench" / "assets" / "tiny"


def compared(**changed: Any) -> Compared:
    row = {"same_texts": 8, "same_flops": 8, "failed": 0, "furthest": 0.0, **changed}
    fixed = {"server": "vllm", "model": "tiny", "method": "bm25", "dataset": "qasper", "questions": 8}
    return Compared(**fixed, **row, f1=50.0, served_f1=50.0, served_s=1.0, local_s=1.0)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "equal"),
        ({"same_flops": 7}, "COSTS"),
        ({"same_texts": 7, "furthest": NEAR / 2}, "near-ties"),
        ({"same_texts": 7, "furthest": 2 * NEAR}, "DIFFERS"),
        ({"failed": 1, "same_texts": 7, "furthest": NEAR / 2}, "FAILED"),
    ],
)
def test_a_tie_is_told_from_a_fault_by_its_margin(changed: dict[str, Any], verdict: str) -> None:
    assert compared(**changed).verdict == verdict


def test_the_margin_is_that_of_the_worst_token_that_a_server_chose() -> None:
    logits = {2: [0.0, 1.0, 0.75], 1: [0.5, 0.0, 0.0], 0: [0.0, 0.0, 3.0]}

    def model(ids: torch.Tensor, use_cache: bool, logits_to_keep: int) -> Any:
        return SimpleNamespace(logits=torch.tensor([[logits[int(id_)] for id_ in ids[0, -logits_to_keep:]]]))

    async def ask(lm: Any, question: Any) -> Any:
        return SimpleNamespace(ids=question.answer)

    asked = Asked()
    for answer, choices in (((1, 0), ()), ((2,), ()), ((0,), (5, 6))):  # the last only reads probabilities
        asyncio.run(asked.around(ask)(None, SimpleNamespace(ids=[0, 2], choices=choices, answer=answer)))
    assert asked.furthest(model) == pytest.approx(0.25)


def test_a_gguf_file_has_the_models_weights_with_turned_pairs_side_by_side(tmp_path: Path) -> None:
    from gguf import GGUFReader

    write_gguf(TINY, tmp_path / "tiny.gguf")
    reader = GGUFReader(tmp_path / "tiny.gguf")
    written = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    with safe_open(TINY / "model.safetensors", framework="np") as own:
        query = own.get_tensor("model.layers.0.self_attn.q_proj.weight").astype(np.float32)
        down = own.get_tensor("model.layers.0.mlp.down_proj.weight").astype(np.float32)
        assert len(written) == len(own.keys())
    np.testing.assert_array_equal(written["blk.0.ffn_down.weight"], down)
    np.testing.assert_array_equal(written["blk.0.attn_q.weight"][[0, 1, 2, 32]], query[[0, 16, 1, 32]])
    assert "output.weight" not in written


def test_servers_listen_on_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").touch()
    for kind in ("vllm", "llamacpp"):
        line = command(kind, TINY, "tiny", 1234, tmp_path)
        assert line[line.index("--host") + 1] == "127.0.0.1"


def test_a_build_has_a_bounded_number_of_jobs_whatever_make_is_asked_for() -> None:
    make = REPOSITORY / "performance" / "servers" / "bounded" / "gmake"
    environment = {**os.environ, "REAL_MAKE": "/bin/echo", "JOBS": "3"}
    done = subprocess.run(
        [make, "-j", "--jobs=9", "-j", "8", "a target"], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "-j3 a target\n"
