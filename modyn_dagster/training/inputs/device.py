"""Device and precision of a training, and copies of batches to the device, one batch ahead of the computation."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import collector_at_rest
from modyn_dagster.reproducibility.devices import resolve_device
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.telemetry import Stopwatch

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@cache
def fabric_class() -> "type[Fabric]":
    """Import Lightning Fabric, without what it does not need."""
    # It takes a second, most of it for torch's compiler, which optimizers load too.
    with collector_at_rest(), _unloaded("torchmetrics"):
        from lightning_fabric import Fabric

    class FabricWithoutPlugins(Fabric):
        """Fabric without callbacks of installed packages: they would change what is trained, and to look for them takes 50 ms."""

        @staticmethod
        def _configure_callbacks(_: object) -> list[Any]:
            return []

    return FabricWithoutPlugins


def fabric_for(spec: TrainingSpec, *, source: str) -> "Fabric":
    """Build Lightning Fabric for one device in the spec's precision."""
    fabric = fabric_class()
    kind, _, number = resolve_device(spec.device, source=source, field="training.device").partition(":")
    if spec.precision == "16-mixed" and kind == "cpu":
        raise ConfigError(source, "training.precision", spec.precision, "needs a CUDA device; a CPU has bf16-mixed")
    # A list names devices, a number counts them.
    return fabric(accelerator=kind, devices=[int(number)] if number else 1, precision=spec.precision)


@contextmanager
def _unloaded(package: str) -> Iterator[None]:
    """Replace a package by a stub with its version within the block.

    Lightning Fabric imports torchmetrics for its version, and torchmetrics imports transformers where that is
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


T = TypeVar("T")


#: Dtypes that torch takes unchanged; membership is faster than inspection of a dtype.
_COMMON: Final = frozenset(map(np.dtype, ("bool", "uint8", "int32", "int64", "float32", "float64")))


def tensor_of(array: npt.NDArray[Any]) -> Tensor:
    """View an array as a tensor: keys as int64, times as int64 microseconds since 1970. Other byte orders are copied."""
    writeable = array.flags.writeable
    if writeable and array.dtype in _COMMON:
        return torch.from_numpy(array)
    if not writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == np.uint64 or array.dtype.kind in "mM":
        array = array.view(np.int64)
    return torch.from_numpy(array)


def pinned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate page-locked memory from torch's pool, which takes it back after the copies from it."""
    like = torch.from_numpy(np.empty(0, dtype))
    array: npt.NDArray[Any] = torch.empty(shape, dtype=like.dtype, pin_memory=True).numpy()
    return array


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to the arrays and tensors inside mappings, tuples, lists and dataclasses; other values stay."""
    if isinstance(batch, (np.ndarray, Tensor)):
        return change(batch)
    if isinstance(batch, dict):
        return {name: mapped(part, change) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(part, change) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(mapped(part, change) for part in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        return type(batch)(**{field.name: mapped(getattr(batch, field.name), change) for field in fields(batch)})
    return batch


@dataclass(slots=True)
class _Copy(Generic[T]):
    """Copy in progress. ``held`` keeps the host's memory until ``done``."""

    batch: T
    held: list[Tensor]
    done: "torch.cuda.Event"


class DeviceCopy:
    """Copies of batches to ``device``. A CPU shares the arrays' memory. ``watch`` times the host."""

    def __init__(self, device: torch.device, *, pin: bool, watch: Stopwatch | None = None) -> None:
        self._device, self._pin, self._watch = device, pin, watch
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch has no type for it

    def __call__(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches in order; on CUDA the next one is copied during the computation."""
        if self._stream is None:
            for batch in batches:
                self._lap("data")
                tensors = mapped(batch, as_tensor)
                self._lap("to_device")
                yield tensors
            return
        begun: list[_Copy[T]] = []
        ahead: _Copy[T] | None = None
        try:
            for batch in batches:
                self._lap("data")
                following = self._begin(batch)
                self._lap("to_device")
                begun.append(following)
                if ahead is not None:
                    yield self._arrived(ahead)
                begun = [copy for copy in begun if not copy.done.query()]  # type: ignore[no-untyped-call]  # torch has no type for it
                ahead = following
            if ahead is not None:
                yield self._arrived(ahead)
        finally:
            # Also after an early stop: the host's memory is reused afterwards.
            for copy in begun:
                copy.done.synchronize()

    def _lap(self, stage: str) -> None:
        if self._watch is not None:
            self._watch.lap(stage)

    def _begin(self, batch: T) -> _Copy[T]:
        held: list[Tensor] = []

        def copied(part: npt.NDArray[Any] | Tensor) -> Tensor:
            host = as_tensor(part)
            if self._pin and host.device.type == "cpu" and not host.is_pinned():
                host = host.pin_memory()
            held.append(host)
            return host.to(self._device, non_blocking=True)

        with torch.cuda.stream(self._stream):
            moved = mapped(batch, copied)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no type for it
            done.record(self._stream)
        return _Copy(moved, held, done)

    def _arrived(self, copy: _Copy[T]) -> T:
        """Hand a batch to the computing stream; its memory is not reused while that stream works on it."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(copy.done)

        def used(tensor: Tensor) -> Tensor:
            tensor.record_stream(computing)
            return tensor

        arrived: T = mapped(copy.batch, used)
        return arrived


def as_tensor(part: npt.NDArray[Any] | Tensor) -> Tensor:
    """Return a tensor unchanged, an array as a tensor."""
    return part if isinstance(part, Tensor) else tensor_of(part)
