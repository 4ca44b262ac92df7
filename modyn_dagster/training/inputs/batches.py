"""Batches of an epoch: the samples of every step as tensors on the device."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order, TrainingSet
from fastpath.order import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.parallel_map import map_ahead
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.inputs.batch import Batch, Subset, scaled_to_pool
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics
from modyn_dagster.training.inputs.device import DeviceCopy, pinned_empty, tensor_of
from modyn_dagster.training.inputs.in_memory import InMemory, Positions
from modyn_dagster.training.inputs.reading import EpochOrder, LoadedBatch
from modyn_dagster.training.memory import aligned, empty_aligned
from modyn_dagster.training.models.network import Network, Tensors
from modyn_dagster.training.objectives.objective import Objective
from modyn_dagster.training.objectives.posing import Posing
from modyn_dagster.training.telemetry import Stopwatch
from modyn_dagster.training.transforms.chain import Pass
from modyn_dagster.training.transforms.labels import targets_of


def batch_sizes(n: int, spec: TrainingSpec) -> list[int]:
    """Sizes of the batches of an epoch on ``n`` samples."""
    batching = Batching(n, spec.batch_size, spec.drop_last)
    bounds = (batching.bounds(number) for number in range(len(batching)))
    return [stop - start for start, stop in bounds]


def in_order(spec: TrainingSpec) -> TrainingSpec:
    """Copy a spec with epochs that visit every sample in the order of its set."""
    return spec.model_copy(update={"shuffle": False, "drop_last": False})


class Sharing(Protocol):
    """Ranks that share every batch."""

    @property
    def part(self) -> tuple[int, int]:
        """Index of this rank and number of ranks, for ``Batching``."""

    def complete(self, batch: Batch, n: int) -> Batch:
        """Complete a share of a batch of ``n`` samples by what it must know of the samples of other ranks."""


class Batches:
    """Batches of a training set, from memory or from its reader with the same result.

    With ``sharing``, a batch has the share of one rank, and knows keys, targets and weights of the others. With an
    ``objective``, the targets are its own.
    """

    def __init__(
        self,
        statistics: DatasetStatistics,
        network: Network,
        n_outputs: int,
        *,
        device: torch.device | str = "cpu",
        watch: Stopwatch | None = None,
        sharing: Sharing | None = None,
        objective: Objective | None = None,
    ) -> None:
        self._reading, self._n_outputs, self._sharing, self._objective = statistics.reading, n_outputs, sharing, objective
        device = torch.device(device)
        pin = device.type == "cuda" and statistics.reading.data.fast_path.pin is not False
        self._copy = None if device.type == "cpu" else DeviceCopy(device, pin=pin, watch=watch)
        streamed = statistics.cached is None
        self._prepare = network.preparation(pinned_empty if pin and streamed else empty_aligned)
        self._cached = None if statistics.cached is None else self._gather(statistics.cached)

    def epoch(
        self,
        spec: TrainingSpec,
        *,
        seed: int,
        epoch: int,
        subset: Subset | None = None,
        start: int = 0,
        evaluate: bool = False,
    ) -> Iterator[Batch]:
        """Yield the batches of one epoch, in an order that depends on the number of samples, the spec, seed and epoch alone.

        ``start`` is the number of the first batch, for a resumed epoch. ``evaluate`` applies the transforms of evaluation.
        """
        fast_path = self._reading.data.fast_path
        prefetched, inline = self._changes(seed, epoch, evaluate=evaluate)
        if self._cached is None:
            batches = self._read(spec, seed, epoch, subset, start, prefetched)
        else:
            batches = self._from_memory(spec, seed, epoch, subset, start)
            if prefetched is not None:
                batches = map_ahead(prefetched, batches, threads=fast_path.threads, prefetch=fast_path.prefetch)
        if inline is not None:
            batches = map(inline, batches)
        # On a CPU, batches are tensors already.
        moved = batches if self._copy is None else self._copy(batches)
        if self._sharing is not None:
            n = len(self._reading.data.chosen) if subset is None else len(subset.positions)
            moved = map(self._sharing.complete, moved, batch_sizes(n, spec)[start:])
        return moved if subset is None or subset.pool_weight is None else scaled_to_pool(moved, subset)

    def _changes(self, seed: int, epoch: int, *, evaluate: bool) -> tuple["Change | None", "Change | None"]:
        """Return the changes of batches that any thread may make, and those that need the training thread."""
        transforms, objective = self._reading.transforms, self._objective
        if objective is not None:
            posing = Posing.evaluation(objective, transforms) if evaluate else Posing.training(objective, transforms, seed, epoch)
            change = partial(_posed, posing)
            return (None, change) if posing.beside else (change, None)
        passes = (transforms.evaluation() if evaluate else transforms.training(seed, epoch)).split()
        prefetched, inline = (partial(_transformed, passing) if passing else None for passing in passes)
        return prefetched, inline

    def _read(
        self, spec: TrainingSpec, seed: int, epoch: int, subset: Subset | None, start: int, change: "Change | None"
    ) -> Iterator[Batch]:
        walk = EpochOrder(spec.batch_size, spec.shuffle, spec.block_size, seed, epoch, spec.drop_last, start, self._part)
        reading = self._reading
        if subset is not None:
            keys, _ = reading.data.chosen.take(subset.positions)
            reading = replace(reading, data=replace(reading.data, chosen=TrainingSet.of(keys, subset.weights)))
        return reading(walk, lambda loaded: self._of(loaded) if change is None else change(self._of(loaded)))

    def _from_memory(self, spec: TrainingSpec, seed: int, epoch: int, subset: Subset | None, start: int) -> Iterator[Batch]:
        assert self._cached is not None  # noqa: S101 - for the type checker
        chosen = self._reading.data.chosen
        n = len(chosen) if subset is None else len(subset.positions)
        order = Order(n, shuffle=spec.shuffle, block_size=spec.block_size, seed=seed, epoch=epoch)

        def take(places: Positions, keys: KeyArray, weights: npt.NDArray[np.float32]) -> Positions:
            positions = places if subset is None else subset.positions[places]
            chosen.take_into(positions, keys, weights)
            if subset is not None:
                np.take(subset.weights, places, out=weights)
            return positions

        batching = Batching(n, spec.batch_size, spec.drop_last, self._part)
        yield from self._cached.batches(order, batching, take, start=start)

    @property
    def _part(self) -> tuple[int, int]:
        return (0, 1) if self._sharing is None else self._sharing.part

    def _of(self, loaded: LoadedBatch) -> Batch:
        inputs, targets = self._arrays(loaded)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return _batch(loaded.keys, loaded.weights, tensors, torch.from_numpy(targets))

    def _arrays(self, loaded: LoadedBatch) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        reading = self._reading
        exact, source = reading.relabeling.exact, reading.source
        targets = targets_of(loaded.truth, loaded.keys, reading.kind, self._n_outputs, source=source, exact=exact)
        return self._prepare(loaded.inputs), aligned(targets)

    def _gather(self, chunks: list[LoadedBatch]) -> InMemory:
        parts = [self._arrays(chunks.pop(0)) for _ in range(len(chunks))]
        names = parts[0][0]
        inputs = {name: torch.cat([torch.from_numpy(inputs[name]) for inputs, _ in parts]) for name in names}
        return InMemory(inputs, torch.cat([torch.from_numpy(targets) for _, targets in parts]))


def _batch(keys: KeyArray, weights: npt.NDArray[np.float32], inputs: Tensors, targets: Tensor) -> Batch:
    # Aligned like batches from memory, for the same bits.
    weight = float(np.sum(weights, dtype=np.float64))
    return Batch(tensor_of(keys), inputs, targets, torch.from_numpy(aligned(weights)), weight)


#: Change of a batch before it is moved to the device.
Change = Callable[[Batch], Batch]


def _posed(posing: Posing, batch: Batch) -> Batch:
    own = {name: tensor.data for name, tensor in batch.inputs.items()}
    inputs, targets = posing(own, batch.keys.numpy().view(np.uint64))
    return replace(batch, inputs=inputs, targets=targets)


def _transformed(passing: Pass, batch: Batch) -> Batch:
    # Batches from memory are views of one block with a common version counter of autograd: a transform that changes the next
    # batch in place must not look like a change of the current one.
    own = {name: tensor.data for name, tensor in batch.inputs.items()}
    return replace(batch, inputs=passing(own, batch.keys.numpy().view(np.uint64)))
