"""Where and in which precision a training runs, through Lightning Fabric."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
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
    with _unloaded("torchmetrics"):
        from lightning_fabric import Fabric

    device = resolve_device(spec.device, source=source)
    if spec.precision == "16-mixed" and device == "cpu":
        raise ConfigError(source, "training.precision", spec.precision, "needs a CUDA device; a CPU has bf16-mixed")
    return Fabric(accelerator=device, devices=1, precision=spec.precision)


@contextmanager
def _unloaded(package: str) -> Iterator[None]:
    """Show whoever imports a package meanwhile its version alone.

    Lightning Fabric imports torchmetrics to look at its version, and torchmetrics imports transformers where that is
    installed: seconds and 200 MB in every process that trains, for nothing.
    """
    if package in sys.modules or "lightning_fabric" in sys.modules:
        yield
        return
    module = ModuleType(package)
    vars(module)["__version__"] = version(package)
    sys.modules[package] = module
    try:
        yield
    finally:
        del sys.modules[package]
