"""The batches of an epoch: which samples go into which step, and the tensors of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.device_copy import DeviceCopy, tensor_of
from modyn_dagster.training.memory import aligned, empty_aligned
from modyn_dagster.training.network import Network, Tensors
from modyn_dagster.training.reading import Loaded, Walk
from modyn_dagster.training.survey import Survey
from modyn_dagster.training.targets import targets_of


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's samples, on the device that trains.

    Attributes:
        keys: ``int64[B]``.
        inputs: by name, ``[B, ...]``.
        targets: ``[B]``.
        weights: ``float32[B]``.
        weight: their sum.
    """

    keys: Tensor
    inputs: Tensors
    targets: Tensor
    weights: Tensor
    weight: float


def batches_per_epoch(n: int, spec: TrainingSpec) -> int:
    """Steps of an epoch. A short last batch is dropped if asked for, but never when it is the only one."""
    full, rest = divmod(n, spec.batch_size)
    return full if rest == 0 or (spec.drop_last and full) else full + 1


class Batches:
    """Batches of a surveyed training set, from memory or from its reader: the same either way."""

    def __init__(self, found: Survey, network: Network, n_outputs: int, *, device: torch.device | str = "cpu") -> None:
        self._reading, self._n_outputs = found.reading, n_outputs
        device = torch.device(device)
        pin = device.type == "cuda" and found.reading.data.fast_path.pin is not False
        self._copy = DeviceCopy(device, pin=pin)
        streamed = found.cached is None
        self._prepare = network.preparation(_pinned if pin and streamed else empty_aligned)
        self._cached = None if found.cached is None else self._gather(found.cached)

    def epoch(self, spec: TrainingSpec, *, seed: int, epoch: int) -> Iterator[Batch]:
        """All batches of one epoch, in an order that depends on the number of samples, the spec, seed and epoch alone."""
        made = self._from_memory(spec, seed, epoch) if self._cached is not None else self._read(spec, seed, epoch)
        return self._copy(made)

    def _read(self, spec: TrainingSpec, seed: int, epoch: int) -> Iterator[Batch]:
        walk = Walk(spec.batch_size, spec.shuffle, spec.block_size, seed, epoch, spec.drop_last)
        return self._reading(walk, self._of)

    def _from_memory(self, spec: TrainingSpec, seed: int, epoch: int) -> Iterator[Batch]:
        assert self._cached is not None  # noqa: S101 - for the type checker
        inputs, targets = self._cached
        chosen = self._reading.data.chosen
        order = Order(len(chosen), shuffle=spec.shuffle, block_size=spec.block_size, seed=seed, epoch=epoch)
        for step in range(batches_per_epoch(len(chosen), spec)):
            positions = order.positions(step * spec.batch_size, min(len(chosen), (step + 1) * spec.batch_size))
            keys, weights = chosen.take(positions)
            at = torch.from_numpy(positions)
            yield _batch(keys, weights, {name: tensor[at] for name, tensor in inputs.items()}, targets[at])

    def _of(self, loaded: Loaded) -> Batch:
        inputs, targets = self._arrays(loaded)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return _batch(loaded.keys, loaded.weights, tensors, torch.from_numpy(targets))

    def _arrays(self, loaded: Loaded) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        reading = self._reading
        targets = targets_of(loaded.truth, loaded.keys, reading.kind, self._n_outputs, source=reading.source)
        return self._prepare(loaded.inputs), aligned(targets)

    def _gather(self, chunks: list[Loaded]) -> tuple[Tensors, Tensor]:
        parts = [self._arrays(chunks.pop(0)) for _ in range(len(chunks))]
        names = parts[0][0]
        inputs = {name: torch.cat([torch.from_numpy(inputs[name]) for inputs, _ in parts]) for name in names}
        return inputs, torch.cat([torch.from_numpy(targets) for _, targets in parts])


def _batch(keys: KeyArray, weights: npt.NDArray[np.float32], inputs: Tensors, targets: Tensor) -> Batch:
    # Indexing makes fresh tensors and everything else is aligned like them: same bits, wherever a batch comes from.
    weight = float(np.sum(weights, dtype=np.float64))
    return Batch(tensor_of(keys), inputs, targets, torch.from_numpy(aligned(weights)), weight)


def _pinned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Page-locked memory out of torch's pool, which takes it back once copies from it are done."""
    like = torch.from_numpy(np.empty(0, dtype))
    array: npt.NDArray[Any] = torch.empty(shape, dtype=like.dtype, pin_memory=True).numpy()
    return array
