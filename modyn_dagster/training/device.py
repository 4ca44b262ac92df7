"""Where and in which precision a training runs, through Lightning Fabric."""

from typing import TYPE_CHECKING, Literal

import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def resolve_device(device: Literal["cpu", "cuda", "auto"], *, source: str) -> Literal["cpu", "cuda"]:
    """``auto`` is CUDA where there is one. ``ConfigError`` for ``cuda`` on a machine without."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ConfigError(source, "training.device", device, "this machine has no CUDA device; use cpu or auto")
    return "cuda" if device != "cpu" and available else "cpu"


def fabric_for(spec: TrainingSpec, *, source: str) -> "Fabric":
    """One device, in the spec's precision."""
    # Its import costs a second, most of it torch's compiler that optimizers load too.
    from lightning_fabric import Fabric

    device = resolve_device(spec.device, source=source)
    if spec.precision == "16-mixed" and device == "cpu":
        raise ConfigError(source, "training.precision", spec.precision, "needs a CUDA device; a CPU has bf16-mixed")
    return Fabric(accelerator=device, devices=1, precision=spec.precision)
