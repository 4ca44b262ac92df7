"""Events that are told, and the channels that they are told through."""

from typing import Self

from pydantic import Field, model_validator

from modyn_dagster.spec.base import Duration, ImportPath, Spec
from modyn_dagster.spec.notification.channels import ChannelName, Command, WebhookSpec
from modyn_dagster.spec.tasks.metrics import MetricName


class ScoreFloor(Spec):
    """Tell when the live model scores below ``floor`` on a closed interval."""

    metric: MetricName
    floor: float


class ScoreCeiling(Spec):
    """Tell when the live model scores above ``ceiling`` on a closed interval: for losses and errors."""

    metric: MetricName
    ceiling: float


class NotifySpec(Spec):
    """Channels that are told of events, each by itself: a function of yours, a webhook, a command."""

    hook: ImportPath | None = Field(None, description="A function, called with a frozen `Event` in a process of its own.")
    webhook: WebhookSpec | None = Field(
        None, description="An address that gets the event as JSON by POST.", exclude_if=lambda value: value is None
    )
    command: Command | None = Field(
        None,
        description="A program with its arguments, run without a shell in the project's folder; the event is JSON on its "
        "standard input. Exit code 0 is success.",
        exclude_if=lambda value: value is None,
    )
    score_below: ScoreFloor | None = None
    score_above: ScoreCeiling | None = None
    max_run_time: Duration = Field(
        "10m", description="A run that tells events for longer is ended; the next one tells what is left."
    )

    @model_validator(mode="after")
    def _has_a_channel(self) -> Self:
        if not self.channels:
            raise ValueError("give at least one of hook, webhook and command")
        return self

    @model_validator(mode="after")
    def _limits_differ(self) -> Self:
        below, above = self.score_below, self.score_above
        if below is not None and above is not None and below.metric == above.metric and below.floor > above.ceiling:
            raise ValueError("score_below.floor is above score_above.ceiling: every score would be told")
        return self

    @property
    def channels(self) -> list[ChannelName]:
        """Channels in the order in which they are told: one that surely ends comes before those that may hang."""
        order: tuple[ChannelName, ...] = ("webhook", "command", "hook")
        return [name for name in order if getattr(self, name) is not None]

    @property
    def metrics(self) -> dict[str, MetricName]:
        """Watched metrics, by field."""
        limits = {"score_below": self.score_below, "score_above": self.score_above}
        return {field: limit.metric for field, limit in limits.items() if limit is not None}
