"""Orthogonal matching pursuit with non-negative weights."""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

#: Share of a row's squared norm outside the span of the others below which the row counts as spanned.
_SPANNED: Final = 1e-10


class InverseFactor:
    """Inverse ``R`` of the Cholesky factor of a Gram matrix, ``R G R' = 1``. A new row or a solution takes ``O(k^2)``."""

    def __init__(self, k: int) -> None:
        self._inverse: Float64 = np.zeros((k, k))
        self._size = 0

    def grow(self, gram: Float64, m: int) -> None:
        """Add row ``m`` of the Gram matrix, unless it or an earlier row lies in the span of the others."""
        if self._size != m:
            return
        inverse = self._inverse[:m, :m]
        projection = inverse @ gram[m, :m]
        residual = gram[m, m] - projection @ projection
        if not residual > _SPANNED * gram[m, m]:
            return
        scale = 1 / np.sqrt(residual)
        self._inverse[m, :m] = -scale * (projection @ inverse)
        self._inverse[m, m] = scale
        self._size = m + 1

    def rebuild(self, gram: Float64, first: int) -> None:
        """Rebuild for a Gram matrix that changed from row ``first`` on."""
        self._size = min(self._size, first)
        for m in range(self._size, len(gram)):
            self.grow(gram, m)

    def solve(self, gram: Float64, right: Float64) -> Float64 | None:
        """Solve ``G x = right`` with one refinement; None where the factor lacks rows."""
        if self._size != len(right):
            return None
        inverse = self._inverse[: self._size, : self._size]
        solution = (inverse @ right) @ inverse
        return np.asarray(solution + (inverse @ (right - gram @ solution)) @ inverse)


def nonnegative(gram: Float64, right: Float64, start: Float64, unconstrained: Float64 | None) -> Float64:
    """Minimise ``w G w / 2 - r w`` over ``w >= 0`` from a feasible point (Lawson and Hanson 1974, chapter 23).

    ``unconstrained`` is the minimum over all ``w``, or None. ``scipy.optimize.nnls`` solves the same problem on a factor of
    ``G``, with other bits.
    """
    weights, free = start, np.ones(len(start), dtype=bool)
    optimum = _solve(gram, right) if unconstrained is None else unconstrained
    while (below := free & (optimum <= 0)).any():
        # Move towards the unconstrained optimum until the first weight is 0, which then stays 0.
        step = weights[below] / (weights[below] - optimum[below])
        weights = weights + step.min() * (optimum - weights)
        free &= ~(below & (weights <= 1e-15 * weights.max(initial=0)))
        free[np.flatnonzero(below)[int(np.argmin(step))]] = False
        weights = np.where(free, weights, 0.0)
        optimum = np.zeros(len(start))
        optimum[free] = _solve(gram[np.ix_(free, free)], right[free])
    return optimum


def _solve(gram: Float64, right: Float64) -> Float64:
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])


def matching_pursuit(rows: Tensor, target: Tensor, k: int, *, ridge: float) -> tuple[Int64, Float64]:
    """Choose ``k`` rows of ``float[n, d]`` and weights whose weighted sum approaches ``target``: ``int64[k]``, ``float64[k]``.

    Minimises ``|sum w_i g_i - target|^2 + ridge |w|^2`` over ``w >= 0`` on a support that grows by the row most correlated with
    the residual. A row whose weight falls to 0 leaves the support. Without correlated rows, the best of the others fill up
    with weight 0. Memory: copies of ``k`` rows and two ``k x k`` matrices in float64.
    """
    support = _Support(rows, target, k, ridge)
    barred = np.zeros(len(rows), dtype=bool)
    # A dropped row returns only after progress, so the loop ends; the limit guards against rounding.
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
    """Rows of the support in order, with their optimal weights."""

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
        correlations: Float64 = (self._rows @ residual).double().cpu().numpy()
        return correlations

    def extend(self, j: int) -> list[int]:
        """Add row ``j`` and recompute the weights; returns the rows that dropped out."""
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
