"""How sure a score is: an interval that holds the true value in a given share of cases."""

from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import Outputs, Truth
from modyn_dagster.evaluation.metrics.registry import find_metric, labelled_samples, score_slice
from modyn_dagster.evaluation.metrics.resampling import resampled
from modyn_dagster.randomness import rng_for

#: Fewer defined resamples say nothing about the tails.
_FEWEST: Final = 20
#: Rows drawn at once, for memory; it follows from the number of samples alone, and so do the draws.
_MOST_DRAWN: Final = 1 << 20


class ConfidenceInterval(NamedTuple):
    """Lower and upper end, and how they were found."""

    low: float
    high: float
    method: str


def wilson(successes: int, n: int, level: float = 0.95) -> ConfidenceInterval:
    """The score interval of a share (Wilson, 1927); it stays within 0 and 1.

    >>> low, high, _ = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"successes: {successes} of {n} is no share")
    z = NormalDist().inv_cdf((1 + _level(level)) / 2)
    share, spread = successes / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * (share * (1 - share) / n + spread / (4 * n)) ** 0.5
    # Rounding must not leave the ends beyond what a share can be.
    low = 0.0 if successes == 0 else middle - reach
    return ConfidenceInterval(low, 1.0 if successes == n else middle + reach, "wilson")


def bootstrap(
    metric: str, outputs: Outputs, truth: Truth, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> ConfidenceInterval | None:
    """Percentiles of the metric over resamples of the labelled samples (Efron, 1979); None where it is mostly undefined."""
    alpha = (1 - _level(level)) / 2
    judged, _ = labelled_samples(outputs, truth)
    n, entry, rng, values = len(judged), find_metric(metric), rng_for(seed, "bootstrap"), [np.empty(0)]
    at_once = max(1, _MOST_DRAWN // max(1, n))
    for begin in range(0, resamples if n else 0, at_once):
        rows = rng.integers(0, n, (min(at_once, resamples - begin), n))
        values.append(resampled(entry, judged, rows))
    found = np.concatenate(values)
    found = found[np.isfinite(found)]
    if len(found) < max(_FEWEST, resamples // 2):
        return None
    low, high = np.quantile(found, [alpha, 1 - alpha])
    return ConfidenceInterval(float(low), float(high), "bootstrap")


def confidence_interval(
    metric: str, outputs: Outputs, truth: Truth, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> ConfidenceInterval | None:
    """Wilson's for the accuracy, its top-k and that of one class, which are shares; the bootstrap's for every other metric.

    None where the metric is undefined, and without ``resamples`` for all but shares. ``outputs`` are ``float32[n, k]``,
    ``truth`` as in ``score``.
    """
    if not is_share(metric):
        return bootstrap(metric, outputs, truth, level=level, resamples=resamples, seed=seed)
    judged, _ = labelled_samples(outputs, truth)
    found = score_slice(find_metric(metric), judged, slice(0, len(judged)), 0, min_samples=1)
    _, of_class, positive = metric.partition("_class_")
    n = int((judged.truth == int(positive)).sum()) if of_class else found.n
    return None if found.value is None else wilson(round(found.value * n), n, level)


def is_share(metric: str) -> bool:
    """Whether a metric counts right ones among samples.

    >>> is_share("accuracy_top5"), is_share("accuracy_class_2"), is_share("f1_macro"), is_share("my.accuracy:of")
    (True, True, False, False)
    """
    return ":" not in metric and metric.startswith(("accuracy", "f1_micro"))


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level: {level} must lie between 0 and 1")
    return level
