"""The batches of an epoch: which samples go into which step, and the tensors of each."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order, TrainingSet
from fastpath.order import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.parallel_map import map_ahead
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.inputs.batch import Batch, InMemory, Positions, Subset, scaled_to_pool
from modyn_dagster.training.inputs.dataset_statistics import DatasetStatistics
from modyn_dagster.training.inputs.device import DeviceCopy, tensor_of
from modyn_dagster.training.inputs.reading import Loaded, Walk
from modyn_dagster.training.memory import aligned, empty_aligned
from modyn_dagster.training.models.network import Network, Tensors
from modyn_dagster.training.telemetry import Stopwatch
from modyn_dagster.training.transforms.chain import Pass
from modyn_dagster.training.transforms.labels import targets_of


def batch_sizes(n: int, spec: TrainingSpec) -> list[int]:
    """Samples of each batch of an epoch on ``n`` of them."""
    batching = Batching(n, spec.batch_size, spec.drop_last)
    bounds = (batching.bounds(number) for number in range(len(batching)))
    return [stop - start for start, stop in bounds]


class Batches:
    """Batches of a surveyed training set, from memory or from its reader: the same either way."""

    def __init__(
        self,
        found: DatasetStatistics,
        network: Network,
        n_outputs: int,
        *,
        device: torch.device | str = "cpu",
        watch: Stopwatch | None = None,
    ) -> None:
        self._reading, self._n_outputs = found.reading, n_outputs
        device = torch.device(device)
        pin = device.type == "cuda" and found.reading.data.fast_path.pin is not False
        self._copy = None if device.type == "cpu" else DeviceCopy(device, pin=pin, watch=watch)
        streamed = found.cached is None
        self._prepare = network.preparation(_pinned if pin and streamed else empty_aligned)
        self._cached = None if found.cached is None else self._gather(found.cached)

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
        """The batches of one epoch, in an order that depends on the number of samples, the spec, seed and epoch alone.

        ``start`` is the number of the first one, for an epoch that goes on. ``evaluate``: with the transforms of evaluation.
        """
        transforms, fast_path = self._reading.transforms, self._reading.data.fast_path
        ahead, beside = (transforms.evaluation() if evaluate else transforms.training(seed, epoch)).split()
        if self._cached is None:
            made = self._read(spec, seed, epoch, subset, start, ahead)
        else:
            made = self._from_memory(spec, seed, epoch, subset, start)
            if ahead:
                work = partial(_transformed, ahead)
                made = map_ahead(work, made, threads=fast_path.threads, prefetch=fast_path.prefetch)
        if beside:
            made = (_transformed(beside, batch) for batch in made)
        # Nothing to be moved on a CPU: its batches are tensors already.
        whole = made if self._copy is None else self._copy(made)
        return whole if subset is None or subset.pool_weight is None else scaled_to_pool(whole, subset)

    def _read(self, spec: TrainingSpec, seed: int, epoch: int, subset: Subset | None, start: int, ahead: Pass) -> Iterator[Batch]:
        walk = Walk(spec.batch_size, spec.shuffle, spec.block_size, seed, epoch, spec.drop_last, start)
        reading = self._reading
        if subset is not None:
            keys, _ = reading.data.chosen.take(subset.positions)
            reading = replace(reading, data=replace(reading.data, chosen=TrainingSet.of(keys, subset.weights)))
        return reading(walk, lambda loaded: _transformed(ahead, self._of(loaded)))

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

        for parts in self._cached.batches(order, Batching(n, spec.batch_size, spec.drop_last), take, start=start):
            yield Batch(*parts)

    def _of(self, loaded: Loaded) -> Batch:
        inputs, targets = self._arrays(loaded)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return _batch(loaded.keys, loaded.weights, tensors, torch.from_numpy(targets))

    def _arrays(self, loaded: Loaded) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        reading = self._reading
        targets = targets_of(loaded.truth, loaded.keys, reading.kind, self._n_outputs, source=reading.source)
        return self._prepare(loaded.inputs), aligned(targets)

    def _gather(self, chunks: list[Loaded]) -> InMemory:
        parts = [self._arrays(chunks.pop(0)) for _ in range(len(chunks))]
        names = parts[0][0]
        inputs = {name: torch.cat([torch.from_numpy(inputs[name]) for inputs, _ in parts]) for name in names}
        return InMemory(inputs, torch.cat([torch.from_numpy(targets) for _, targets in parts]))


def _batch(keys: KeyArray, weights: npt.NDArray[np.float32], inputs: Tensors, targets: Tensor) -> Batch:
    # Aligned like those from memory: same bits, wherever a batch comes from.
    weight = float(np.sum(weights, dtype=np.float64))
    return Batch(tensor_of(keys), inputs, targets, torch.from_numpy(aligned(weights)), weight)


def _transformed(passing: Pass, batch: Batch) -> Batch:
    if not passing:
        return batch
    # Batches from memory are parts of one block, whose changes autograd counts together: what works in place on the next one
    # must not look like a change of the one that is trained on.
    own = {name: tensor.data for name, tensor in batch.inputs.items()}
    return replace(batch, inputs=passing(own, batch.keys.numpy().view(np.uint64)))


def _pinned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Page-locked memory out of torch's pool, which takes it back once copies from it are done."""
    like = torch.from_numpy(np.empty(0, dtype))
    array: npt.NDArray[Any] = torch.empty(shape, dtype=like.dtype, pin_memory=True).numpy()
    return array
