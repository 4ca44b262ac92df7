"""Where torch computes drift."""

from typing import Literal

from modyn_dagster.errors import ConfigError


def resolve_device(device: Literal["cpu", "cuda", "auto"]) -> Literal["cpu", "cuda"]:
    """``auto`` is CUDA where there is one. ``ConfigError`` for ``cuda`` on a machine without."""
    if device == "cpu":
        return "cpu"
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ConfigError("drift trigger", "features.device", device, "this machine has no CUDA device; use cpu or auto")
    return "cuda" if available else "cpu"
