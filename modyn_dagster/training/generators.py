"""Where the generators of the process stand: whatever a model, a loss or an optimizer draws goes on from there."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def generator_states(device: torch.device) -> dict[str, Any]:
    """Of Python, NumPy, torch, and of the device that trains."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, keys, int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    return found | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_generator_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Go on from there."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
