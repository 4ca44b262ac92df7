"""Softmax, losses and squared distances of single samples, computed from raw outputs in float64.

Two classes need one exponential per sample; the bits equal those of the softmax over both columns, because the larger of the
two powers is always exp(0). ``scipy.special.log_softmax`` and ``softmax`` give the same bits as these functions but take longer
(60,000 samples: 6.4 ms instead of 1.3 for 2 classes, 7.1 instead of 2.5 for 3, 12 instead of 10 for 10) and 0.17 s to import;
the logarithm of ``softmax`` differs in the last bit of a quarter to a half of the losses, which are stored.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.tasks.task import (
    MultiLabelTask,
    MultiOutputTask,
    OrdinalTask,
    QuantilesTask,
    RankingTask,
    TaskSpec,
)
from modyn_dagster.spec.training import TaskKind, is_unlabelled

Float64 = npt.NDArray[np.float64]

#: Columns from which on numpy adds up in another order, several at once.
_UNROLLED_COLUMNS: Final = 8


class BinarySoftmax(NamedTuple):
    """Softmax of samples with two classes, in parts of ``float64[n]``.

    Attributes:
        difference: logit of class 1 less that of class 0.
        smaller_power: the smaller of the two exponentials; the other one is 1.
        total: the sum of both exponentials.
    """

    difference: Float64
    smaller_power: Float64
    total: Float64

    def losses(self, labels: npt.NDArray[Any]) -> Float64:
        """``-log p(class)``."""
        # Distance of the class's logit from the larger one: zero, or the whole difference.
        below = np.maximum(np.where(labels == 1, -self.difference, self.difference), 0.0)
        return np.asarray(np.add(np.log(self.total), below, out=below))

    def squares(self, labels: npt.NDArray[Any]) -> Float64:
        """Squared distance of the probability of class 1 from the truth."""
        distances = np.where(self.difference > 0, 1.0, self.smaller_power)
        distances /= self.total
        distances -= labels
        return np.asarray(np.square(distances, out=distances))

    def confidences(self) -> Float64:
        """Probability of the likelier class."""
        return np.asarray(1 / self.total)


def binary_softmax(outputs: npt.NDArray[np.float32]) -> BinarySoftmax:
    """Softmax of logits ``float32[n, 2]``; results for nonfinite logits are meaningless."""
    difference = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.float64)
    smaller_power = np.abs(difference)
    np.negative(smaller_power, out=smaller_power)
    np.exp(smaller_power, out=smaller_power)
    return BinarySoftmax(difference, smaller_power, 1.0 + smaller_power)


def cross_entropy(outputs: npt.NDArray[np.float32], labels: npt.NDArray[Any]) -> Float64:
    """``-log softmax(outputs)[label]``, ``float64[n]``; labels are int64 below the number of outputs."""
    if outputs.shape[1] == 2:
        return binary_softmax(outputs).losses(labels)
    logits = outputs.astype(np.float64)
    shifted = logits - reduce_columns(np.maximum, logits)[:, None]
    chosen = shifted[np.arange(len(labels)), labels]
    return np.asarray(np.log(reduce_columns(np.add, np.exp(shifted))) - chosen)


def squared_distances(outputs: npt.NDArray[np.float32], labels: npt.NDArray[Any]) -> Float64:
    """Squared distance of the softmax from the truth, over all classes, ``float64[n]``."""
    powers = outputs.astype(np.float64)
    powers = np.exp(powers - reduce_columns(np.maximum, powers)[:, None])
    shares = powers / reduce_columns(np.add, powers)[:, None]
    own = np.take_along_axis(shares, labels[:, None], axis=1)[:, 0]
    return np.asarray(np.square(shares).sum(axis=1) - np.square(own) + np.square(1 - own))


def reduce_columns(function: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``function.reduce(values, axis=1)`` of ``[n, k]``, k at least 1: the same bits, many times faster for few columns."""
    if values.shape[1] >= _UNROLLED_COLUMNS:
        return np.asarray(function.reduce(values, axis=1))
    result = values[:, 0]
    for column in range(1, values.shape[1]):
        result = function(result, values[:, column])
    return result


