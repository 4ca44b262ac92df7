"""Specs of evaluation: data, intervals, composite models and confidence."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, ImportPath, Name, Spec
from modyn_dagster.spec.intervals import IntervalsSpec
from modyn_dagster.spec.tasks.metrics import MetricId

_WHOSE = "Whose: of the run that stands for this pipeline (the open live run, else the newest replay); default: the run itself."


class EvaluateSplit(Spec):
    """The ``evaluate`` side of the pipeline's stream, or all of it where the split has none."""

    kind: Literal["evaluate"] = "evaluate"


class OtherDataset(Spec):
    """The ``evaluate`` side of another dataset with the same columns and label, or all of it where its split has none."""

    kind: Literal["dataset"]
    dataset: Name


class TrainingSetData(Spec):
    """All samples of all training sets."""

    kind: Literal["training_sets"]
    pipeline: Name | None = Field(None, description=_WHOSE)


class TriggerSpanData(Spec):
    """All training samples from the run's begin to its newest trigger, selected or not."""

    kind: Literal["trigger_spans"]
    pipeline: Name | None = Field(None, description=_WHOSE)


EvaluationData = Annotated[EvaluateSplit | OtherDataset | TrainingSetData | TriggerSpanData, Field(discriminator="kind")]

MatrixKind = Literal["composite", "full", "active", "trained", "lazy"]
PredictionForm = Literal["compact", "exact"]


#: Composite models that every pipeline has.
_COMPOSITES: Final = ("active", "trained", "served")


class ConfidenceSpec(Spec):
    """Confidence of scores: Wilson's interval for shares such as the accuracy, the bootstrap's for every other metric."""

    level: float = Field(0.95, gt=0, lt=1, description="Share of cases in which the interval is to hold the true value.")
    resamples: NonNegativeInt = Field(
        0, description="Of the bootstrap, per cell: 1000 cost a second or so; 0: metrics that are no shares get no interval."
    )


class CompositeSpec(Spec):
    """A composite model of the user's: ``factory(**config)`` returns a function that chooses a model for each interval."""

    name: Name = Field(description="Shown beside the currently active and the currently trained model.", examples=["cautious"])
    factory: ImportPath
    config: dict[str, Any] = {}

    @model_validator(mode="after")
    def _name_is_free(self) -> Self:
        if self.name in _COMPOSITES:
            raise ValueError(f"name must not be one of {', '.join(_COMPOSITES)}")
        return self


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
    min_coverage: float = Field(
        0,
        ge=0,
        le=1,
        exclude_if=lambda share: share == 0,
        description="Share of an interval's samples whose labels must be known; with fewer a score is undefined.",
    )
    maturity: Duration | None = Field(
        None,
        exclude_if=lambda age: age is None,
        description="Where labels arrive later: scores as known wait until every sample of their interval has this age. "
        "Default: no wait, which is biased where the delay of a label depends on it.",
    )
    confidence: ConfidenceSpec = Field(
        ConfidenceSpec(), exclude_if=lambda block: block == ConfidenceSpec(), description="Confidence interval of every cell."
    )
    slices: list[str] = Field(
        [],
        exclude_if=lambda names: not names,
        description="Attributes of the dataset, or `label`: every metric is also computed for each of their values apart.",
    )
    matrix: MatrixKind = Field(
        "composite",
        exclude_if=lambda kind: kind == "composite",
        description="Which models are judged on an interval: composite: the currently active and the currently trained one; "
        "active or trained: that one alone; full: all; or lazy: none, until a person materializes the evaluation.",
    )
    composite: CompositeSpec | None = Field(
        None,
        exclude_if=lambda block: block is None,
        description="A composite model of your own, beside the currently active and the currently trained one.",
    )
    predictions: PredictionForm = Field(
        "compact",
        exclude_if=lambda form: form == "compact",
        description="Form of predictions of two classes with `matrix: full`: compact: less than 2 bytes each, metrics within "
        "0.001; or exact. Every other prediction is exact.",
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
