"""The devices of a model's layers: one, or several under a device map."""

from __future__ import annotations

from typing import Any


def layer_devices(model: Any, layers: int) -> list[Any]:
    """The device of each layer's attention; without a map all are ``model.device``."""
    devices: dict[int, Any] = {}
    for module in model.modules():
        at, weight = getattr(module, "layer_idx", None), next(module.parameters(), None)
        if isinstance(at, int) and weight is not None:
            devices.setdefault(at, weight.device)
    return [devices.get(at, model.device) for at in range(layers)]


def index_device(model: Any) -> Any:
    """Device for indexes into a model's last states: its own; the CPU if a map spreads the model."""
    return "cpu" if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1 else model.device
