"""Order of a ranking's samples in which those of a group stand together, so that batches hold lists."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.tasks.task import GROUP
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.inputs.batch import Subset
from modyn_dagster.training.inputs.batches import Batches, in_order


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """Groups of the samples of a set, and their orders.

    Attributes:
        groups: ``int64[n]``, numbers of the groups from 0, by the first sample of each.
        weights: ``float32[n]``.
    """

    groups: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]

    @classmethod
    def of(cls, batches: Batches, spec: TrainingSpec) -> Self:
        """Read the groups of a set in one pass."""
        groups, weights = [], []
        for batch in batches.epoch(in_order(spec), seed=0, epoch=0, evaluate=True):
            # Buffers of a stream are used again.
            groups.append(batch.targets[:, GROUP].cpu().numpy().copy())
            weights.append(batch.weights.cpu().numpy().copy())
        return cls(numbered(np.concatenate(groups)), np.concatenate(weights))

    def in_order(self) -> Subset:
        """Groups by their first sample, each in the order of the set."""
        return self._at(np.argsort(self.groups, kind="stable"))

    def shuffled(self, *, seed: int, epoch: int) -> Subset:
        """Shuffle the groups, and the samples inside each: another order in every epoch."""
        rng = rng_for(seed, "groups", epoch)
        samples = rng.permutation(len(self.groups))
        places = rng.permutation(int(self.groups.max()) + 1)
        return self._at(samples[np.argsort(places[self.groups[samples]], kind="stable")])

    def _at(self, positions: npt.NDArray[np.int64]) -> Subset:
        return Subset(positions, self.weights[positions], None)


def numbered(groups: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number groups ``[n]`` from 0 by the first sample of each, ``int64[n]``.

    >>> numbered(np.array([7.0, 3.0, 7.0, 9.0]))
    array([0, 1, 0, 2])
    """
    _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
    places = np.empty(len(first), np.int64)
    places[np.argsort(first)] = np.arange(len(first))
    return places[numbers]


def as_laid(spec: TrainingSpec) -> TrainingSpec:
    """Copy a spec with batches in the order of a subset."""
    return spec.model_copy(update={"shuffle": False})
