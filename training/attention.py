"""Causal attention for training, on AMX tiles where the CPU has them.

PyTorch's fused attention takes about half of a training step in bfloat16, most of it in the backward pass;
``attention_amx.cpp`` is several times faster. It is compiled once with the system's C++ compiler; without
compiler or AMX, PyTorch's is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

log = logging.getLogger(__name__)
SOURCE = Path(__file__).with_name("attention_amx.cpp")
BUILD = Path.home() / ".cache" / "longdoc-bench"
BLOCK = 32
PLAIN_UP_TO = 256
"""Without the compiled kernel, scores are written out up to this length: there it is faster than the fused
one."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, amx: bool = False) -> Tensor:
    """Causal attention over (batch, heads, length, head_dim); ``amx`` is what ``amx_serves`` said.

    On CUDA, PyTorch's fused attention at every length.
    """
    length = q.shape[2]
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if amx and length % BLOCK == 0:
        return _amx_attention(q, k, v)[0]  # type: ignore[no-any-return]
    if length > PLAIN_UP_TO:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    ahead = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(ahead, float("-inf")), -1).to(v.dtype) @ v


def amx_serves(dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the compiled kernel can serve a model of this precision and head size here."""
    return dtype == torch.bfloat16 and head_dim == BLOCK and compiled_kernel() is not None


@cache
def compiled_kernel() -> ctypes.CDLL | None:
    """The C functions, compiled if need be; None where there is no AMX or no compiler."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").is_file() else ""
    compiler = shutil.which("g++")
    if "amx_bf16" not in flags or "avx512_bf16" not in flags or not compiler:
        return None
    library = BUILD / f"attention-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not library.is_file() and not _compile(compiler, library):
        return None
    kernel = ctypes.CDLL(str(library))
    for function, pointers in ((kernel.attention_forward, 5), (kernel.attention_backward, 9)):
        function.argtypes = [ctypes.c_void_p] * pointers + [
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_float,
            ctypes.c_int,
        ]
        function.restype = ctypes.c_int
    return kernel


def _compile(compiler: str, library: Path) -> bool:
    """Compiles the kernel to ``library``; several processes may do so at once, each with its own draft."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=library.parent, prefix=".attention-") as folder:
        draft = Path(folder) / library.name
        command = [compiler, "-O3", "-march=sapphirerapids", "-shared", "-fPIC", "-std=c++17", "-pthread"]
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(draft)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            log.warning("no AMX attention, %s failed: %s", compiler, done.stderr[-500:])
            return False
        draft.replace(library)
    return True


def _run(function: str, q: Tensor, tensors: list[Tensor]) -> None:
    batch, heads, length, size = q.shape
    kernel = compiled_kernel()
    call = getattr(kernel, function)
    if call(*(x.data_ptr() for x in tensors), batch * heads, length, size**-0.5, torch.get_num_threads()):
        raise RuntimeError("this system does not let the process use AMX; train with --precision float32")


@torch.library.custom_op("longdoc_bench::attention", mutates_args=())
def _amx_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty(q.shape, dtype=q.dtype)
    lse = torch.empty(q.shape[:3], dtype=torch.float32)
    _run("attention_forward", q, [q.contiguous(), k.contiguous(), v.contiguous(), out, lse])
    return out, lse


@_amx_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty(q.shape, dtype=q.dtype), torch.empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("longdoc_bench::attention_backward", mutates_args=())
def _amx_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v))
    _run("attention_backward", q, [*(x.contiguous() for x in (q, k, v, out, grad, lse)), dq, dk, dv])
    return dq, dk, dv


@_amx_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.empty(q.shape, dtype=q.dtype),
        torch.empty(k.shape, dtype=k.dtype),
        torch.empty(v.shape, dtype=v.dtype),
    )


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, out, lse = ctx.saved_tensors
    return _amx_backward(q, k, v, out, lse, grad)  # type: ignore[no-any-return]


_amx_attention.register_autograd(_backward, setup_context=_keep)
