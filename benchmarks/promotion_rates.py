"""Rates at which tests of two models promote on simulated streams, and the samples that they need."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.promotion_streams import Float64, Pair, Stream, classifiers, equal_scores
from modyn_dagster.evaluation.paired.block_bootstrap import bootstrap_verdict
from modyn_dagster.evaluation.paired.confidence_sequence import DifferenceState, Running, log_evidence
from modyn_dagster.evaluation.paired.mcnemar import DiscordantState, mcnemar_verdict


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
    """Promotions by the block bootstrap of ROC-AUC, with some looks, evenly spaced."""
    claimed = 0
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        drawn = equal_scores(rng, n, correlation)
        for look, end in enumerate(np.linspace(0, n, looks + 1).astype(int)[1:].tolist(), 1):
            parts = (drawn.ours[:end], drawn.theirs[:end], drawn.truth[:end])
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
