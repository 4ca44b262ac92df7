"""Metrics of models without a label. Instead of outputs they read the measures of the objective, and no truth."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Outputs, Truth, UndefinedScore
from modyn_dagster.evaluation.metrics.groups import Groups, measure_sums
from modyn_dagster.evaluation.metrics.losses import Float64, unit_rows, view_distances

#: Largest number of consecutive samples that are compared with each other by ``nt_xent`` and ``uniformity``.
TOGETHER: Final = 256


def reconstruction_mse(groups: Groups) -> Float64:
    """Mean over the samples of the mean squared error of a sample's values.

    Args:
        groups: slices or resamples of measures ``[mean squared error, mean absolute error]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> reconstruction_mse(Slices.whole([[4, 2], [0, 0]], [0.0, 0.0]))
    array([2.])
    """
    return measure_sums(groups, 0) / groups.sizes


def reconstruction_mae(groups: Groups) -> Float64:
    """Mean over the samples of the mean absolute error of a sample's values.

    Args:
        groups: as of ``reconstruction_mse``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> reconstruction_mae(Slices.whole([[4, 2], [0, 0]], [0.0, 0.0]))
    array([1.])
    """
    return measure_sums(groups, 1) / groups.sizes


def token_cross_entropy(groups: Groups) -> Float64:
    """Mean cross-entropy of the predicted tokens, in nats; every token counts the same.

    Args:
        groups: slices or resamples of measures ``[sum of cross-entropies, tokens right, tokens]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> token_cross_entropy(Slices.whole([[6, 1, 3], [2, 1, 1]], [0.0, 0.0]))
    array([2.])
    """
    return measure_sums(groups, 0) / measure_sums(groups, 2)


def perplexity(groups: Groups) -> Float64:
    """Exponential of the token cross-entropy.

    Args:
        groups: as of ``token_cross_entropy``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> perplexity(Slices.whole([[0, 3, 3]], [0.0]))
    array([1.])
    """
    return np.asarray(np.exp(token_cross_entropy(groups)))


def token_accuracy(groups: Groups) -> Float64:
    """Share of the predicted tokens that the largest output names; of hidden tokens with ``masked_tokens``.

    Args:
        groups: as of ``token_cross_entropy``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> token_accuracy(Slices.whole([[6, 1, 3], [2, 1, 1]], [0.0, 0.0]))
    array([0.5])
    """
    return measure_sums(groups, 1) / measure_sums(groups, 2)


def alignment(groups: Groups) -> Float64:
    """Mean squared distance of the two views of a sample on the unit sphere, from 0 to 4.

    Args:
        groups: slices or resamples of measures: the scaled embeddings of both views.

    Source: Wang and Isola, Understanding Contrastive Representation Learning, ICML 2020.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> alignment(Slices.whole([[1, 0, 0, 1], [3, 0, 3, 0]], [0.0, 0.0]))
    array([1.])
    """
    return groups.apart(lambda rows, _: float(view_distances(rows).mean()))


def uniformity(groups: Groups) -> Float64:
    """Logarithm of the mean of ``exp(-2 d)`` over the squared distances d of pairs of first views; the lower, the more spread.

    Pairs are those of at most 256 consecutive samples.

    Args:
        groups: slices of measures as of ``alignment``.

    Source: Wang and Isola, Understanding Contrastive Representation Learning, ICML 2020.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> uniformity(Slices.whole([[1, 0, 1, 0], [-1, 0, -1, 0]], [0.0, 0.0]))
    array([-8.])
    """
    return groups.apart(_chunked(_potential, lambda total, n: math.log(total / n)))


def nt_xent(groups: Groups) -> Float64:
    """Mean NT-Xent of both views, each against the views of at most 255 other samples: those around it in the stream.

    Args:
        groups: slices of measures as of ``alignment``.

    Source: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> nt_xent(Slices.whole([[1, 0, 1, 0], [0, 1, 0, 1]], [0.0, 0.0])).round(4)
    array([0.5514])
    """
    return groups.apart(_chunked(_contrast, lambda total, n: total / n))


def check_pairs(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` for a single sample, which has nothing to be compared with."""
    if len(samples.truth[part]) < 2:
        raise UndefinedScore("1 sample, and samples are compared with each other")


def check_tokens(samples: EvaluationSamples, part: slice) -> None:
    """Raise ``UndefinedScore`` where no token is predicted."""
    if not samples.outputs[part, 2].any():
        raise UndefinedScore("no token of these samples is predicted")


def _chunked(
    of_chunk: Callable[[Float64], tuple[float, int]], joined: Callable[[float, int], float]
) -> Callable[[Outputs, Truth], float]:
    """Metric of sums over chunks of consecutive samples, about equally large."""

    def value(rows: Outputs, _: Truth) -> float:
        chunks = np.array_split(rows.astype(np.float64), -(-len(rows) // TOGETHER))
        totals, counts = zip(*map(of_chunk, chunks), strict=True)
        return joined(math.fsum(totals), sum(counts))

    return value


def _potential(rows: Float64) -> tuple[float, int]:
    first = unit_rows(np.split(rows, 2, axis=1)[0])
    upper = np.triu_indices(len(first), 1)
    distances = np.square(first[upper[0]] - first[upper[1]]).sum(axis=1)
    return float(np.exp(-2 * distances).sum()), len(distances)


def _contrast(rows: Float64) -> tuple[float, int]:
    views = rows.reshape(2 * len(rows), -1)
    similarities = views @ views.T
    partners = similarities[np.arange(len(views)), np.arange(len(views)) ^ 1]
    np.fill_diagonal(similarities, -np.inf)
    largest = similarities.max(axis=1)
    losses = np.log(np.exp(similarities - largest[:, None]).sum(axis=1)) + largest - partners
    return float(losses.sum()), len(losses)
