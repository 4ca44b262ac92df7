"""Drift metrics of single columns, reduced over columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import UnivariateMetric
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, smallest_corrected, split_indicators
from modyn_dagster.triggering.drift.univariate.cramer_von_mises import cramer_von_mises, cramer_von_mises_p_values
from modyn_dagster.triggering.drift.univariate.histograms import BinDistance, binned_distances, hellinger, jensen_shannon
from modyn_dagster.triggering.drift.univariate.kolmogorov_smirnov import kolmogorov_smirnov, kolmogorov_smirnov_p_values
from modyn_dagster.triggering.drift.univariate.ranked_columns import RankStatistic, observed, permuted
from modyn_dagster.triggering.drift.univariate.wasserstein import wasserstein
from modyn_dagster.triggering.drift.windows import Float64, Windows

RANKED: Final[Mapping[str, RankStatistic]] = {
    "ks": kolmogorov_smirnov,
    "cramer_von_mises": cramer_von_mises,
    "wasserstein": wasserstein,
}
BINNED: Final[Mapping[str, BinDistance]] = {"hellinger": hellinger, "jensen_shannon": jensen_shannon}
ASYMPTOTIC: Final = {"ks": kolmogorov_smirnov_p_values, "cramer_von_mises": cramer_von_mises_p_values}


@dataclass(frozen=True, slots=True)
class _Permuted:
    """Results of permutations: statistic and p-value of every column, ``float64[d]``, and p-value of the reduced statistic."""

    statistics: Float64
    p_values: Float64
    reduced_p_value: float


def univariate(spec: UnivariateMetric, windows: Windows, *, p_value: bool) -> Score:
    """Statistic reduced over columns by mean or max, or smallest p-value after correction (``smallest_corrected``).

    The p-value of a mean or maximum is by permutation of samples, which keeps the dependence of columns. P-values of single
    columns (``reduce: p_value``, or one column) are asymptotic for ks and cramer_von_mises; for the other metrics they are by
    permutation, and at least ``columns / (1 + permutations)`` after correction.

    Args:
        spec: metric, reduction, correction, permutations.
        windows: reference and current window.
        p_value: compute the p-value of the reduced statistic too.

    >>> windows = Windows(np.array([[0.0, 5.0], [1.0, 5.0]]), np.array([[2.0, 5.0], [3.0, 5.0]]))
    >>> univariate(UnivariateMetric(metric="ks"), windows, p_value=False).value
    0.5
    """
    if spec.reduce == "p_value":
        return _corrected(spec, windows)
    if not p_value:
        statistics, reduced = _statistics(spec, windows), None
    elif spec.metric in ASYMPTOTIC and windows.width == 1:
        statistics = _statistics(spec, windows)
        reduced = float(ASYMPTOTIC[spec.metric](statistics, windows.n, windows.m)[0])
    else:
        permuted_scores = _by_permutation(spec, windows)
        statistics, reduced = permuted_scores.statistics, permuted_scores.reduced_p_value
    details = _extremes(statistics)
    return Score(details[spec.reduce], reduced, details)


def _corrected(spec: UnivariateMetric, windows: Windows) -> Score:
    if spec.metric in ASYMPTOTIC:
        statistics = _statistics(spec, windows)
        p_values = ASYMPTOTIC[spec.metric](statistics, windows.n, windows.m)
    else:
        permuted_scores = _by_permutation(spec, windows)
        statistics, p_values = permuted_scores.statistics, permuted_scores.p_values
    smallest = smallest_corrected(p_values, spec.correction)
    return Score(smallest, smallest, _extremes(statistics) | {"column": int(p_values.argmin())})


def _extremes(statistics: Float64) -> dict[str, float]:
    """Mean and maximum over columns, and the column of the maximum."""
    return {"mean": float(statistics.mean()), "max": float(statistics.max()), "column": int(statistics.argmax())}


def _statistics(spec: UnivariateMetric, windows: Windows) -> Float64:
    if spec.metric in RANKED:
        return observed(RANKED[spec.metric], windows)
    members = split_indicators(windows.n, windows.m, 0, windows.rng("permutations"))
    return np.concatenate(list(_splits(spec, windows, members)))


def _by_permutation(spec: UnivariateMetric, windows: Windows) -> _Permuted:
    members = split_indicators(windows.n, windows.m, spec.permutations, windows.rng("permutations"))
    statistics, p_values = np.empty(windows.width), np.empty(windows.width)
    reduced = np.zeros(members.shape[1])
    for c, scores in enumerate(_splits(spec, windows, members)):
        statistics[c], p_values[c] = scores[0], permutation_p_value(scores)
        reduced = np.maximum(reduced, scores) if spec.reduce == "max" else reduced + scores
    return _Permuted(statistics, p_values, float(permutation_p_value(reduced)))


def _splits(spec: UnivariateMetric, windows: Windows, members: npt.NDArray[np.uint8]) -> Iterator[Float64]:
    """Statistic of every split, ``float64[P]``, column by column."""
    if spec.metric in RANKED:
        return permuted(RANKED[spec.metric], windows, members)
    return binned_distances(BINNED[spec.metric], windows, members, spec.bins)
