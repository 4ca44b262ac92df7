"""Groups of samples that a metric is computed on: slices of a stream, or resamples of the bootstrap.

A metric is one kernel, ``metric(groups, **parameters) -> float64[m]``, with NaN where it is undefined. Kernels never add up
floats themselves but ask the groups, because numpy adds in another order for each layout and scores are stored:

- sums of a column: ``np.add.reduceat`` over each slice, ``.sum(axis=1)`` over a table of resamples;
- ``rowwise``: one row per group, ``[1, n]`` or ``[m, n]``, which have the same bits;
- ``class_counts``: only the classes that occur in a slice, all classes in resamples (from 8 columns on zeros change the order);
- ``mean_over_classes``: ``np.mean`` of a list for a slice, one class after the other for resamples;
- ``rank_counts``: distinct ranks of the slice, ranks of all samples for resamples.

Counts are whole numbers below 2**53, exact in any order.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastpath.arrays.ordered_pairs import ordered_pairs
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Flags, Int64, Outputs, Truth, running_total
from modyn_dagster.evaluation.metrics.losses import Float64

Numbers = npt.NDArray[Any]


class ClassCounts(NamedTuple):
    """Correct predictions, predictions and samples by class, ``[m, c]`` each."""

    correct: Numbers
    predicted: Numbers
    actual: Numbers


class RankCounts(NamedTuple):
    """Samples of a class and all samples at every rank of its probability, ascending, ``[m, ranks]`` each."""

    positives: Numbers
    samples: Numbers

    def ordered_pairs(self) -> "PairCounts":
        """Pairs of a positive and a negative sample; sums of whole numbers, the same in any order."""
        negatives = self.samples - self.positives
        below = np.cumsum(negatives, axis=1) - negatives
        doubled = (self.positives * (2 * below + negatives)).sum(axis=1)
        return PairCounts(doubled, self.positives.sum(axis=1), negatives.sum(axis=1))


class PairCounts(NamedTuple):
    """Twice the pairs with the positive ranked above the negative, ties counting half; positives; negatives; ``[m]`` each."""

    doubled: Numbers
    positives: Numbers
    negatives: Numbers


class Slices:
    """Contiguous slices ``[start, stop)`` of the samples, none of them empty.

    >>> Slices.whole([[1, 2], [2, 1]], [1, 1]).counts(np.array([True, False]))
    array([1])
    """

    def __init__(self, samples: EvaluationSamples, starts: Int64, stops: Int64) -> None:
        self.samples, self.starts, self.stops = samples, starts, stops

    @classmethod
    def of_part(cls, samples: EvaluationSamples, part: slice) -> Self:
        """A single slice."""
        return cls(samples, np.array([part.start]), np.array([part.stop]))

    @classmethod
    def whole(cls, outputs: npt.ArrayLike, truth: npt.ArrayLike) -> Self:
        """All samples as a single slice."""
        samples = EvaluationSamples(np.asarray(outputs, np.float32), np.asarray(truth))
        return cls.of_part(samples, slice(0, len(samples)))

    @property
    def sizes(self) -> Int64:
        """Number of samples, ``int64[m]``."""
        return self.stops - self.starts

    @property
    def n_classes(self) -> int:
        """Number of classes of the model and of the truth in the slices."""
        return max(self.samples.classes_in(part) for part in self._parts)

    def counts(self, flags: Flags) -> Int64:
        """Number of true flags in each slice, ``int64[m]``."""
        if len(self.starts) == 1:
            return np.array([np.count_nonzero(flags[self._part])])
        before = running_total(flags)
        return before[self.stops] - before[self.starts]

    def sums(self, values: Float64, among: Flags | None = None) -> Float64:
        """Sum of values in each slice, of the flagged samples if flags are given, ``float64[m]``.

        A slice has the same bits alone and beside others.
        """
        starts, stops = self.starts, self.stops
        if among is not None:
            before = running_total(among)
            values, starts, stops = values[among], before[starts], before[stops]
        sums, filled = np.zeros(len(starts)), stops > starts
        if filled.any():
            edges = np.stack([starts[filled], stops[filled]], axis=1).ravel()
            # An edge must be a row: the last slices end behind the last one.
            padded = values if stops.max() < len(values) else np.append(values, 0.0)
            sums[filled] = np.add.reduceat(padded, edges)[::2]
        return sums

    def rowwise(self, function: Callable[..., Float64], *columns: Numbers) -> Float64:
        """``function`` of the columns of each slice, ``[1, n]``, as one ``float64[m]``."""
        return np.concatenate([function(*(column[None, part] for column in columns)) for part in self._parts])

    def class_counts(self) -> ClassCounts:
        """Counts of the classes that occur in a single slice."""
        predicted, truth = self.samples.predicted[self._part], self.samples.truth[self._part]
        n_classes = self.n_classes
        correct = np.bincount(predicted[predicted == truth], minlength=n_classes)
        counts = correct, np.bincount(predicted, minlength=n_classes), np.bincount(truth, minlength=n_classes)
        occurring = counts[1] + counts[2] > 0
        return ClassCounts(*(count[None, occurring] for count in counts))

    def rank_counts(self, label: int) -> RankCounts:
        """Counts at the distinct ranks of a single slice."""
        codes = self.samples.ranks(label, self._part).astype(np.int64) * 2 + (self.samples.truth[self._part] == label)
        codes.sort()
        ends = np.append(np.flatnonzero(np.diff(codes >> 1)) + 1, len(codes))
        positives = np.cumsum(codes & 1)[ends - 1]
        return RankCounts(np.diff(positives, prepend=0)[None], np.diff(ends, prepend=0)[None])

    def ordered_pairs(self, label: int) -> PairCounts:
        """Pairs of each slice: in one walk along the ranking if starts and stops ascend."""
        if len(self.starts) == 1:
            return self.rank_counts(label).ordered_pairs()
        if self.samples.keeps_ranking and (np.diff(self.starts) >= 0).all() and (np.diff(self.stops) >= 0).all():
            ranking = self.samples.ranking(label)
            return PairCounts(*ordered_pairs(self.samples.truth == label, *ranking, self.starts, self.stops))
        pairs = [self.of_part(self.samples, part).ordered_pairs(label) for part in self._parts]
        return PairCounts(*map(np.concatenate, zip(*pairs, strict=True)))

    def mean_over_classes(self, area: Callable[[int], Float64]) -> Float64:
        """Mean of ``area`` over the classes that occur in a single slice."""
        classes = np.flatnonzero(np.bincount(self.samples.truth[self._part])).tolist()
        return np.array([np.mean([float(area(label)[0]) for label in classes])])

    def apart(self, function: Callable[[Outputs, Truth], float]) -> Float64:
        """``function`` of outputs and truth of each slice."""
        return np.array([function(self.samples.outputs[part], self.samples.truth[part]) for part in self._parts])

    @property
    def _parts(self) -> list[slice]:
        return [slice(start, stop) for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]

    @property
    def _part(self) -> slice:
        (part,) = self._parts
        return part


class Resamples:
    """Rows drawn with replacement, ``int64[m, n]``: every step goes over the whole table.

    All outputs must be finite and all classes known: otherwise a resample without the odd sample is another case.

    >>> samples = EvaluationSamples(np.array([[1, 2], [2, 1]], np.float32), np.array([1, 1]))
    >>> Resamples(samples, np.array([[0, 0], [0, 1]])).counts(samples.correct())
    array([2, 1])
    """

    def __init__(self, samples: EvaluationSamples, rows: Int64) -> None:
        self.samples, self.rows = samples, rows

    @property
    def sizes(self) -> Int64:
        """Number of samples, ``int64[m]``."""
        return np.full(len(self.rows), self.rows.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes of the model."""
        return self.samples.n_classes

    def counts(self, flags: Flags) -> Int64:
        """Number of true flags in each resample, ``int64[m]``."""
        return np.asarray(np.count_nonzero(flags[self.rows], axis=1))

    def sums(self, values: Float64, among: Flags | None = None) -> Float64:
        """Sum of values in each resample, of the flagged samples if flags are given, ``float64[m]``."""
        return np.asarray((values if among is None else np.where(among, values, 0.0))[self.rows].sum(axis=1))

    def rowwise(self, function: Callable[..., Float64], *columns: Numbers) -> Float64:
        """``function`` of the drawn columns, ``[m, n]`` each."""
        return function(*(column[self.rows] for column in columns))

    def class_counts(self) -> ClassCounts:
        """Counts of all classes of the model."""
        predicted, truth, n_classes = self.samples.predicted, self.samples.truth, self.n_classes
        correct = _count_by_class(self._weights * (predicted == truth), truth, n_classes)
        counts = (_count_by_class(self._weights, classes, n_classes) for classes in (predicted, truth))
        return ClassCounts(correct, *counts)

    def rank_counts(self, label: int) -> RankCounts:
        """Counts at the ranks of all samples."""
        order, ranks = self.samples.ranking(label)
        starts = np.flatnonzero(np.diff(ranks[order], prepend=-1))
        weights = self._weights[:, order]
        positives = weights * (self.samples.truth[order] == label)
        return RankCounts(_sum_columns(positives, starts), _sum_columns(weights, starts))

    def ordered_pairs(self, label: int) -> PairCounts:
        """Pairs of each resample."""
        return self.rank_counts(label).ordered_pairs()

    def mean_over_classes(self, area: Callable[[int], Float64]) -> Float64:
        """Mean of ``area`` over the classes that occur in each resample."""
        total, occurring = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        for label in np.unique(self.samples.truth).tolist():
            values = area(label)
            defined = np.isfinite(values)
            total, occurring = total + np.where(defined, values, 0.0), occurring + defined
        return np.asarray(total / occurring)

    def apart(self, function: Callable[[Outputs, Truth], float]) -> Float64:
        """``function`` of outputs and truth of each resample."""
        return np.array([function(self.samples.outputs[rows], self.samples.truth[rows]) for rows in self.rows])

    @cached_property
    def _weights(self) -> Float64:
        """Number of times each sample was drawn, ``float64[m, n]``."""
        return count_rowwise(self.rows, len(self.samples))


