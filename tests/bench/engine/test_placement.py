"""A model whose layers lie on several devices: the answers, logits and attention of one device.

No second device is at hand in a test, so tensors claim one: they compute on the CPU, and refuse to be mixed
with tensors that claim another, as tensors on two GPUs do.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from bench.engine.engine import Engine
from bench.engine.heads import Heads
from bench.engine.scheduler import Request, RequestResult
from bench.engine.setup import build_engine
from bench.engine.traits import Traits
from performance.drawn import SMALL, model

FIRST, SECOND = (torch.device("meta", at) for at in (0, 1))
REAL_TENSOR = torch.tensor
LAST = Heads(((3, 1),))
"""Of the second device alone."""
MOVING = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Claimed(torch.Tensor):
    """A tensor of the CPU that says it lies elsewhere."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> Claimed:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=device
        )
        tensor.inner = inner
        return tensor

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __getitem__(self, key: Any) -> torch.Tensor:
        parts = key if isinstance(key, tuple) else (key,)
        # Lists would become tensors without data on the device that is claimed.
        key = tuple(REAL_TENSOR(part) if isinstance(part, list) else part for part in parts)
        return super().__getitem__(key)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _run(function, arguments, options or {})


class Devices(TorchDispatchMode):
    """Lets tensors be made on the devices that are claimed."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _run(function, arguments, options or {})


def _tensor(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
    """``torch.tensor``, which asks no mode."""
    made = REAL_TENSOR(data, **options)
    elsewhere = device is not None and torch.device(device).type != "cpu"
    return Claimed(made, torch.device(device)) if elsewhere else made


def _run(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    leaves, _ = tree_flatten((arguments, options))
    claimed = [one for one in leaves if isinstance(one, Claimed)]
    devices = {one.device for one in claimed}
    plain = [one for one in leaves if isinstance(one, torch.Tensor) and not isinstance(one, Claimed)]
    if function not in MOVING:
        if len(devices) > 1 or (devices and any(one.dim() and one.is_floating_point() for one in plain)):
            raise RuntimeError(f"{function}: all tensors must lie on one device, found {devices}")
    device = options.get("device")
    if function is torch.ops.aten.copy_.default:
        devices = {arguments[0].device}
    target = device if device is not None else (next(iter(devices)) if devices else torch.device("cpu"))
    bare = tree_map(lambda one: one.inner if isinstance(one, Claimed) else one, (arguments, options))
    if device is not None:
        bare[1]["device"] = torch.device("cpu")
    output = function(*bare[0], **bare[1])
    known = {id(one.inner): one for one in claimed}

    def wrapped(one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or target.type == "cpu":
            return one
        same = known.get(id(one))
        return Claimed(one, target) if same is None else same

    return tree_map(wrapped, output)


def spread(network: Any) -> Any:
    """The model with its first layers on one claimed device and the rest on another, as accelerate has it."""
    layers = network.model.layers
    places = {"model.embed_tokens": FIRST, "model.rotary_emb": FIRST, "model.norm": SECOND, "lm_head": SECOND}
    places |= {f"model.layers.{at}": FIRST if at < len(layers) // 2 else SECOND for at in range(len(layers))}
    for name, device in places.items():
        module = network.get_submodule(name)
        for part in module.modules():
            for kind in (part._parameters, part._buffers):
                for key, value in kind.items():
                    if value is None:
                        continue
                    moved: Any = Claimed(value.detach(), device)
                    kind[key] = (
                        torch.nn.Parameter(moved, requires_grad=False) if kind is part._parameters else moved
                    )
        module.register_forward_pre_hook(_mover(device), with_kwargs=True)
    network.hf_device_map = places
    return network


def _mover(device: torch.device) -> Any:
    def move(module: Any, arguments: Any, options: Any) -> Any:
        def moved(one: Any) -> Any:
            return one.to(device) if isinstance(one, torch.Tensor) and one.device != device else one

        return tree_map(moved, (arguments, options))

    return move


def requests(engine: Engine) -> list[RequestResult]:
    """Four conversations of different lengths, read, probed, watched and answered together."""

    async def one(length: int, heads: Heads | None = None) -> RequestResult:
        slot = await engine.reserve(300)
        text = [(7 * at + length) % 90 for at in range(length)]
        watched: Any = {"watched": [(0, 5), (5, length)], "watch_from": length - 3, "heads": heads}
        return await engine.run(Request(slot, text, decode=6, limit=300, choices=(3, 8), **watched))

    async def all_of_them() -> list[RequestResult]:
        return await asyncio.gather(one(9), one(40), one(1 + 20), one(30, LAST))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("together", [False, True])
def test_layers_on_two_devices_give_what_one_gives(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    expected = requests(build_engine("small", model(SMALL), max_context=512))
    monkeypatch.setattr("torch.inference_mode", torch.no_grad)
    monkeypatch.setattr("torch.tensor", _tensor)
    with Devices():
        engine = build_engine("small", spread(model(SMALL)), max_context=512)
        engine.runner.traits = Traits(together=together)
        assert {keys.device for keys in engine.runner.kv_cache.keys} == {FIRST, SECOND}
        results = requests(engine)
    for mine, theirs in zip(results, expected, strict=True):
        assert (mine.answer, mine.finish) == (theirs.answer, theirs.finish)
        np.testing.assert_allclose(mine.logits, theirs.logits, atol=1e-5)
        assert mine.attention.shape == theirs.attention.shape and len(mine.attention) > 3
        np.testing.assert_allclose(mine.attention, theirs.attention, atol=1e-6)
