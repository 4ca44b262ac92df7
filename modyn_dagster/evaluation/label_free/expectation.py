"""Expected scores of samples whose labels are independent draws from known probabilities.

F1 and the area under the ROC curve of one class are exact up to a thousand samples: sums over the number of labels of the class,
which follows a Poisson-binomial distribution. Beyond that, and where several classes are averaged of which one may be absent,
the expectation of a ratio is taken for the ratio of expectations, which differs by the order of 1 / n.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.losses import Float64

#: Samples from which on expectations of ratios are approximated: exact ones take a time that grows with the square.
MOST_EXACT: Final = 1000


class Expected(NamedTuple):
    """Expectation of a score among the labels for which it is defined, and the probability of those."""

    value: float
    defined: float


def expected_f1(shares: Float64, predicted: npt.NDArray[np.bool_]) -> Expected:
    """Expected F1 of one class; it is undefined where the class neither occurs nor is predicted.

    Args:
        shares: probability of the class, ``float64[n]``.
        predicted: samples that the model gives the class, ``bool[n]``.

    >>> expected_f1(np.array([0.5, 0.0]), np.array([True, False]))
    Expected(value=0.5, defined=1.0)
    """
    n_predicted = int(predicted.sum())
    if n_predicted == 0:
        return Expected(0.0, 1 - float(np.prod(1 - shares)))
    if len(shares) > MOST_EXACT:
        return Expected(float(2 * shares[predicted].sum() / (n_predicted + shares.sum())), 1.0)
    hits, misses = poisson_binomial(shares[predicted]), poisson_binomial(shares[~predicted])
    found, missed = np.arange(len(hits))[:, None], np.arange(len(misses))
    return Expected(float(hits @ (2 * found / (n_predicted + found + missed)) @ misses), 1.0)


def expected_roc_auc(shares: Float64, ranks: npt.NDArray[np.int32]) -> Expected:
    """Expected area under the ROC curve of one class; it is undefined where all samples are of the class, or none is.

    Args:
        shares: probability of the class, ``float64[n]``.
        ranks: of the samples by the model's probability, ascending, ``int32[n]``; equal ranks are ties.

    >>> expected_roc_auc(np.array([0.5, 0.5]), np.array([0, 1], np.int32))
    Expected(value=0.5, defined=0.5)
    """
    order = np.argsort(ranks, kind="stable")
    if len(shares) > MOST_EXACT:
        return _ratio_of_pairs(shares[order], ranks[order])
    backwards = np.lexsort((-np.arange(len(ranks)), ranks))
    # A tie counts half: it is a pair in order in exactly one of two orders that turn the ties around.
    (first, counts), (second, _) = _ordered_pairs(shares[order]), _ordered_pairs(shares[backwards])
    positives = np.arange(1, len(shares))
    defined = float(counts[1:-1].sum())
    areas = (first + second)[1:-1] / (2 * positives * (len(shares) - positives))
    return Expected(float(areas.sum()) / defined if defined > 0 else np.nan, defined)


def mean_over_classes(scores: list[Expected]) -> float:
    """Mean over the classes that occur; exact where each of them surely does.

    >>> mean_over_classes([Expected(0.5, 1.0), Expected(1.0, 1.0), Expected(0.0, 0.0)])
    0.75
    """
    occurring = sum(score.defined for score in scores)
    return sum(score.value * score.defined for score in scores if score.defined > 0) / occurring if occurring > 0 else np.nan


def poisson_binomial(shares: Float64) -> Float64:
    """Distribution of the number of successes of independent trials, ``float64[n + 1]``.

    >>> poisson_binomial(np.array([0.5, 0.5]))
    array([0.25, 0.5 , 0.25])
    """
    counts = np.zeros(len(shares) + 1)
    counts[0] = 1.0
    for number, share in enumerate(shares.tolist(), 1):
        counts[1 : number + 1] = counts[1 : number + 1] * (1 - share) + counts[:number] * share
        counts[0] *= 1 - share
    return counts


def _ordered_pairs(shares: Float64) -> tuple[Float64, Float64]:
    """Expected pairs of a negative before a positive, and probability, by the number of positives, ``float64[n + 1]`` both."""
    pairs, counts = np.zeros(len(shares) + 1), np.zeros(len(shares) + 1)
    counts[0] = 1.0
    for number, share in enumerate(shares.tolist(), 1):
        # A positive comes after all samples before it that are no positives.
        negatives = number - 1 - np.arange(number)
        gained = share * (pairs[:number] + negatives * counts[:number])
        pairs[:number] *= 1 - share
        pairs[1 : number + 1] += gained
        found = share * counts[:number]
        counts[:number] *= 1 - share
        counts[1 : number + 1] += found
    return pairs, counts


def _ratio_of_pairs(shares: Float64, ranks: npt.NDArray[np.int32]) -> Expected:
    others = 1 - shares
    starts = np.flatnonzero(np.diff(ranks, prepend=-1))
    tied, tied_others = np.add.reduceat(shares, starts), np.add.reduceat(others, starts)
    same = np.add.reduceat(shares * others, starts)
    ordered = (tied * (np.cumsum(tied_others) - tied_others)).sum() + ((tied * tied_others - same) / 2).sum()
    pairs = shares.sum() * others.sum() - same.sum()
    present = -np.expm1(np.log1p(-np.minimum(shares, 1 - 1e-16)).sum())
    return Expected(float(ordered / pairs) if pairs > 0 else np.nan, float(present))
