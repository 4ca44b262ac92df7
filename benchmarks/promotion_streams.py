"""Streams of differences between two models whose true difference is known, and the rates at which tests promote on them."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.paired.block_bootstrap import bootstrap_verdict
from modyn_dagster.evaluation.paired.confidence_sequence import DifferenceState, Running, log_evidence
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState, mcnemar_verdict

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


class Promotions(NamedTuple):
    """Streams on which a test said ``better`` at any look.

    Attributes:
        streams: number of streams.
        claimed: those on which it did.
        false: those on which it did while the mean of conditional expectations so far did not exceed the margin.
    """

    streams: int
    claimed: int
    false: int


def sequence_promotions(stream: Stream, margin: float, *, streams: int, n: int, alpha: float, seed: int) -> Promotions:
    """Promotions by the confidence sequence, with a look after each of n samples."""
    claimed = false = 0
    for pair in _pairs(stream, streams, n, seed):
        better = log_evidence(DifferenceState().running(pair.differences), margin) > -np.log(alpha)
        true_mean = np.cumsum(pair.conditional) / np.arange(1, n + 1)
        claimed += bool(better.any())
        # A tolerance for the sum of rounded means.
        false += bool((better & (true_mean <= margin + 1e-12)).any())
    return Promotions(streams, claimed, false)


def mcnemar_promotions(
    stream: Stream, *, streams: int, n: int, alpha: float, seed: int, looks: int = 20, spends: bool = True
) -> Promotions:
    """Promotions by McNemar's test at some looks, evenly spaced; without ``spends`` each of them has the whole error."""
    # The first look spends a half.
    given = alpha if spends else 2 * alpha
    claimed = false = 0
    for pair in _pairs(stream, streams, n, seed):
        state, true_means = DiscordantState(), np.cumsum(pair.conditional)
        for end in np.linspace(0, n, looks + 1).astype(int)[1:].tolist():
            state = state.updated(pair.differences[state.n : end])
            verdict, state = mcnemar_verdict(state if spends else DiscordantState(state.n, state.wins, state.losses), alpha=given)
            if verdict.result == "better":
                claimed += 1
                false += bool(true_means[end - 1] <= 1e-9)
                break
    return Promotions(streams, claimed, false)


def bootstrap_promotions(
    *, correlation: float, streams: int, n: int, alpha: float, seed: int, looks: int = 2, block: int | None = None
) -> Promotions:
    """Promotions by the block bootstrap of ROC-AUC: scores of equal quality, labels and errors correlated along the stream."""
    claimed = 0
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        truth = (_autoregressive(rng, n, correlation) > 0.5).astype(np.int64)
        outputs = [_outputs(rng, truth, correlation) for _ in range(2)]
        for look, end in enumerate(np.linspace(0, n, looks + 1).astype(int)[1:].tolist(), 1):
            parts = (outputs[0][:end], outputs[1][:end], truth[:end])
            if bootstrap_verdict("roc_auc", *parts, alpha=alpha, look=look, block=block, seed=number).result == "better":
                claimed += 1
                break
    return Promotions(streams, claimed, claimed)


def samples_until_better(
    difference: float, differing: float, *, streams: int, most: int, every: int, alpha: float, seed: int
) -> Float64:
    """Samples until the confidence sequence says ``better``, ``float64[streams]``; infinite where ``most`` do not suffice.

    Args:
        difference: of the accuracies.
        differing: share of samples on which one of the two models alone is right.
        streams: number of streams.
        most: samples of each.
        every: samples between two looks.
        alpha: error probability.
        seed: of the streams.
    """
    found, stream = [], classifiers(difference, differing)
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        run = DifferenceState().running(stream(rng, most).differences)
        at = slice(every - 1, None, every)
        looks = Running(run.n[at], run.total[at], run.squares[at])
        better = np.flatnonzero(log_evidence(looks, 0.0) > -np.log(alpha))
        found.append(float(looks.n[better[0]]) if len(better) else np.inf)
    return np.array(found)


def _pairs(stream: Stream, streams: int, n: int, seed: int) -> Iterator[Pair]:
    return (stream(np.random.default_rng([seed, number]), n) for number in range(streams))


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
