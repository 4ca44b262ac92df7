"""How to judge models: intervals of sample time and metrics."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.evaluation_data import EvaluateSplit, EvaluationData
from modyn_dagster.spec.intervals import IntervalsSpec, TumblingIntervals
from modyn_dagster.spec.metrics import MetricId, MetricName

__all__ = ["EvaluationSpec", "IntervalsSpec", "MetricName", "TumblingIntervals"]

MatrixKind = Literal["full", "active", "trained", "lazy"]


class ConfidenceSpec(Spec):
    """How sure scores are: Wilson's interval for shares such as the accuracy, the bootstrap's for every other metric."""

    level: float = Field(0.95, gt=0, lt=1, description="Share of cases in which the interval is to hold the true value.")
    resamples: NonNegativeInt = Field(
        0, description="Of the bootstrap, per cell: 1000 cost a second or so; 0: metrics that are no shares get no interval."
    )


class EvaluationSpec(Spec):
    """Intervals, metrics and the one that counts."""

    data: EvaluationData = Field(
        EvaluateSplit(),
        exclude_if=lambda data: isinstance(data, EvaluateSplit),
        description="The samples that models are judged on.",
    )
    intervals: IntervalsSpec
    metrics: list[MetricId] = Field(["accuracy"], min_length=1)
    score: MetricId | None = Field(None, description="The metric of the pipeline score; default: the first one.")
    min_samples: PositiveInt = Field(1, description="An interval with fewer samples is undefined.")
    confidence: ConfidenceSpec = Field(
        ConfidenceSpec(), exclude_if=lambda block: block == ConfidenceSpec(), description="Confidence interval of every cell."
    )
    slices: list[str] = Field(
        [],
        exclude_if=lambda names: not names,
        description="Attributes of the dataset, or `label`: every metric is also computed for each of their values apart.",
    )
    matrix: MatrixKind = Field(
        "full",
        exclude_if=lambda kind: kind == "full",
        description="Which models are judged on an interval: all; the currently active one; the currently trained one; "
        "or lazy: none, until a person materializes the evaluation.",
    )

    @property
    def score_metric(self) -> str:
        """The metric of the pipeline score."""
        return self.score or self.metrics[0]

    @model_validator(mode="after")
    def _score_is_a_metric(self) -> Self:
        if len(set(self.metrics)) != len(self.metrics):
            raise ValueError("metrics must not repeat")
        if len(set(self.slices)) != len(self.slices):
            raise ValueError("slices must not repeat")
        if self.score is not None and self.score not in self.metrics:
            raise ValueError(f"score must be one of metrics: {', '.join(self.metrics)}")
        return self
