"""Stationary bootstrap of the difference of a metric of two models, for metrics that are no means of losses, such as ROC-AUC.

Resamples consist of stretches of the stream, begun anywhere and of random length, and of the same rows for both models. So
they keep the dependence of samples that are near each other. The bound is the quantile of the differences. It holds
approximately, for many samples of a stationary stream whose dependence is short against the blocks. One look costs one
error probability, so looks are counted and spend it.

Source: D. N. Politis, J. P. Romano, The stationary bootstrap, Journal of the American Statistical Association 1994.
"""

import math
from typing import Final

import numpy as np

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.confidence import score_resamples
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Int64, Outputs, Truth
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.metrics.registry import find_metric, score
from modyn_dagster.evaluation.paired.spending import spent_alpha
from modyn_dagster.evaluation.paired.verdict import Bounds, PairedVerdict, judged, undecided
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.tasks.metrics import has_sample_losses, lower_is_better

#: Resamples at least, and those beyond the quantile of the two-sided interval.
_FEWEST: Final = 1000
_BEYOND: Final = 20
#: Rows drawn at once, for memory.
_MOST_DRAWN: Final = 1 << 20


def block_length(n: int) -> int:
    """Mean length of blocks for n samples: the cube root, rounded up.

    >>> block_length(1000), block_length(1001)
    (10, 11)
    """
    root = int(n ** (1 / 3))
    # The root of 1,000 is 9.999… in floating point.
    return max(1, next(length for length in (root, root + 1, root + 2) if length**3 >= n))


def stationary_rows(n: int, resamples: int, block: float, rng: np.random.Generator) -> Int64:
    """Draw rows of resamples, ``int64[resamples, n]``.

    Each row is followed by the next one of the stream, the last by the first, or with probability ``1 / block`` by any.

    >>> stationary_rows(5, 1, np.inf, np.random.default_rng(0))
    array([[3, 4, 0, 1, 2]])
    """
    begins = rng.random((resamples, n)) < 1 / block
    begins[:, 0] = True
    places = np.arange(n)
    last_begin = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    starts = rng.integers(0, n, (resamples, n))
    return np.asarray((np.take_along_axis(starts, last_begin, axis=1) + places - last_begin) % n)


def bootstrap_verdict(  # noqa: PLR0913 - all but the data have defaults and are given by name
    metric: str,
    candidate: Outputs,
    incumbent: Outputs,
    truth: Truth,
    *,
    alpha: float = 0.05,
    margin: float = 0.0,
    look: int = 1,
    min_samples: int = 1,
    block: int | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> PairedVerdict:
    """Verdict of one look at all samples so far.

    Args:
        metric: no mean of losses; a name of ``METRICS``, with its parameters, or an import path.
        candidate, incumbent: outputs ``float32[n, k]`` in stream order.
        truth: classes ``int64[n]`` from 0 on, or targets ``float64[n]``.
        alpha: error probability of all looks together; the k-th spends ``alpha / (k (k + 1))``.
        margin: in the unit of the metric.
        look: number of this look, from 1 on.
        min_samples: with fewer samples the verdict is open.
        block: mean length of blocks; default: the cube root of n.
        resamples: default: 1,000, or as many that 20 lie beyond each end of the interval.
        seed: of the draws.

    Raises:
        ConfigError: the metric is a mean of losses, which the other tests are exact for.
    """
    if has_sample_losses(metric):
        rule = "is a mean over samples; test it with confidence_sequence, which holds for any number of samples"
        raise ConfigError("paired test", "metric", metric, rule)
    if block is not None and block < 1:
        raise ConfigError("paired test", "block", block, "must be at least 1")
    n, spent, confidence = len(truth), spent_alpha(alpha, look), 1 - alpha
    if n < max(1, min_samples):
        return undecided(f"{n:,} samples, at least {max(1, min_samples):,} are needed", n, margin=margin, confidence=confidence)
    sign = -1.0 if lower_is_better(metric) else 1.0
    ours, theirs = score(metric, candidate, truth), score(metric, incumbent, truth)
    if ours.value is None or theirs.value is None:
        name, reason = ("candidate", ours.reason) if ours.value is None else ("incumbent", theirs.reason)
        return undecided(f"the {name} has no {metric}: {reason}", n, margin=margin, confidence=confidence)
    difference = sign * (ours.value - theirs.value)
    wanted = resamples or max(_FEWEST, math.ceil(2 * _BEYOND / spent))
    drawn = _differences(metric, candidate, incumbent, truth, wanted, block or block_length(n), seed)
    defined = sign * drawn[np.isfinite(drawn)]
    if len(defined) < max(_BEYOND, wanted // 2):
        reason = f"{metric} is undefined in {wanted - len(defined):,} of {wanted:,} resamples"
        return undecided(reason, n, margin=margin, confidence=confidence)
    ends = np.quantile(defined, [spent, 1 - spent, spent / 2, 1 - spent / 2])
    return judged(n, difference, Bounds(*map(float, ends)), margin=margin, confidence=confidence)


def _differences(
    metric: str, candidate: Outputs, incumbent: Outputs, truth: Truth, resamples: int, block: int, seed: int
) -> Float64:
    """Differences of the metric on resamples, ``float64[resamples]``; NaN where one of the two is undefined."""
    n, entry, rng, parts = len(truth), find_metric(metric), rng_for(seed, "block bootstrap"), [np.empty(0)]
    ours, theirs = EvaluationSamples(candidate, truth), EvaluationSamples(incumbent, truth)
    at_once = max(1, _MOST_DRAWN // n)
    for begin in range(0, resamples, at_once):
        rows = stationary_rows(n, min(at_once, resamples - begin), block, rng)
        parts.append(score_resamples(entry, ours, rows) - score_resamples(entry, theirs, rows))
    return np.concatenate(parts)
