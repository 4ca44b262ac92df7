"""Labelled samples with the columns that metrics need: computed once per model, shared by all its intervals."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.calibration import confidences
from modyn_dagster.evaluation.metrics.losses import (
    BinarySoftmax,
    Float64,
    binary_softmax,
    cross_entropy,
    reduce_columns,
    squared_distances,
)

Outputs = npt.NDArray[np.float32]
#: Classes ``int64[n]`` or targets ``float64[n]``, of several columns ``float64[n, columns]``.
Truth = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: Bins of confidence, of equal width, of the calibration error.
BINS: Final = 15
#: Rankings of more samples times classes are not cached: each takes 8 bytes per sample.
_MOST_RANKS: Final = 1 << 26
#: Samples whose squared distances are computed at once, for memory.
_ROWS: Final = 1 << 16


class UndefinedScore(Exception):
    """A metric has no value on these samples, for example because a class is absent; nothing is wrong."""


class CellFailed(Exception):
    """A cell has no value because something is wrong: a metric raised, or a label is unknown to the model."""


class Ranking(NamedTuple):
    """Rows in ascending order of probability, and the rank of every row, ``int32[n]`` both; equal ranks are ties."""

    order: Int32
    ranks: Int32


class EvaluationSamples:
    """Model outputs ``float32[n, k]`` and truth of labelled samples, with derived columns computed on first use."""

    def __init__(self, outputs: Outputs, truth: Truth) -> None:
        self.outputs, self.truth = outputs, truth
        self._correct: dict[int, Flags] = {}
        self._rankings: dict[int, Ranking] = {}
        self._derived: dict[object, Float64] = {}

    def __len__(self) -> int:
        return len(self.truth)

    def with_truth(self, truth: Truth) -> "EvaluationSamples":
        """The same outputs with other labels; what depends on the outputs alone is not computed again."""
        other = EvaluationSamples(self.outputs, truth)
        other._rankings = self._rankings
        other.__dict__["predicted"] = self.predicted
        return other

    @property
    def n_classes(self) -> int:
        """Number of classes the model knows."""
        return self.outputs.shape[1]

    def classes_in(self, part: slice) -> int:
        """Number of classes including those that occur in a part and are unknown to the model."""
        if self.unknown_class_before[part.stop] == self.unknown_class_before[part.start]:
            return self.n_classes
        return max(self.n_classes, int(self.truth[part].max()) + 1)

    @cached_property
    def predicted(self) -> Int64:
        """Class of the largest output, ``int64[n]``; the lower class wins a tie."""
        if self.n_classes == 2:
            return np.asarray(self.outputs[:, 1] > self.outputs[:, 0]).astype(np.int64)
        return np.asarray(self.outputs.argmax(axis=1))

    def correct(self, k: int = 1) -> Flags:
        """Flags of the samples whose class is among the ``k`` largest outputs, ``bool[n]``."""
        if k not in self._correct:
            self._correct[k] = self.predicted == self.truth if k == 1 else _in_top_k(self.outputs, self.truth, k)
        return self._correct[k]

    @cached_property
    def nonfinite_before(self) -> Int64:
        """Number of samples with nonfinite outputs before each row, ``int64[n + 1]``."""
        return running_total(~reduce_columns(np.logical_and, np.isfinite(self.outputs)))

    @cached_property
    def unknown_class_before(self) -> Int64:
        """Number of samples of a class unknown to the model before each row, ``int64[n + 1]``."""
        return running_total(self.truth >= self.n_classes)

    @cached_property
    def softmax(self) -> BinarySoftmax:
        """Softmax of two classes."""
        with np.errstate(all="ignore"):
            return binary_softmax(self.outputs)

    @cached_property
    def losses(self) -> Float64:
        """``-log p(class)``, ``float64[n]``; meaningless for samples of an unknown class."""
        with np.errstate(all="ignore"):
            labels = self.known_labels
            return self.softmax.losses(labels) if self.n_classes == 2 else cross_entropy(self.outputs, labels)

    @cached_property
    def squares(self) -> Float64:
        """Squared distance of the probabilities from the truth, ``float64[n]``: of class 1 alone for two classes, else of all."""
        labels = self.known_labels
        with np.errstate(all="ignore"):
            if self.n_classes == 2:
                return self.softmax.squares(labels)
            chunks = [slice(start, start + _ROWS) for start in range(0, len(self), _ROWS)]
            return np.concatenate([np.empty(0), *(squared_distances(self.outputs[rows], labels[rows]) for rows in chunks)])

    @cached_property
    def confidence(self) -> Float64:
        """Probability of the predicted class, ``float64[n]``."""
        with np.errstate(all="ignore"):
            return self.softmax.confidences() if self.n_classes == 2 else confidences(self.outputs)

    @cached_property
    def confidence_bins(self) -> Int64:
        """Bin of each confidence, ``int64[n]``."""
        with np.errstate(all="ignore"):
            return np.minimum((self.confidence * BINS).astype(np.int64), BINS - 1)

    @cached_property
    def overconfidence(self) -> Float64:
        """Confidence less correctness, ``float64[n]``."""
        return self.confidence - self.correct()

    @cached_property
    def errors(self) -> Float64:
        """Predicted less true target, ``float64[n]``, of several targets ``float64[n, targets]``."""
        with np.errstate(all="ignore"):
            if self.truth.ndim > 1:
                return np.asarray(self.outputs - self.truth)
            return np.asarray(self.outputs[:, 0] - self.truth)

    def derived(self, name: object, compute: Callable[["EvaluationSamples"], Float64]) -> Float64:
        """Column ``float64[n]`` of a metric of one task, computed on first use; ``name`` stands for all that it depends on."""
        if name not in self._derived:
            with np.errstate(all="ignore"):
                self._derived[name] = compute(self)
        return self._derived[name]

    @property
    def known_labels(self) -> Truth:
        """The truth, with the last known class in place of unknown ones."""
        return np.minimum(self.truth, self.n_classes - 1) if self.unknown_class_before[-1] else self.truth

    @property
    def keeps_ranking(self) -> bool:
        """True if there is memory for the ranking of all samples."""
        return self.n_classes == 2 or len(self) * self.n_classes <= _MOST_RANKS

    def ranks(self, label: int, part: slice) -> Int32:
        """Ranks of the samples of a part by the probability of a class, ``int32``; equal ranks are ties."""
        if len(self) * self.n_classes > _MOST_RANKS:
            return _ranking(self.outputs[part], label).ranks
        return self.ranking(label).ranks[part]

    def ranking(self, label: int) -> Ranking:
        """All samples in the order of the probability of a class."""
        if label not in self._rankings:
            self._rankings[label] = _ranking(self.outputs, label)
        return self._rankings[label]


def running_total(flags: Flags) -> Int64:
    """Number of true flags before each row and behind the last one, ``int64[n + 1]``.

    >>> running_total(np.array([True, False, True]))
    array([0, 1, 1, 2])
    """
    totals = np.zeros(len(flags) + 1, np.int64)
    # Faults are rare: memory that is never written costs nothing.
    if flags.any():
        np.cumsum(flags, out=totals[1:])
    return totals


def require_known(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``CellFailed`` where a part holds a class that the model has no probability for."""
    if samples.unknown_class_before[part.stop] > samples.unknown_class_before[part.start]:
        largest = int(samples.truth[part].max())
        raise CellFailed(f"a sample is of class {largest}, the model knows {samples.n_classes} classes")


