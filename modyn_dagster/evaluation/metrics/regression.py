"""Metrics of regressions: one kernel each, and the check that says why a slice has no value.

Of several targets, each is the mean over the targets, or of one of them by its number (``mae_output_1``).
"""

from collections.abc import Callable

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import CellFailed, EvaluationSamples, UndefinedScore
from modyn_dagster.evaluation.metrics.groups import Groups
from modyn_dagster.evaluation.metrics.losses import Float64


def mae(groups: Groups, output: int | None = None) -> Float64:
    """Mean absolute error.

    Args:
        groups: slices or resamples of samples with a target, or several.
        output: number of one of several targets.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> mae(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0]))
    array([0.5])
    """
    return _over_targets(groups, lambda _, errors: np.asarray(np.abs(errors).mean(axis=1)), output)


def mse(groups: Groups, output: int | None = None) -> Float64:
    """Mean squared error.

    Args:
        groups: slices or resamples of samples with a target, or several.
        output: number of one of several targets.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> mse(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0]))
    array([1.])
    """
    return _over_targets(groups, lambda _, errors: np.asarray(np.square(errors).mean(axis=1)), output)


def r2(groups: Groups, output: int | None = None) -> Float64:
    """Coefficient of determination: 1 for no error, 0 for errors as large as those of the mean target.

    Args:
        groups: slices or resamples of samples with a target, or several.
        output: number of one of several targets.

    Source: S. Wright, Correlation and Causation, 1921.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> r2(Slices.whole([[1], [2], [3], [4]], [1.0, 2.0, 3.0, 6.0])).round(3)
    array([0.714])
    """
    return _over_targets(groups, _determination, output)


def check_output(samples: EvaluationSamples, _part: slice, output: int | None = None) -> None:
    """Raise ``CellFailed`` for the number of a target that there is not."""
    n_targets = samples.truth.shape[1] if samples.truth.ndim > 1 else 1
    if output is not None and output >= n_targets:
        raise CellFailed(f"there is no target {output}: they are 0 to {n_targets - 1}")


def check_spread(samples: EvaluationSamples, part: slice, output: int | None = None) -> None:
    """Raise ``UndefinedScore`` where all values of a target that counts are equal."""
    check_output(samples, part, output)
    for targets in _columns(samples.truth, output):
        if targets[part].min() == targets[part].max() or np.square(targets[part] - targets[part].mean()).sum() == 0:
            raise UndefinedScore(f"all targets are {targets[part][0]:g}")


def _over_targets(groups: Groups, function: Callable[[Float64, Float64], Float64], output: int | None) -> Float64:
    """Mean over the targets of a function of truth and errors, ``[m, n]`` each."""
    truth, errors = groups.samples.truth, groups.samples.errors
    values = [groups.rowwise(function, *pair) for pair in zip(_columns(truth, output), _columns(errors, output), strict=True)]
    return values[0] if len(values) == 1 else np.asarray(np.mean(values, axis=0))


def _columns(values: Float64, output: int | None) -> list[Float64]:
    """Columns that count: one column alone, one of several by its number, or all of them."""
    if values.ndim == 1:
        return [values]
    return [values[:, place] for place in ([output] if output is not None else range(values.shape[1]))]


def _determination(targets: Float64, errors: Float64) -> Float64:
    spread = np.square(targets - targets.mean(axis=1, keepdims=True)).sum(axis=1)
    undefined = targets.min(axis=1) == targets.max(axis=1)
    return np.where(undefined, np.nan, 1 - np.square(errors).sum(axis=1) / spread)
