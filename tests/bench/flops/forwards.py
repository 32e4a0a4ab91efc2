from __future__ import annotations

from bench.flops.architecture import Architecture
from bench.flops.formulas import Convention, flops_of_usage, forward_usage


def forward_flops(
    architecture: Architecture,
    new_tokens: int,
    cached: int = 0,
    *,
    convention: Convention = "paper",
    logit_rows: int | None = None,
) -> int:
    usage = forward_usage(architecture, new_tokens, cached)
    usage.logit_rows = usage.logit_rows if logit_rows is None else logit_rows
    return flops_of_usage(architecture, usage, convention)
