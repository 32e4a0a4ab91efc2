"""FLOPs of one forward of a real model by two counters, to check the closed form.

Both count only matrix products, which is convention ``matmul`` of :mod:`bench.flops.formulas`; with eager
attention they see every product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.errors import ConfigError, ModelUnavailableError
from bench.models.spec import ModelSpec

_PRODUCTS = ("linear", "matmul", "bmm", "addmm", "einsum")
"""Matrix products as fvcore names them."""


@dataclass(frozen=True)
class CountedFlops:
    """FLOPs of one forward; a multiply-add is two."""

    torch: int
    """By ``torch.utils.flop_counter``."""
    fvcore: int
    """By ``fvcore.nn.FlopCountAnalysis``, doubled: it counts multiply-adds."""


def require_local(spec: ModelSpec) -> None:
    """Raise ModelUnavailableError unless the model's files are on this machine; nothing is downloaded."""
    if spec.source.here() is None:
        raise ModelUnavailableError(
            f"{spec.name} is not on this machine, so no forward of it can be counted. "
            f"Run: bench model fetch {spec.name}  (the closed form needs no weights: leave out --measure)"
        )


def count_forward(model: Any, new_tokens: int, cached: int, logit_rows: int) -> CountedFlops:
    """Both counts of one forward of ``new_tokens`` on ``cached`` ones.

    model: a causal ``PreTrainedModel`` with eager attention. Raises ConfigError for fewer than one new token
    or logit row.
    """
    import torch
    from fvcore.nn import FlopCountAnalysis
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    from bench.models.loader import architecture_of

    if new_tokens < 1 or not 1 <= logit_rows <= new_tokens:
        raise ConfigError(
            f"{new_tokens} new tokens with {logit_rows} logit rows cannot be measured: at least one of each, "
            "and no more rows than tokens."
        )
    if architecture_of(model).idle_parameters:
        model.set_experts_implementation("eager")  # plain products, which both counters see
    ids = torch.zeros((1, new_tokens), dtype=torch.long, device=model.device)

    class Forward(torch.nn.Module):
        """Token ids in, logits out, as fvcore's tracer requires."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.layers: list[tuple[Any, Any]] = []
            if cached:
                cache: Any = DynamicCache()
                before = torch.zeros((1, cached), dtype=torch.long, device=model.device)
                model(before, past_key_values=cache, use_cache=True, logits_to_keep=1)
                self.layers = [(layer.keys, layer.values) for layer in cache.layers]

        def forward(self, ids: torch.Tensor) -> Any:
            cache = DynamicCache()
            for at, (keys, values) in enumerate(self.layers):
                cache.update(keys, values, at)
            return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=logit_rows).logits

    with torch.no_grad():
        forward = Forward()
        with FlopCounterMode(display=False) as counter:
            forward(ids)
        analysis = FlopCountAnalysis(forward, ids)
        by_operator = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_operator()
    products = sum(int(by_operator[name]) for name in _PRODUCTS)
    return CountedFlops(counter.get_total_flops(), 2 * products)
