"""Limits of a promotion: the shadow phase, guardrails of a candidate, and the bound of an automatic rollback."""

from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Spec
from modyn_dagster.spec.operation import Size
from modyn_dagster.spec.tasks.metrics import MetricId


class ShadowSpec(Spec):
    """Candidates that are tested at the same time, and for how long one is."""

    for_: Duration | None = Field(
        None, alias="for", description="Stream time after which an undecided candidate is rejected; default: none."
    )
    samples: PositiveInt | None = Field(
        None, description="Pairs of predictions after which an undecided candidate is rejected; default: none."
    )
    max: PositiveInt = Field(3, description="Candidates tested at once; a further one waits, and a newer one takes its place.")


class MetricGuardrail(Spec):
    """A metric that must not get worse by more than so much; a candidate that passes the test and not this is rejected."""

    metric: MetricId
    max_drop: NonNegativeFloat = Field(description="In the unit of the metric; of a loss, how much it may rise.")
    slice: str | None = Field(
        None, description="One of `evaluation.slices`: on each of its values with `min_samples` pairs apart. Default: on all."
    )


class GuardrailsSpec(Spec):
    """Conditions of a promotion beside the test."""

    metrics: list[MetricGuardrail] = []
    max_bytes: Size | None = Field(None, description="Largest size of a model's weights in memory, such as 200MB.")
    max_latency: PositiveFloat | None = Field(
        None,
        description="Largest median of measured seconds per 1,000 predicted samples. No replay takes the same time again, so a "
        "replay of such a pipeline is refused.",
    )


class RollbackSpec(Spec):
    """Automatic return to the champion before, when the champion's score as known is bad for some intervals in a row."""

    metric: MetricId | None = Field(None, description="Default: that of the promotion.")
    below: float | None = Field(None, description="A lower score is bad.")
    above: float | None = Field(None, description="A higher score is bad: for losses.")
    max_drop: NonNegativeFloat | None = Field(
        None, description="A score that is worse by more than this than that of the champion before, on the same samples, is bad."
    )
    guardrails: bool = Field(
        False,
        exclude_if=lambda chosen: not chosen,
        description="An interval in which it breaks one of `guardrails.metrics` against the champion before, on the same "
        "samples, is bad too; beside another limit, or alone.",
    )
    every: Duration = Field("1d", description="Length of the intervals, in stream time.")
    intervals: PositiveInt = Field(3, description="Bad intervals in a row.")
    min_samples: PositiveInt = Field(
        30,
        description="An interval with fewer labelled samples waits for more of them; once a later one has enough, it counts "
        "neither way.",
    )
    cool_down: Duration = Field("7d", description="No automatic rollback for so long after any change of the champion.")

    @model_validator(mode="after")
    def _has_one_limit(self) -> Self:
        n_limits = sum(limit is not None for limit in (self.below, self.above, self.max_drop))
        if n_limits > 1 or not (n_limits or self.guardrails):
            raise ValueError("give exactly one of below, above and max_drop, and guardrails: true beside it or instead")
        return self

    @property
    def compares_champions(self) -> bool:
        """True where the champion before is what an interval is measured against."""
        return self.max_drop is not None or self.guardrails
