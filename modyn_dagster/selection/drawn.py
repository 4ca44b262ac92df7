"""Partitions that tell with which chance each of their samples was chosen."""

from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.keys import KeyArray

#: The smallest that float32 holds at full precision; a sample that unlikely is not met with.
_SMALLEST: Final = float(np.finfo(np.float32).tiny)


class Drawn(Partition):
    """A partition whose weights are not the inverses of its samples' chances; ``chances float32[n]`` are in (0, 1]."""

    chances: npt.NDArray[np.float32]

    def __new__(cls, keys: KeyArray, weights: npt.NDArray[np.float32], chances: npt.NDArray[Any]) -> Self:
        """Chances are cut off where float32 can no longer tell them from 0."""
        self = super().__new__(cls, keys, weights)
        self.chances = np.clip(chances, _SMALLEST, 1.0).astype(np.float32, copy=False)
        return self


def chances_of(part: Partition) -> npt.NDArray[np.float32] | None:
    """The chances that a partition tells; None where they are the inverses of its weights, or nobody knows them."""
    return part.chances if isinstance(part, Drawn) else None
