"""On which devices the layers of a model lie: one, or several that a device map spreads them over."""

from __future__ import annotations

from typing import Any


def layer_devices(model: Any, layers: int) -> list[Any]:
    """The device of each layer's attention; without a map all are ``model.device``."""
    found: dict[int, Any] = {}
    for module in model.modules():
        at, weight = getattr(module, "layer_idx", None), next(module.parameters(), None)
        if isinstance(at, int) and weight is not None:
            found.setdefault(at, weight.device)
    return [found.get(at, model.device) for at in range(layers)]


def index_device(model: Any) -> Any:
    """Where indexes into a model's last states lie: with it; on the CPU, which suits all, if it is spread."""
    return "cpu" if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1 else model.device