Groups = Slices | Resamples


def measure_sums(groups: Groups, column: int) -> Float64:
    """Sums of a column of the measures over every group, ``float64[m]``; for models without a label."""
    return groups.sums(groups.samples.outputs[:, column].astype(np.float64))


def quotients(parts: Float64, wholes: Float64, *, of_none: float) -> Float64:
    """Divide elements; ``of_none`` where there is nothing to divide by.

    >>> quotients(np.array([1.0, 0.0]), np.array([2.0, 0.0]), of_none=np.nan)
    array([0.5, nan])
    """
    return np.asarray(np.divide(parts, wholes, out=np.full(np.shape(wholes), of_none), where=wholes > 0))


def count_rowwise(values: Int64, n: int, weights: Float64 | None = None) -> Float64:
    """Number of times each of ``0 .. n - 1`` stands in every row, or the sum of its weights, ``float64[m, n]``.

    >>> count_rowwise(np.array([[0, 0], [0, 1]]), 2)
    array([[2., 0.],
           [1., 1.]])
    """
    bins = values + np.arange(len(values))[:, None] * n
    flat = None if weights is None else weights.ravel()
    return np.bincount(bins.ravel(), flat, minlength=len(values) * n).reshape(len(values), n).astype(np.float64)


def _sum_columns(values: Float64, starts: Int64) -> Float64:
    """Sums of neighbouring columns, from each start to the next."""
    return values if len(starts) == values.shape[1] else np.asarray(np.add.reduceat(values, starts, axis=1))


def _count_by_class(weights: Float64, classes: Int64, n_classes: int) -> Float64:
    """Sum of the weights of the samples of each class, ``float64[m, n_classes]``."""
    order = np.argsort(classes, kind="stable")
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    counts = np.zeros((len(weights), n_classes))
    counts[:, classes[order[starts]]] = _sum_columns(weights[:, order], starts)
    return counts
