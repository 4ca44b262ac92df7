"""What memories that look at gradients share: how they are told of a batch."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.memory.memory import Memory, Values, check_elapsed, checked_keys, checked_values

#: A gradient per row; of two factors the outer product of their rows.
Factors = list[npt.NDArray[np.float64]]


class GradientMemory(Memory):
    """Asks for the gradients of its own items and of the batch's under the newest model."""

    VALUES: ClassVar[frozenset[Values]] = frozenset({"gradients"})

    def update(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        gradients: npt.ArrayLike | None = None,
        embeddings: npt.ArrayLike | None = None,
        elapsed: float = 1.0,
    ) -> None:
        """Take in a batch of ``uint64[m]`` keys. ``elapsed`` is checked and has no effect.

        ``gradients float[k, d]`` are those under the newest model of what ``needs(keys)`` names, None while there is no model;
        with ``embeddings float[k, e]`` each gradient is the outer product of the two rows, as that of a last layer is. Raises
        ``ValueError`` for input of another shape or kind.
        """
        check_elapsed(elapsed)
        keys = checked_keys(keys)
        if gradients is None:
            self._update(keys, [])
            return
        n, given = len(self._keys) + len(keys), {"gradients": gradients, "embeddings": embeddings}
        self._update(keys, [checked_values(name, values, n, 2) for name, values in given.items() if values is not None])

    @abstractmethod
    def _update(self, keys: KeyArray, factors: Factors) -> None:
        """Take in a batch; ``factors`` have a row for each item of the memory, then of the batch, or are none."""
