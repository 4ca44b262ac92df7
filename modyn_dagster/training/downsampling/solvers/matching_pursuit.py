"""Orthogonal matching pursuit with non-negative weights."""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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


def matching_pursuit(rows: Tensor, target: Tensor, k: int, *, ridge: float) -> tuple[Int64, Float64]:
    """``k`` rows of ``float[n, d]`` and weights that make their sum approach ``target``: ``int64[k]``, ``float64[k]``.

    Minimises ``|sum w_i g_i - target|^2 + ridge |w|^2`` over ``w >= 0`` on a support that grows by the row most correlated with
    what is left; a row whose weight falls to 0 leaves it again. Where nothing is correlated any more, the best of the others
    fill up with weight 0. Beside the rows it keeps ``k`` of them and two ``k x k`` matrices in float64.
    """
    support = _Support(rows, target, k, ridge)
    barred = np.zeros(len(rows), dtype=bool)
    # A row that was let go returns only after progress, so this ends; the limit is for rounding.
    for _ in range(4 * k):
        if len(support.members) == k:
            break
        gains = support.correlations()
        gains[barred] = -np.inf
        gains[support.members] = -np.inf
        best = int(np.argmax(gains))
        if not gains[best] > support.noise:
            break
        dropped = support.extend(best)
        barred[dropped] = True
    members, weights = np.array(support.members, dtype=np.int64), support.weights
    gains = support.correlations()
    gains[members] = -np.inf
    others = np.argsort(-gains, kind="stable")[: k - len(members)]
    return np.concatenate([members, others]), np.concatenate([weights, np.zeros(len(others))])


class _Support:
    """The rows used so far, in order, with their optimal weights."""

    def __init__(self, rows: Tensor, target: Tensor, k: int, ridge: float) -> None:
        self._rows, self._target, self._ridge = rows, target.double().cpu().numpy(), ridge
        self.members: list[int] = []
        self.weights: Float64 = np.empty(0)
        self._used: Float64 = np.empty((k, rows.shape[1]))
        self._gram: Float64 = np.empty((k, k))
        self._right: Float64 = np.empty(k)
        self._factor = InverseFactor(k)
        lowest, highest = torch.aminmax(rows)
        largest = max(abs(float(lowest)), abs(float(highest)))
        self.noise = largest * float(np.abs(self._target).sum()) * float(torch.finfo(rows.dtype).eps)

    def correlations(self) -> Float64:
        """Correlation of every row with the residual, ``float64[n]``."""
        residual = torch.from_numpy(self._target - self.weights @ self._used[: len(self.members)]).to(self._rows)
        found: Float64 = (self._rows @ residual).double().cpu().numpy()
        return found

    def extend(self, j: int) -> list[int]:
        """Take row ``j`` in and find the weights anew; rows that lost theirs are returned."""
        row, m = self._rows[j].double().cpu().numpy(), len(self.members)
        self._used[m], self._right[m] = row, row @ self._target
        self._gram[m, : m + 1] = self._gram[: m + 1, m] = self._used[: m + 1] @ row
        self._gram[m, m] += self._ridge
        self.members.append(j)
        self._factor.grow(self._gram, m)
        gram, right = self._gram[: m + 1, : m + 1], self._right[: m + 1]
        found = self._factor.solve(gram, right)
        if found is not None and (found > 0).all():
            self.weights = found
            return []
        self.weights = nonnegative(gram, right, np.append(self.weights, 0.0), found)
        return self._let_go()

    def _let_go(self) -> list[int]:
        """Drop rows whose weight fell to zero and return their positions."""
        stay = np.flatnonzero(self.weights > 0)
        gone = np.flatnonzero(self.weights <= 0)
        dropped = [self.members[i] for i in gone]
        if dropped:
            size = len(stay)
            self.members = [self.members[i] for i in stay]
            self.weights = self.weights[stay]
            self._used[:size], self._right[:size] = self._used[stay], self._right[stay]
            self._gram[:size, :size] = self._gram[np.ix_(stay, stay)]
            self._factor.rebuild(self._gram[:size, :size], int(gone[0]))
        return dropped
