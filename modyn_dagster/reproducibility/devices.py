"""Devices of this machine: the one that a spec means, and computations on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from modyn_dagster.errors import ConfigError

if TYPE_CHECKING:
    import torch

#: cuBLAS repeats its results only with a fixed workspace.
CUBLAS_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
REPEATABLE: Final = ":4096:8"


def resolve_device(device: str, *, source: str, field: str) -> str:
    """Find the device that a spec means: ``cpu``, ``cuda`` or ``cuda:<number>``; ``auto`` is CUDA where there is one.

    Raises ``ConfigError`` for a GPU that this machine does not have; torch is imported only where one is asked for.
    """
    if device == "cpu":
        return device
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind, _, number = device.partition(":")
    if count:
        # cuBLAS reads it once, with its first product in the process: a measurement of drift must not come before it, or the
        # trainings after it would not repeat.
        os.environ.setdefault(CUBLAS_WORKSPACE, REPEATABLE)
    if kind == "auto":
        return "cuda" if count else "cpu"
    if not count:
        raise ConfigError(source, field, device, "this machine has no CUDA device; use cpu or auto")
    if number and int(number) >= count:
        known = ", ".join(f"cuda:{i}" for i in range(count))
        raise ConfigError(source, field, device, f"this machine has {known}; CUDA_VISIBLE_DEVICES may hide others")
    return device


@contextmanager
def current_device(device: "torch.device") -> Iterator[None]:
    """Let a GPU be the one that ``cuda`` means within the block, also to user code; nothing for a CPU."""
    import torch

    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield
