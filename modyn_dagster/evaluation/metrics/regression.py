"""Metrics of regressions: one kernel each, and the check that says why a slice has no value."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, UndefinedScore
from modyn_dagster.evaluation.metrics.groups import Groups
from modyn_dagster.evaluation.metrics.losses import Float64


def mae(groups: Groups) -> Float64:
    """Mean absolute error.

    Args:
        groups: slices or resamples of samples with a target.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> mae(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0]))
    array([0.5])
    """
    return groups.rowwise(lambda errors: np.asarray(np.abs(errors).mean(axis=1)), groups.samples.errors)


def mse(groups: Groups) -> Float64:
    """Mean squared error.

    Args:
        groups: slices or resamples of samples with a target.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> mse(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0]))
    array([1.])
    """
    return groups.rowwise(lambda errors: np.asarray(np.square(errors).mean(axis=1)), groups.samples.errors)


def r2(groups: Groups) -> Float64:
    """Coefficient of determination: 1 for no error, 0 for errors as large as those of the mean target.

    Args:
        groups: slices or resamples of samples with a target.

    Source: S. Wright, Correlation and Causation, 1921.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> r2(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0])).round(3)
    array([0.714])
    """
    return groups.rowwise(_determination, groups.samples.truth, groups.samples.errors)


def check_spread(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where all targets are equal."""
    targets = samples.truth[part]
    if targets.min() == targets.max() or np.square(targets - targets.mean()).sum() == 0:
        raise UndefinedScore(f"all targets are {targets[0]:g}")


def _determination(targets: Float64, errors: Float64) -> Float64:
    spread = np.square(targets - targets.mean(axis=1, keepdims=True)).sum(axis=1)
    undefined = targets.min(axis=1) == targets.max(axis=1)
    return np.where(undefined, np.nan, 1 - np.square(errors).sum(axis=1) / spread)