def ranked_probability_scores(outputs: npt.NDArray[np.float32], labels: npt.NDArray[Any]) -> Float64:
    """Mean squared difference of the cumulated probabilities from the truth, ``float64[n]``; labels as for ``cross_entropy``."""
    powers = outputs.astype(np.float64)
    powers = np.exp(powers - reduce_columns(np.maximum, powers)[:, None])
    below = np.cumsum(powers, axis=1)
    below = below[:, :-1] / below[:, -1:]
    reached = np.arange(outputs.shape[1] - 1) >= labels[:, None]
    return np.asarray(np.square(below - reached).mean(axis=1))


def pinball_losses(outputs: npt.NDArray[np.float32], targets: Float64, levels: Sequence[float]) -> Float64:
    """Mean pinball loss over the quantiles that the outputs stand for, ``float64[n]``."""
    errors, shares = targets[:, None] - outputs.astype(np.float64), np.asarray(levels)
    return np.asarray(np.maximum(shares * errors, (shares - 1) * errors).mean(axis=1))


def sample_losses(
    outputs: npt.NDArray[np.float32], truth: npt.NDArray[Any], kind: TaskKind, task: TaskSpec | None = None
) -> npt.NDArray[np.float32]:
    """Losses of single samples, ``float32[n]``; NaN for samples without a label or of a class the model does not know.

    Cross-entropy of classes, squared error of targets, ranked probability score of classes with an order, pinball loss of
    quantiles, mean squared error of several targets, mean cross-entropy of several labels. NaN for all samples of a ranking:
    its losses are of pairs and lists.

    Without labels, of the measures of the objective: the mean squared error of the reconstruction, the squared distance of the
    two views on the unit sphere, or the mean cross-entropy of a text's predicted tokens or
    tags.
    """
    if is_unlabelled(kind):
        return _losses_of_measures(outputs, kind)
    usable = reduce_columns(np.logical_and, np.isfinite(outputs))
    if truth.ndim > 1:
        usable &= np.isfinite(truth).all(axis=1)
    else:
        usable &= (truth >= 0) & (truth < outputs.shape[1]) if kind == "class" else np.isfinite(truth)
    # All rows are computed, so that the bits of one do not depend on which others have a label.
    if not usable.all():
        outputs = np.where(usable[:, None], outputs, 0)
        truth = np.where(usable[:, None] if truth.ndim > 1 else usable, truth, 0)
    losses = _losses(outputs, truth, kind, task)
    # Losses beyond the range of float32 become infinite.
    with np.errstate(over="ignore"):
        return np.where(usable, losses, np.nan).astype(np.float32)


def _losses(outputs: npt.NDArray[np.float32], truth: npt.NDArray[Any], kind: TaskKind, task: TaskSpec | None) -> Float64:
    match task:
        case OrdinalTask():
            return ranked_probability_scores(outputs, truth)
        case QuantilesTask(quantiles=levels):
            return pinball_losses(outputs, truth, levels)
        case MultiOutputTask():
            return np.asarray(np.square(outputs.astype(np.float64) - truth).mean(axis=1))
        case MultiLabelTask():
            logits = outputs.astype(np.float64)
            return np.asarray((np.logaddexp(0.0, logits) - logits * truth).mean(axis=1))
        case RankingTask():
            return np.full(len(truth), np.nan)
    return cross_entropy(outputs, truth) if kind == "class" else np.asarray(np.square(outputs[:, 0] - truth))


def _losses_of_measures(measures: npt.NDArray[np.float32], kind: TaskKind) -> npt.NDArray[np.float32]:
    if kind == "reconstruction":
        return measures[:, 0].copy()
    if kind in ("tokens", "tags"):
        return np.asarray(measures[:, 0] / np.maximum(measures[:, 2], 1), np.float32)
    return view_distances(measures).astype(np.float32)


def view_distances(measures: npt.NDArray[np.float32]) -> Float64:
    """Squared distances of the two views of samples on the unit sphere, ``float64[n]``, of ``float32[n, 2 * dimension]``."""
    first, second = (unit_rows(view) for view in np.split(measures.astype(np.float64), 2, axis=1))
    return np.asarray(np.square(first - second).sum(axis=1))


def unit_rows(rows: Float64) -> Float64:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))
