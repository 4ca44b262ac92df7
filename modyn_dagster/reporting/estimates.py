"""Estimates of scores held against the scores that labels gave."""

from collections.abc import Sequence
from typing import NamedTuple

from modyn_dagster.reporting.scores import IntervalScore


class Held(NamedTuple):
    """Estimates held against scores.

    Attributes:
        n: intervals with both.
        inside: of these, the ones whose score lies in the interval of the estimate.
        distance: mean distance of estimate and score; None without any.
    """

    n: int
    inside: int
    distance: float | None


def hold(estimated: Sequence[IntervalScore], scores: Sequence[IntervalScore]) -> Held:
    """Hold estimates of a composite model against its scores, interval by interval; those without either are left out."""
    by_interval = {score.interval: score.value for score in scores}
    pairs = [(e, s) for e in estimated if e.value is not None and (s := by_interval.get(e.interval)) is not None]
    inside = sum(e.low is not None and e.high is not None and e.low <= s <= e.high for e, s in pairs)
    distances = [abs(e.value - s) for e, s in pairs if e.value is not None]
    return Held(len(pairs), inside, sum(distances) / len(distances) if distances else None)
