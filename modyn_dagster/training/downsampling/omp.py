"""Orthogonal matching pursuit with weights of at least 0."""

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.factor import Float64, Int64, InverseFactor, nonnegative


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
        """Of every row with the residual, ``float64[n]``."""
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
        """Of rows without a weight."""
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
