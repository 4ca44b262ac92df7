"""Streams of two models whose true difference is known."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Differences of two models along a stream, ``float64[n]``, the expectation of each given all before, and that of all."""

    differences: Float64
    conditional: Float64
    marginal: float


Stream = Callable[[np.random.Generator, int], Pair]


def _signs(rng: np.random.Generator, wins: Float64, losses: Float64) -> Float64:
    """Differences of two classifiers: 1 with probability ``wins``, -1 with probability ``losses``, else 0."""
    drawn = rng.random(len(wins))
    return np.where(drawn < wins, 1.0, np.where(drawn < wins + losses, -1.0, 0.0))


def no_difference(rng: np.random.Generator, n: int) -> Pair:
    """Classifiers that differ on a tenth of the samples, each right on half of them."""
    share = np.full(n, 0.05)
    return Pair(_signs(rng, share, share), np.zeros(n), 0.0)


def at_the_margin(rng: np.random.Generator, n: int) -> Pair:
    """Classifiers whose difference is 0.03, the margin that they are tested against."""
    return Pair(_signs(rng, np.full(n, 0.07), np.full(n, 0.04)), np.full(n, 0.03), 0.03)


def losses_at_zero(rng: np.random.Generator, n: int) -> Pair:
    """Skewed differences of bounded losses with mean 0: many small ones in favour of the candidate, a few large ones against."""
    drawn = rng.random(n)
    return Pair(np.where(drawn < 0.05, -0.95, 0.05), np.zeros(n), 0.0)


def correlated_sizes(rng: np.random.Generator, n: int) -> Pair:
    """Differences of mean 0 given all before, in bursts: how often the models differ has an autocorrelation of 0.9."""
    share = 0.1 / (1 + np.exp(-2 * _autoregressive(rng, n, 0.9)))
    return Pair(_signs(rng, share, share), np.zeros(n), 0.0)


def correlated_means(rng: np.random.Generator, n: int) -> Pair:
    """Differences whose expectation given all before wanders around 0 with an autocorrelation of 0.9: 0 in the long run."""
    mean = 0.08 * np.tanh(_autoregressive(rng, n, 0.9))
    return Pair(_signs(rng, 0.05 + mean / 2, 0.05 - mean / 2), mean, 0.0)


def reversing_drift(rng: np.random.Generator, n: int) -> Pair:
    """Candidate that is worse by 0.06 in the first half of the stream, and better by 0.06 in the second: never better so far."""
    mean = np.where(np.arange(n) < n / 2, -0.06, 0.06)
    return Pair(_signs(rng, 0.05 + mean / 2, 0.05 - mean / 2), mean, 0.0)


def classifiers(difference: float, differing: float) -> Stream:
    """Return a stream of two classifiers with a difference of accuracies that differ on a share of the samples."""

    def drawn(rng: np.random.Generator, n: int) -> Pair:
        wins, losses = np.full(n, (differing + difference) / 2), np.full(n, (differing - difference) / 2)
        return Pair(_signs(rng, wins, losses), np.full(n, difference), difference)

    return drawn


#: Streams on which no test should promote, with the margin. All but ``correlated means`` have a running mean of conditional
#: expectations that never exceeds it.
NULL_STREAMS: Final[dict[str, tuple[Stream, float]]] = {
    "no difference": (no_difference, 0.0),
    "difference = margin": (at_the_margin, 0.03),
    "skewed losses": (losses_at_zero, 0.0),
    "bursts, autocorrelation 0.9": (correlated_sizes, 0.0),
    "reversing drift": (reversing_drift, 0.0),
    "means wander, autocorrelation 0.9": (correlated_means, 0.0),
}


class EqualScores(NamedTuple):
    """Classes of a stream, ``int64[n]``, and the outputs of two models that are equally good at them, ``float32[n, 2]``."""

    truth: npt.NDArray[np.int64]
    ours: npt.NDArray[np.float32]
    theirs: npt.NDArray[np.float32]


def equal_scores(rng: np.random.Generator, n: int, correlation: float) -> EqualScores:
    """Draw scores of equal ROC-AUC; classes and errors have an autocorrelation along the stream."""
    truth = (_autoregressive(rng, n, correlation) > 0.5).astype(np.int64)
    return EqualScores(truth, _outputs(rng, truth, correlation), _outputs(rng, truth, correlation))


def _outputs(rng: np.random.Generator, truth: npt.NDArray[np.int64], correlation: float) -> npt.NDArray[np.float32]:
    score = truth + 1.5 * _autoregressive(rng, len(truth), correlation)
    return np.asarray(np.stack([np.zeros(len(truth)), score], axis=1), np.float32)


def _autoregressive(rng: np.random.Generator, n: int, correlation: float) -> Float64:
    """Stationary normal numbers of variance 1 whose neighbours are correlated."""
    from scipy.signal import lfilter

    noise = rng.standard_normal(n)
    # The filter scales every number; the first one has variance 1 by itself.
    noise[1:] *= np.sqrt(1 - correlation**2)
    return np.asarray(lfilter([1.0], [1.0, -correlation], noise))
