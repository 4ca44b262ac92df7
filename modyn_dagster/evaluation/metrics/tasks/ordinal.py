"""Metrics of classes with an order: one kernel each, and the check that says why a slice has no value."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, UndefinedScore, require_known
from modyn_dagster.evaluation.metrics.groups import Groups
from modyn_dagster.evaluation.metrics.losses import Float64, ranked_probability_scores


def rank_mae(groups: Groups) -> Float64:
    """Mean distance of the predicted class from the true one, in ranks.

    Args:
        groups: slices or resamples of classified samples; the prediction is the class of the largest output.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> rank_mae(Slices.whole([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], [0, 0, 2, 0]))
    array([0.75])
    """
    return groups.sums(groups.samples.derived("rank distance", rank_distances)) / groups.sizes


def quadratic_kappa(groups: Groups) -> Float64:
    """Weighted kappa with squared distances of ranks: 1 for no error, 0 for the errors of independent predictions.

    Args:
        groups: slices or resamples of classified samples.

    Source: J. Cohen, Weighted Kappa: Nominal Scale Agreement with Provision for Scaled Disagreement or Partial Credit, 1968.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> quadratic_kappa(Slices.whole([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], [0, 0, 2, 0])).round(3)
    array([0.273])
    """
    samples, n = groups.samples, groups.sizes
    # Sums of whole numbers: exact, so that slices have the same bits alone and together.
    predicted, actual = samples.predicted.astype(np.float64), samples.truth.astype(np.float64)
    observed = n * groups.sums(np.square(predicted - actual))
    expected = n * groups.sums(np.square(predicted) + np.square(actual)) - 2 * groups.sums(predicted) * groups.sums(actual)
    return np.where(expected > 0, 1 - observed / np.where(expected > 0, expected, 1.0), np.nan)


def ranked_probability(groups: Groups) -> Float64:
    """Mean squared difference of the cumulated probabilities from the truth, over all classes but the last: 0 to 1.

    Args:
        groups: slices or resamples of classified samples.

    Source: E. S. Epstein, A Scoring System for Probability Forecasts of Ranked Categories, 1969.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> ranked_probability(Slices.whole([[0, 0, 0], [50, 0, 0]], [1, 2])).round(3)
    array([0.556])
    """
    return groups.sums(groups.samples.derived("ranked probability", ranked_probabilities)) / groups.sizes


def check_ranks(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``CellFailed`` for a class unknown to the model: it has no rank among those that it knows."""
    require_known(samples, part)


def check_kappa(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where truth and predictions are one and the same class, ``CellFailed`` for an unknown class."""
    require_known(samples, part)
    truth, predicted = samples.truth[part], samples.predicted[part]
    if (truth == truth[0]).all() and (predicted == truth[0]).all():
        raise UndefinedScore(f"all samples and predictions are of class {truth[0]}")


def rank_distances(samples: EvaluationSamples) -> Float64:
    """Distance of the predicted class from the true one, ``float64[n]``."""
    return np.asarray(np.abs(samples.predicted - samples.truth), np.float64)


def ranked_probabilities(samples: EvaluationSamples) -> Float64:
    """Ranked probability score, ``float64[n]``; meaningless for samples of an unknown class."""
    return ranked_probability_scores(samples.outputs, samples.known_labels)
