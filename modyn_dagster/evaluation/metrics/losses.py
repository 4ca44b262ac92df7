"""Softmax, losses and squared distances of single samples, computed from raw outputs in float64.

Two classes need one exponential per sample, from which all their quantities are made; the bits equal those of the softmax
over columns, because one of the two powers is always exp(0).
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.training import TaskKind

_Float64 = npt.NDArray[np.float64]


class Odds(NamedTuple):
    """Of samples with two classes, ``float64[n]`` each.

    Attributes:
        difference: logit of class 1 less that of class 0.
        smaller: the smaller one of the two powers; the other one is 1.
        total: the sum of both.
    """

    difference: _Float64
    smaller: _Float64
    total: _Float64

    def losses(self, labels: npt.NDArray[Any]) -> _Float64:
        """``-log p(class)``."""
        # What the logit of the class lies below the larger one: nothing, or all of the difference.
        below = np.maximum(np.where(labels == 1, -self.difference, self.difference), 0.0)
        return np.asarray(np.add(np.log(self.total), below, out=below))

    def squares(self, labels: npt.NDArray[Any]) -> _Float64:
        """Squared distance of the probability of class 1 from the truth."""
        found = np.where(self.difference > 0, 1.0, self.smaller)
        found /= self.total
        found -= labels
        return np.asarray(np.square(found, out=found))

    def confidences(self) -> _Float64:
        """Probability of the likelier class."""
        return np.asarray(1 / self.total)


def binary_odds(outputs: npt.NDArray[np.float32]) -> Odds:
    """Of logits ``float32[n, 2]``; what is not finite has no meaning."""
    difference = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.float64)
    smaller = np.abs(difference)
    np.negative(smaller, out=smaller)
    np.exp(smaller, out=smaller)
    return Odds(difference, smaller, 1.0 + smaller)


Float64 = npt.NDArray[np.float64]

#: Columns from which on numpy adds up in another order, several at once.
_MANY: Final = 8


def cross_entropy(outputs: npt.NDArray[np.float32], labels: npt.NDArray[Any]) -> Float64:
    """``-log softmax(outputs)[label]``, ``float64[n]``; labels are int64 below the number of outputs."""
    if outputs.shape[1] == 2:
        return binary_odds(outputs).losses(labels)
    logits = outputs.astype(np.float64)
    shifted = logits - over_columns(np.maximum, logits)[:, None]
    chosen = shifted[np.arange(len(labels)), labels]
    return np.asarray(np.log(over_columns(np.add, np.exp(shifted))) - chosen)


def over_columns(function: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``function.reduce(values, axis=1)`` to the bit, of ``[n, k]`` with k at least 1: for few columns many times faster."""
    if values.shape[1] >= _MANY:
        return np.asarray(function.reduce(values, axis=1))
    found = values[:, 0]
    for column in range(1, values.shape[1]):
        found = function(found, values[:, column])
    return found


def sample_losses(outputs: npt.NDArray[np.float32], truth: npt.NDArray[Any], kind: TaskKind) -> npt.NDArray[np.float32]:
    """Cross-entropy or squared error, ``float32[n]``; NaN where a sample has no label or one the model does not know."""
    usable = over_columns(np.logical_and, np.isfinite(outputs))
    usable &= (truth >= 0) & (truth < outputs.shape[1]) if kind == "class" else np.isfinite(truth)
    # All rows are computed, so that the bits of one do not depend on which others have a label.
    if not usable.all():
        outputs, truth = np.where(usable[:, None], outputs, 0), np.where(usable, truth, 0)
    losses = cross_entropy(outputs, truth) if kind == "class" else np.square(outputs[:, 0] - truth)
    # What is beyond float32 becomes infinite, which says so.
    with np.errstate(over="ignore"):
        return np.where(usable, losses, np.nan).astype(np.float32)
