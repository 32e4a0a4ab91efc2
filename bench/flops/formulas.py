"""FLOPs of a forward pass: closed forms of (new tokens, cached tokens) derived from a model's config.

One multiply-add is two FLOPs. Two conventions:

``paper``
    ``2*N*n + 4*L*n*(m+n)*d`` for n new tokens on m cached ones. N counts *all* parameters, the input
    embedding included, but of a mixture of experts only those that a token meets; attention is the full
    rectangle, not halved for causality; d is the width of attention (heads x head size: the hidden size of
    every model in the papers). This is the formula that the cost columns of PECAN and GARLIC fit (full
    context: 2*N*n + 4*L*n^2*d with N = 8.03e9).

``matmul``
    The count of a matrix-product counter in eager attention (``torch.utils.flop_counter``, fvcore x 2):
    every weight matrix that a token is multiplied by, QK^T and PV over the full n x (m+n) rectangle, and the
    output head only for the positions whose logits are computed. No embedding look-up, norm, softmax,
    activation or rotary product. For an encoder the "head" is its pooler, one row per text.

Both are linear in three sums over forwards (Σn, Σn·(m+n), Σ logit rows), which is what
:class:`bench.flops.meter.Usage` keeps; so a ledger can be read in either convention afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from bench.flops.architecture import Architecture
from bench.flops.meter import Usage

Convention = Literal["paper", "matmul"]
CONVENTION_NOTES: Mapping[Convention, str] = {
    "paper": "FLOPs = 2*N*n + 4*L*n*(m+n)*d, all parameters, attention not halved; multiply-add = 2",
    "matmul": "FLOPs of matrix products only, logits where computed, attention not halved; multiply-add = 2",
}
"""One line per convention, for table captions."""


def flops_terms(architecture: Architecture, usage: Usage, convention: Convention) -> dict[str, int]:
    """The summands of :func:`flops_of_usage` by name.

    ``paper``: ``parameters`` and ``attention``; ``matmul``: ``weights``, ``attention`` and ``head``.
    """
    attention = 2 * architecture.attended_elements * usage.attended
    if convention == "paper":
        met = architecture.active_parameters + architecture.state
        return {"parameters": 2 * met * usage.new_tokens, "attention": attention}
    return {
        "weights": 2 * (architecture.layer_weights + architecture.state) * usage.new_tokens,
        "attention": attention,
        "head": 2 * architecture.head_weights * usage.logit_rows,
    }


def flops_of_usage(architecture: Architecture, usage: Usage, convention: Convention) -> int:
    """FLOPs of a ledger entry in a convention, from its sums (``usage.flops`` itself is not read)."""
    return sum(flops_terms(architecture, usage, convention).values())


def priced(architecture: Architecture, usage: Usage) -> Usage:
    """The same usage with ``flops`` filled in (convention ``paper``), ready to be credited to a meter."""
    usage.flops = flops_of_usage(architecture, usage, "paper")
    return usage


def forward_usage(architecture: Architecture, new_tokens: int, cached: int = 0) -> Usage:
    """Usage of one forward of ``new_tokens`` on ``cached`` ones that computes the last one's logits."""
    pairs, rows = new_tokens * (cached + new_tokens), min(1, new_tokens)
    usage = Usage(calls=1, new_tokens=new_tokens, attended=pairs, logit_rows=rows, cached=cached)
    return priced(architecture, usage)


def texts_usage(architecture: Architecture, lengths: Iterable[int]) -> Usage:
    """Usage of encoding texts of these lengths in tokens, special tokens included, padding not.

    Padding is an artefact of batching: it would make a text's cost depend on its neighbours.
    """
    usage = Usage()
    for n in lengths:
        usage.add(Usage(calls=1, new_tokens=n, attended=n * n, logit_rows=1))
    return priced(architecture, usage)
