"""Whom to tell what a live run does."""

from typing import Self

from pydantic import model_validator

from modyn_dagster.spec.base import ImportPath, Spec
from modyn_dagster.spec.evaluation import MetricName


class ScoreFloor(Spec):
    """Tell when the active model scores below ``floor`` on a closed interval."""

    metric: MetricName
    floor: float


class ScoreCeiling(Spec):
    """Tell when the active model scores above ``ceiling`` on a closed interval: for losses and errors."""

    metric: MetricName
    ceiling: float


class NotifySpec(Spec):
    """A function of yours, called with a frozen ``Event`` in a process of its own."""

    hook: ImportPath
    score_below: ScoreFloor | None = None
    score_above: ScoreCeiling | None = None

    @model_validator(mode="after")
    def _limits_differ(self) -> Self:
        below, above = self.score_below, self.score_above
        if below is not None and above is not None and below.metric == above.metric and below.floor > above.ceiling:
            raise ValueError("score_below.floor is above score_above.ceiling: every score would be told")
        return self

    @property
    def metrics(self) -> dict[str, MetricName]:
        """The metrics that are watched, by field."""
        limits = {"score_below": self.score_below, "score_above": self.score_above}
        return {field: limit.metric for field, limit in limits.items() if limit is not None}
