"""Orthogonal matching pursuit with weights of at least 0."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def matching_pursuit(rows: Tensor, target: Tensor, k: int, *, ridge: float) -> tuple[Int64, Float64]:
    """``k`` rows of ``float[n, d]`` and weights that make their sum approach ``target``: ``int64[k]``, ``float64[k]``.

    Minimises ``|sum w_i g_i - target|^2 + ridge |w|^2`` over ``w >= 0`` on a support that grows by the row most correlated with
    what is left; a row whose weight falls to 0 leaves it again. Where nothing is correlated any more, the best of the others
    fill up with weight 0.
    """
    support = _Support(rows, target, ridge)
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

    def __init__(self, rows: Tensor, target: Tensor, ridge: float) -> None:
        self._rows, self._target, self._ridge = rows, target.double().cpu().numpy(), ridge
        self.members: list[int] = []
        self.weights: Float64 = np.empty(0)
        self._used: Float64 = np.empty((0, rows.shape[1]))
        self._gram: Float64 = np.empty((0, 0))
        self.noise = float(rows.abs().max()) * float(np.abs(self._target).sum()) * float(torch.finfo(rows.dtype).eps)

    def correlations(self) -> Float64:
        """Of every row with the residual, ``float64[n]``."""
        residual = torch.from_numpy(self._target - self.weights @ self._used).to(self._rows)
        found: Float64 = (self._rows @ residual).double().cpu().numpy()
        return found

    def extend(self, j: int) -> list[int]:
        """Take row ``j`` in and find the weights anew; rows that lost theirs are returned."""
        row = self._rows[j].double().cpu().numpy()
        beside = self._used @ row
        self._gram = np.block([[self._gram, beside[:, None]], [beside[None, :], np.array([[row @ row + self._ridge]])]])
        self._used = np.vstack([self._used, row])
        self.members.append(j)
        self.weights = _nonnegative(self._gram, self._used @ self._target, np.append(self.weights, 0.0))
        lost = np.flatnonzero(self.weights <= 0)
        dropped = [self.members[i] for i in lost]
        if len(lost):
            stay = np.flatnonzero(self.weights > 0)
            self.members = [self.members[i] for i in stay]
            self.weights, self._used = self.weights[stay], self._used[stay]
            self._gram = self._gram[np.ix_(stay, stay)]
        return dropped


def _nonnegative(gram: Float64, right: Float64, start: Float64) -> Float64:
    """The minimum of ``w G w / 2 - r w`` over ``w >= 0`` from a feasible point (Lawson and Hanson 1974, chapter 23)."""
    weights, free = start, np.ones(len(start), dtype=bool)
    while free.any():
        wanted = np.zeros(len(start))
        wanted[free] = _solve(gram[np.ix_(free, free)], right[free])
        below = free & (wanted <= 0)
        if not below.any():
            return wanted
        # Towards the unconstrained optimum until the first weight is 0, which then stays there.
        step = weights[below] / (weights[below] - wanted[below])
        weights = weights + step.min() * (wanted - weights)
        free &= ~(below & (weights <= 1e-15 * weights.max(initial=0)))
        free[np.flatnonzero(below)[int(np.argmin(step))]] = False
        weights = np.where(free, weights, 0.0)
    return np.zeros(len(start))


def _solve(gram: Float64, right: Float64) -> Float64:
    try:
        return np.asarray(np.linalg.solve(gram, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
