"""Confidence intervals of scores: Wilson's for shares, the bootstrap's for every other metric."""

from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Int64, Outputs, Truth
from modyn_dagster.evaluation.metrics.groups import Resamples
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.metrics.registry import Metric, find_metric, labelled_samples, score_slice
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.tasks.metrics import PAIRWISE

#: Fewer defined resamples tell nothing about the tails.
_FEWEST: Final = 20
#: Rows drawn at once, for memory. It depends on the number of samples alone, and so do the draws.
_MOST_DRAWN: Final = 1 << 20


class ConfidenceInterval(NamedTuple):
    """Lower and upper end, and the method: ``wilson`` or ``bootstrap``."""

    low: float
    high: float
    method: str


def wilson(successes: int, n: int, level: float = 0.95) -> ConfidenceInterval:
    """The score interval of a share; it stays within 0 and 1.

    Args:
        successes: correct samples.
        n: samples.
        level: share of cases in which the interval holds the true value.

    Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, 1927.

    >>> low, high, _ = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"successes: {successes} of {n} is no share")
    # Not scipy's binomtest().proportion_ci: its last bit differs in 165 of 300 cases, and ends of intervals are stored. It also
    # takes 230 to 570 us instead of 0.8 us per cell and 0.5 s to import.
    z = NormalDist().inv_cdf((1 + _level(level)) / 2)
    share, spread = successes / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * (share * (1 - share) / n + spread / (4 * n)) ** 0.5
    # Rounding must not move the ends outside 0 and 1.
    low = 0.0 if successes == 0 else middle - reach
    return ConfidenceInterval(low, 1.0 if successes == n else middle + reach, "wilson")


def bootstrap(
    metric: str, outputs: Outputs, truth: Truth, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> ConfidenceInterval | None:
    """Percentiles of a metric over resamples of the labelled samples, or of the lists of a ranking with a relevant sample.

    None where most of them are undefined.

    Args:
        metric: a name of ``METRICS``, with its parameters, or an import path.
        outputs: ``float32[n, k]``.
        truth: classes ``int64[n]`` or targets ``float64[n]``.
        level: share of cases in which the interval holds the true value.
        resamples: number of draws of n samples, or of n lists, with replacement.
        seed: of the draws.

    Source: B. Efron, Bootstrap Methods: Another Look at the Jackknife, 1979.

    >>> bootstrap("mae", np.zeros((3, 1), np.float32), np.ones(3), resamples=100)
    ConfidenceInterval(low=1.0, high=1.0, method='bootstrap')
    """
    alpha = (1 - _level(level)) / 2
    samples, _ = labelled_samples(outputs, truth)
    entry, rng, parts = find_metric(metric), rng_for(seed, "bootstrap"), [np.empty(0)]
    lists = None if entry.of_lists is None else _values_of_lists(entry, samples)
    n = len(samples if lists is None else lists)
    rows_at_once = max(1, _MOST_DRAWN // max(1, n))
    for begin in range(0, resamples if n else 0, rows_at_once):
        rows = rng.integers(0, n, (min(rows_at_once, resamples - begin), n))
        parts.append(score_resamples(entry, samples, rows) if lists is None else lists[rows].mean(axis=1))
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    if len(values) < max(_FEWEST, resamples // 2):
        return None
    low, high = np.quantile(values, [alpha, 1 - alpha])
    return ConfidenceInterval(float(low), float(high), "bootstrap")


def confidence_interval(
    metric: str, outputs: Outputs, truth: Truth, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> ConfidenceInterval | None:
    """Wilson's interval for the accuracy, its top-k and that of one class, which are shares; the bootstrap's for other metrics.

    None where the metric is undefined, without ``resamples`` for all but shares, and for metrics that compare samples with each
    other: a resample holds some of them twice. Arguments as in ``bootstrap``.

    >>> confidence_interval("accuracy", np.eye(2, dtype=np.float32), np.array([0, 1])).method
    'wilson'
    """
    if metric in PAIRWISE:
        return None
    if not is_share(metric):
        return bootstrap(metric, outputs, truth, level=level, resamples=resamples, seed=seed)
    samples, _ = labelled_samples(outputs, truth)
    score = score_slice(find_metric(metric), samples, slice(0, len(samples)), 0, min_samples=1)
    _, of_class, positive = metric.partition("_class_")
    n = int((samples.truth == int(positive)).sum()) if of_class else score.n
    return None if score.value is None else wilson(round(score.value * n), n, level)


def score_resamples(metric: Metric, samples: EvaluationSamples, rows: Int64) -> Float64:
    """Scores of resamples, ``float64[m]``, NaN where undefined.

    Args:
        metric: if its kernel takes no resamples, such as a user's own, it is computed one resample at a time.
        samples: where one is irregular, a resample without it is another case: these too are computed one at a time.
        rows: drawn rows, ``int64[m, n]``.
    """
    if metric.resampled and _is_regular(samples):
        with np.errstate(all="ignore"):
            values = metric.values(Resamples(samples, rows))
        return np.where(np.isfinite(values), values, np.nan)
    whole = slice(0, rows.shape[1])
    resamples = (EvaluationSamples(samples.outputs[drawn], samples.truth[drawn]) for drawn in rows)
    scores = [score_slice(metric, resample, whole, 0, min_samples=1).value for resample in resamples]
    return np.array([np.nan if value is None else value for value in scores], dtype=np.float64)


def _values_of_lists(metric: Metric, samples: EvaluationSamples) -> Float64:
    """Values of the lists that have one; none where an output or a relevance is not finite."""
    if metric.of_lists is None or samples.truth.ndim == 1 or not len(samples) or not _is_regular(samples):
        return np.empty(0)
    values = metric.of_lists(samples.outputs, samples.truth, **metric.parameters)
    return np.asarray(values[np.isfinite(values)])


def is_share(metric: str) -> bool:
    """Tell whether a metric is a share of samples: of correct ones, or of those in an interval.

    >>> is_share("accuracy_top5"), is_share("accuracy_class_2"), is_share("f1_macro"), is_share("my.accuracy:of")
    (True, True, False, False)
    """
    return ":" not in metric and metric.startswith(("accuracy", "f1_micro", "coverage", "subset_accuracy"))


def _is_regular(samples: EvaluationSamples) -> bool:
    """Tell whether all outputs and targets are finite and all classes known."""
    targets = samples.truth.dtype.kind == "f"
    normal = np.isfinite(samples.truth).all() if targets else not samples.unknown_class_before[-1]
    return bool(normal and not samples.nonfinite_before[-1])


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level: {level} must lie between 0 and 1")
    return level
