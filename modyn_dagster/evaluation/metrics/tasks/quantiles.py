"""Metrics of quantiles of a target: one kernel each, and the checks that say why a slice has no value."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import CellFailed, EvaluationSamples
from modyn_dagster.evaluation.metrics.groups import Groups
from modyn_dagster.evaluation.metrics.losses import Float64, pinball_losses

#: Outputs of an interval.
_ENDS = 2


def pinball(groups: Groups, levels: tuple[float, ...] = ()) -> Float64:
    """Mean pinball loss, over samples and quantiles.

    Args:
        groups: slices or resamples of samples with a target; outputs are quantiles.
        levels: quantile of each output (``pinball_q10_q50_q90``).

    Source: R. Koenker and G. Bassett, Regression Quantiles, 1978.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> pinball(Slices.whole([[1, 3], [1, 3]], [2.0, 4.0]), levels=(0.1, 0.9)).round(3)
    array([0.35])
    """

    def losses(samples: EvaluationSamples) -> Float64:
        return pinball_losses(samples.outputs, samples.truth, levels)

    return groups.sums(groups.samples.derived(("pinball", levels), losses)) / groups.sizes


def coverage(groups: Groups) -> Float64:
    """Share of samples whose target lies between the lowest and the highest quantile, ends included.

    Args:
        groups: slices or resamples of samples with a target; outputs are quantiles, ascending.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> coverage(Slices.whole([[1, 3], [1, 3], [1, 3], [1, 3]], [0.0, 1.0, 2.0, 3.0]))
    array([0.75])
    """
    return groups.sums(groups.samples.derived("covered", _covered)) / groups.sizes


def interval_width(groups: Groups) -> Float64:
    """Mean distance of the highest quantile from the lowest.

    Args:
        groups: slices or resamples of samples; outputs are quantiles, ascending.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> interval_width(Slices.whole([[1, 2, 3], [1, 2, 6]], [0.0, 0.0]))
    array([3.5])
    """
    return groups.sums(groups.samples.derived("interval width", _widths)) / groups.sizes


def check_levels(samples: EvaluationSamples, _part: slice, levels: tuple[float, ...] = ()) -> None:
    """Raise ``CellFailed`` unless every output has its quantile."""
    if samples.outputs.shape[1] != len(levels):
        raise CellFailed(f"the metric names {len(levels)} quantiles, the model has {samples.outputs.shape[1]} outputs")


def check_interval(samples: EvaluationSamples, _part: slice) -> None:
    """Raise ``CellFailed`` for a single quantile, which is no interval."""
    if samples.outputs.shape[1] < _ENDS:
        raise CellFailed("an interval needs two quantiles, and the model has one output")


def _covered(samples: EvaluationSamples) -> Float64:
    outputs, targets = samples.outputs.astype(np.float64), samples.truth
    return ((outputs[:, 0] <= targets) & (targets <= outputs[:, -1])).astype(np.float64)


def _widths(samples: EvaluationSamples) -> Float64:
    outputs = samples.outputs.astype(np.float64)
    return np.asarray(outputs[:, -1] - outputs[:, 0])