def _in_top_k(outputs: Outputs, labels: Truth, k: int) -> Flags:
    """Flags of a stable sort: among equal outputs the lower class comes first."""
    known = labels < outputs.shape[1]
    columns = np.minimum(labels, outputs.shape[1] - 1)[:, None]
    own = np.take_along_axis(outputs, columns, axis=1)
    before = (outputs > own) | ((outputs == own) & (np.arange(outputs.shape[1]) < columns))
    return np.asarray(known & (before.sum(axis=1) < k))


def _ranking(outputs: Outputs, label: int) -> Ranking:
    with np.errstate(all="ignore"):
        log_odds = _log_odds(outputs, label)
    order = np.argsort(log_odds)
    ordered = log_odds[order]
    ranks = np.empty(len(log_odds), np.int32)
    ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])[: len(log_odds)]
    return Ranking(order.astype(np.int32), ranks)


def _log_odds(outputs: Outputs, label: int) -> Float64:
    """Log odds of a class: the order of its probability, without the ties of probabilities rounded to 0 or 1.

    Rows that differ by a constant, or in the order of the other classes, are ties to the last bit.
    """
    logits = outputs.astype(np.float64)
    if outputs.shape[1] == 1:
        return np.zeros(len(outputs))
    if outputs.shape[1] == 2:
        return np.asarray(logits[:, label] - logits[:, 1 - label])
    rest = np.sort(np.delete(logits, label, axis=1), axis=1)
    top = rest[:, -1]
    others = np.log(np.exp(rest - top[:, None]).sum(axis=1))
    return np.asarray(logits[:, label] - top - others)
