"""One step's samples, and which samples an epoch takes them from."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from modyn_dagster.training.network import Tensors


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's samples, on the device that trains.

    Attributes:
        keys: ``int64[B]``.
        inputs: by name, ``[B, ...]``.
        targets: ``[B]``.
        weights: ``float32[B]``.
        weight: their sum, or that of the pool they were drawn from.
        divisor: what the weighted sum of losses is divided by; None: the sum of the weights.
    """

    keys: Tensor
    inputs: Tensors
    targets: Tensor
    weights: Tensor
    weight: float
    divisor: float | None = None

    def drawn(self, indices: Tensor, weights: Tensor, *, estimates: bool) -> "Batch":
        """Some of it, with the weights they were drawn with; an estimator's losses stand for the whole batch."""
        at = indices.to(self.targets.device)
        return Batch(
            self.keys.index_select(0, indices.to(self.keys.device)),
            {name: tensor.index_select(0, at) for name, tensor in self.inputs.items()},
            self.targets.index_select(0, at),
            self.weights.index_select(0, at) * weights.to(self.weights),
            self.weight,
            self.weight if estimates else None,
        )


@dataclass(frozen=True, slots=True)
class Subset:
    """What an epoch trains on.

    Attributes:
        positions: ``int64[k]`` in the training set.
        weights: ``float32[k]``, all above 0.
        pool_weight: sum of the weights that an estimator's losses stand for; None: they stand for themselves.
    """

    positions: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    pool_weight: float | None


def standing_for(batches: Iterator[Batch], subset: Subset) -> Iterator[Batch]:
    """A batch of ``b`` of the ``k`` samples of an estimate stands for the ``b / k``-th part of the pool."""
    assert subset.pool_weight is not None  # noqa: S101 - for the type checker
    for batch in batches:
        share = subset.pool_weight * len(batch.targets) / len(subset.positions)
        yield replace(batch, weight=share, divisor=share)
