"""Block bootstrap of the difference of a metric of two models, for metrics that are no means of losses, such as ROC-AUC.

Resamples consist of stretches of the stream, begun anywhere, of one length and of the same rows for both models, so they keep
the dependence of samples that are near each other. Their spread gives the standard error of the difference, and Student's t with
as many values as there are blocks the bounds: a spread that few blocks show is itself uncertain. By default blocks are as long
as that costs the bounds no more than a factor, so they grow in proportion to the stream. It holds approximately: for a
stationary stream whose dependence is short against the blocks. One look costs one error probability, so looks are counted and
spend it.

Sources: D. N. Politis, J. P. Romano, A circular block-resampling procedure for stationary data, 1992; R. Ibragimov, U. K. Müller,
t-statistic based correlation and heterogeneity robust inference, Journal of Business & Economic Statistics 2010.
"""

from functools import partial
from typing import Final, NamedTuple

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

_RESAMPLES: Final = 1000
#: Bounds of few blocks are at most so many times as far away as those of a known standard error.
_WIDER: Final = 1.3
#: Blocks are long enough where they are so many times as long as the factor by which dependence raises the variance. For samples
#: whose correlation falls exponentially with their distance the variance is then at most a tenth too small.
_LONGER: Final = 5
#: Share of resamples in which the metric may be undefined: more, and one class is in very few blocks.
_UNDEFINED: Final = 0.01
#: Rows drawn at once, for memory.
_MOST_DRAWN: Final = 1 << 20


def block_length(n: int, spent: float) -> int:
    """Length of the blocks for n samples, when a look spends an error probability.

    The smaller the probability the more blocks there must be. None is shorter than the cube root of n.

    >>> block_length(400, 0.025), block_length(4000, 0.025), block_length(4000, 0.0001)
    (58, 572, 236)
    """
    from scipy.special import ndtri, stdtrit

    blocks = 2
    while stdtrit(blocks - 1, spent) < _WIDER * ndtri(spent):
        blocks += 1
    shortest = next(length for length in range(int(n ** (1 / 3)), n + 1) if length**3 >= n)
    return max(shortest, -(-n // blocks))


def circular_rows(n: int, resamples: int, block: int, rng: np.random.Generator) -> Int64:
    """Draw rows of resamples, ``int64[resamples, n]``, in blocks that begin anywhere; the stream's first row follows its last.

    The last block is cut off at n.

    >>> circular_rows(5, 1, 3, np.random.default_rng(0))
    array([[4, 0, 1, 3, 4]])
    """
    starts = rng.integers(0, n, (resamples, -(-n // block), 1))
    return np.asarray(((starts + np.arange(block)) % n).reshape(resamples, -1)[:, :n])


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
    resamples: int = _RESAMPLES,
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
        block: length of blocks, several times as long as the dependence reaches; default: by n and what the look spends.
        resamples: for the standard error, which they give within some two percent.
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
    left_open = partial(undecided, n=n, margin=margin, confidence=confidence)
    if n < max(1, min_samples):
        return left_open(f"{n:,} samples, at least {max(1, min_samples):,} are needed")
    length = block or block_length(n, spent)
    if 2 * length > n:
        return left_open(f"{n:,} samples make no two blocks of {length:,}")
    sign = -1.0 if lower_is_better(metric) else 1.0
    ours, theirs = score(metric, candidate, truth), score(metric, incumbent, truth)
    if ours.value is None or theirs.value is None:
        name, found = ("candidate", ours) if ours.value is None else ("incumbent", theirs)
        return left_open(f"the {name} has no {metric}: {found.reason}")
    drawn = _differences(metric, candidate, incumbent, truth, resamples, length, seed)
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < max(2, (1 - _UNDEFINED) * resamples):
        return left_open(f"{metric} is undefined in {resamples - len(defined):,} of {resamples:,} resamples")
    if block is None:
        alone = _differences(metric, candidate, incumbent, truth, max(2, resamples // 4), 1, seed)
        wanted = _LONGER * _ratio(defined, alone)
        if length < wanted:
            rule = f"blocks of {length:,} should have {wanted:,.0f}"
            return left_open(f"{n:,} samples are few for how much they depend on each other: {rule}")
    difference, wide = sign * (ours.value - theirs.value), _half_widths(defined, n / length, spent)
    ends = (difference + way * width for width in wide for way in (-1, 1))
    return judged(n, difference, Bounds(*ends), margin=margin, confidence=confidence)


def _ratio(blocks: Float64, alone: Float64) -> float:
    """Variance of resamples of blocks over that of resamples of single samples, or 0 where all of these are equal."""
    variance = float(np.nanvar(alone))
    return float(blocks.var()) / variance if variance > 0 else 0.0


class _HalfWidths(NamedTuple):
    one_sided: float
    two_sided: float


def _half_widths(drawn: Float64, blocks: float, spent: float) -> _HalfWidths:
    """Distances of the bounds from the difference.

    Blocks of a resample vary around the mean of the stream's own, which is nearer to them than the true one.
    """
    from scipy.special import stdtrit

    error = float(drawn.std(ddof=1)) * (blocks / (blocks - 1)) ** 0.5
    one_sided, two_sided = (-float(stdtrit(blocks - 1, share)) * error for share in (spent, spent / 2))
    return _HalfWidths(one_sided, two_sided)


def _differences(
    metric: str, candidate: Outputs, incumbent: Outputs, truth: Truth, resamples: int, block: int, seed: int
) -> Float64:
    """Differences of the metric on resamples, ``float64[resamples]``; NaN where one of the two is undefined."""
    n, entry, rng, parts = len(truth), find_metric(metric), rng_for(seed, "block bootstrap"), [np.empty(0)]
    ours, theirs = EvaluationSamples(candidate, truth), EvaluationSamples(incumbent, truth)
    at_once = max(1, _MOST_DRAWN // n)
    for begin in range(0, resamples, at_once):
        rows = circular_rows(n, min(at_once, resamples - begin), block, rng)
        parts.append(score_resamples(entry, ours, rows) - score_resamples(entry, theirs, rows))
    return np.concatenate(parts)
