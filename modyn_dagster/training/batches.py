"""The batches of an epoch: which samples go into which step, and the tensors of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import rng_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.network import Network, as_tensor
from modyn_dagster.training.survey import Loaded, Survey
from modyn_dagster.training.targets import target_tensor

Rows = npt.NDArray[np.int64]

#: Samples read at once where the training set is not in memory; no result depends on it.
READ_AHEAD: Final = 8192


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's samples: ``uint64[B]`` keys, inputs ``[B, ...]``, targets ``[B]`` and weights ``float32[B]``."""

    keys: KeyArray
    inputs: Tensor
    targets: Tensor
    weights: Tensor


def batches_per_epoch(n: int, spec: TrainingSpec) -> int:
    """Steps of an epoch. A short last batch is dropped if asked for, but never when it is the only one."""
    full, rest = divmod(n, spec.batch_size)
    return full if rest == 0 or (spec.drop_last and full) else full + 1


def rows_of_epoch(n: int, spec: TrainingSpec, *, seed: int, epoch: int) -> Iterator[Rows]:
    """Positions in the training set, batch by batch; an epoch's order depends on seed and epoch alone."""
    order = rng_for(seed, "shuffle", epoch).permutation(n) if spec.shuffle else np.arange(n)
    for step in range(batches_per_epoch(n, spec)):
        yield order[step * spec.batch_size : (step + 1) * spec.batch_size]


class Batches:
    """Batches of a surveyed training set, from memory or from its reader: the same either way."""

    def __init__(self, found: Survey, network: Network, n_outputs: int) -> None:
        self._loader, self._network, self._n_outputs = found.loader, network, n_outputs
        self._weights = as_tensor(found.loader.data.weights)
        self._cached = self._gather(found.cached) if found.cached is not None else None

    def epoch(self, spec: TrainingSpec, *, seed: int, epoch: int) -> Iterator[Batch]:
        """All batches of one epoch, in order."""
        rows = rows_of_epoch(len(self._loader.data), spec, seed=seed, epoch=epoch)
        if self._cached is not None:
            inputs, targets = self._cached
            yield from (self._batch(batch, inputs, targets, batch) for batch in rows)
            return
        for group in _grouped(rows, max(1, READ_AHEAD // spec.batch_size)):
            inputs, targets = self._tensors(self._loader(self._loader.data.keys[np.concatenate(group)]))
            ends = np.cumsum([len(batch) for batch in group])
            for batch, end in zip(group, ends, strict=True):
                yield self._batch(batch, inputs, targets, np.arange(end - len(batch), end))

    def _batch(self, rows: Rows, inputs: Tensor, targets: Tensor, places: Rows) -> Batch:
        # Indexing copies into fresh memory, so a batch has the same alignment wherever its rows came from.
        at = torch.from_numpy(places)
        return Batch(self._loader.data.keys[rows], inputs[at], targets[at], self._weights[torch.from_numpy(rows)])

    def _gather(self, chunks: list[Loaded]) -> tuple[Tensor, Tensor]:
        inputs, targets = zip(*(self._tensors(chunks.pop(0)) for _ in range(len(chunks))), strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def _tensors(self, loaded: Loaded) -> tuple[Tensor, Tensor]:
        loader = self._loader
        targets = target_tensor(loaded.truth, loaded.keys, loader.kind, self._n_outputs, source=loader.source)
        return self._network.prepare(as_tensor(loaded.features)), targets


def _grouped(rows: Iterator[Rows], size: int) -> Iterator[list[Rows]]:
    group: list[Rows] = []
    for batch in rows:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
