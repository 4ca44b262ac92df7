"""Normal equations that grow by a row at a time, and their solution with weights of at least 0."""

from typing import Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

#: Of a row's squared norm: what has less left beside the span of the others counts as in it.
_SPANNED: Final = 1e-10


class InverseFactor:
    """The inverse ``R`` of the Cholesky factor of a Gram matrix, ``R G R' = 1``: a row more, or a solution, in ``O(k^2)``."""

    def __init__(self, k: int) -> None:
        self._inverse: Float64 = np.zeros((k, k))
        self._size = 0

    def grow(self, gram: Float64, m: int) -> None:
        """By row ``m`` of the Gram matrix; not if it lies in the span of the others, or an earlier one did."""
        if self._size != m:
            return
        known = self._inverse[:m, :m]
        beside = known @ gram[m, :m]
        left = gram[m, m] - beside @ beside
        if not left > _SPANNED * gram[m, m]:
            return
        scale = 1 / np.sqrt(left)
        self._inverse[m, :m] = -scale * (beside @ known)
        self._inverse[m, m] = scale
        self._size = m + 1

    def rebuild(self, gram: Float64, first: int) -> None:
        """For a Gram matrix that is another one from row ``first`` on."""
        self._size = min(self._size, first)
        for m in range(self._size, len(gram)):
            self.grow(gram, m)

    def solve(self, gram: Float64, right: Float64) -> Float64 | None:
        """``G^-1 right``, refined once; None where the factor does not have all rows."""
        if self._size != len(right):
            return None
        inverse = self._inverse[: self._size, : self._size]
        found = (inverse @ right) @ inverse
        return np.asarray(found + (inverse @ (right - gram @ found)) @ inverse)


def nonnegative(gram: Float64, right: Float64, start: Float64, unconstrained: Float64 | None) -> Float64:
    """The minimum of ``w G w / 2 - r w`` over ``w >= 0`` from a feasible point (Lawson and Hanson 1974, chapter 23).

    ``unconstrained`` is the minimum over all ``w``, where it is known.
    """
    weights, free = start, np.ones(len(start), dtype=bool)
    wanted = _solve(gram, right) if unconstrained is None else unconstrained
    while (below := free & (wanted <= 0)).any():
        # Towards the unconstrained optimum until the first weight is 0, which then stays there.
        step = weights[below] / (weights[below] - wanted[below])
        weights = weights + step.min() * (wanted - weights)
        free &= ~(below & (weights <= 1e-15 * weights.max(initial=0)))
        free[np.flatnonzero(below)[int(np.argmin(step))]] = False
        weights = np.where(free, weights, 0.0)
        wanted = np.zeros(len(start))
        wanted[free] = _solve(gram[np.ix_(free, free)], right[free])
    return wanted


def _solve(gram: Float64, right: Float64) -> Float64:
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
