"""Confusion of classifiers: counts of true and predicted classes, of single models and of composite models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Confusion:
    """Number of samples of every pair of a true and a predicted class that occurs, in order of both.

    Attributes:
        truth, predicted: classes, ``int64[m]``.
        counts: samples, ``int64[m]``.
    """

    truth: Int64
    predicted: Int64
    counts: Int64

    @classmethod
    def of(cls, outputs: npt.NDArray[np.float32], truth: Int64) -> Self:
        """Count the samples of one model.

        Args:
            outputs: logits ``float32[n, k]``; the class of the largest one is predicted, of equal ones the lower class. Samples
                with nonfinite outputs are left out.
            truth: classes ``int64[n]``; negative ones have no label and are left out.

        >>> Confusion.of(np.array([[2, 1], [0, 1], [3, 0], [0, 2]], np.float32), np.array([0, 1, 1, -1]))
        Confusion(truth=array([0, 1, 1]), predicted=array([0, 0, 1]), counts=array([1, 1, 1]))
        """
        counted = (truth >= 0) & np.isfinite(outputs).all(axis=1)
        samples = EvaluationSamples(outputs[counted], truth[counted])
        return cls._counted(samples.truth, samples.predicted, np.ones(len(samples), np.int64))

    @classmethod
    def total(cls, parts: Sequence[Self]) -> Self:
        """Add up the counts of disjoint samples."""
        columns = [np.concatenate([np.empty(0, np.int64), *column]) for column in _columns(parts)]
        return cls._counted(*columns)

    @classmethod
    def _counted(cls, truth: Int64, predicted: Int64, counts: Int64) -> Self:
        classes = int(max(truth.max(initial=0), predicted.max(initial=0))) + 1
        pairs, groups = np.unique(truth * classes + predicted, return_inverse=True)
        totals = np.zeros(len(pairs), np.int64)
        np.add.at(totals, groups, counts)
        return cls(pairs // classes, pairs % classes, totals)

    @property
    def n_samples(self) -> int:
        """Samples of all pairs."""
        return int(self.counts.sum())

    def classes(self) -> Int64:
        """Classes that occur among samples or predictions, ascending."""
        return np.union1d(self.truth, self.predicted)


def _columns(parts: Sequence[Confusion]) -> tuple[list[Int64], list[Int64], list[Int64]]:
    return [p.truth for p in parts], [p.predicted for p in parts], [p.counts for p in parts]


@dataclass(frozen=True, slots=True)
class CompositeConfusion:
    """Confusion of a composite model: in each interval of the model that stands for it.

    Attributes:
        confusion: over the counted intervals; a sample in several of them counts in each.
        n_intervals: intervals that are counted.
        n_scored: intervals in which the composite model has a score; the predictions of others are removed or too many to read.
    """

    confusion: Confusion
    n_intervals: int
    n_scored: int


@dataclass(frozen=True, slots=True)
class RunConfusion:
    """Confusion of the composite models of a run.

    Attributes:
        names: of the classes, by number; further classes are shown by their numbers.
        composites: by name of the composite model, ``active`` and ``trained``.
    """

    names: tuple[str, ...]
    composites: Mapping[str, CompositeConfusion]

    def name_of(self, number: int) -> str:
        """Name of a class."""
        return self.names[number] if number < len(self.names) else str(number)
