"""Specs of evaluation: data, intervals, metrics and confidence."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, StringConstraints, ValidationInfo, model_validator

from modyn_dagster.spec.base import Duration, ImportPath, Name, Spec, require_module
from modyn_dagster.spec.intervals import IntervalsSpec, TumblingIntervals

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

#: Mean pinball loss of quantiles, which are given by their decimals.
_PINBALL: Final = r"pinball(?:_q[0-9]{2,6})+"

#: Metrics that a policy or a hook can watch.
MetricName = (
    Literal[
        "accuracy",
        "roc_auc",
        "f1",
        "log_loss",
        "mae",
        "mse",
        "r2",
        "rank_mae",
        "quadratic_kappa",
        "ranked_probability",
        "coverage",
        "interval_width",
        "subset_accuracy",
        "hamming_loss",
        "label_f1_micro",
        "label_f1_macro",
    ]
    | Annotated[str, StringConstraints(pattern=rf"^{_PINBALL}$")]
)

_OF_CLASS: Final = r"accuracy(?:_top[1-9][0-9]*)?|f1|roc_auc|pr_auc|log_loss|brier"
_WHOLE: Final = (
    r"f1_macro|f1_micro|f1_weighted|calibration_error|mae|mse|r2|rank_mae|quadratic_kappa|ranked_probability|coverage|interval_width|"
    r"subset_accuracy|hamming_loss|label_f1_micro|label_f1_macro|(?:mae|mse|r2)_output_(?:0|[1-9][0-9]*)|" + _PINBALL
)
#: Metrics that can be estimated without labels.
ESTIMATED: Final = ("accuracy", "f1", "f1_macro", "f1_micro", "log_loss", "roc_auc")
_PREFIX: Final = "estimated_"
_NAME: Final = re.compile(rf"(?:{_WHOLE})|(?:{_OF_CLASS})(?:_class_(?:0|[1-9][0-9]*))?|{_PREFIX}(?:{'|'.join(ESTIMATED)})")
_LOSSES: Final = (
    "log_loss",
    "brier",
    "calibration_error",
    "mae",
    "mse",
    "rank_mae",
    "ranked_probability",
    "pinball",
    "interval_width",
    "hamming_loss",
)


def _check(name: str, info: ValidationInfo) -> str:
    if ":" in name:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
            raise ValueError("must be an import path `package.module:function` of a module that exists")
        require_module(name.partition(":")[0], info)
    elif not _NAME.fullmatch(name):
        raise ValueError(
            "must be accuracy, accuracy_top<k>, f1, f1_macro, f1_micro, f1_weighted, roc_auc, pr_auc, log_loss, brier, "
            "calibration_error, mae, mse, r2, rank_mae, quadratic_kappa, ranked_probability, "
            "pinball_q10_q90 (of quantiles), coverage, interval_width, subset_accuracy, hamming_loss, label_f1_micro, "
            "label_f1_macro, mae_output_1 (of several targets), "
            "one of a class such as f1_class_3, an estimate without labels such as "
            "estimated_accuracy, or an import path"
        )
    return name


#: A built-in metric, or ``package.module:function`` taking ``(outputs [n, k], truth [n])`` to a number.
MetricId = Annotated[
    str,
    AfterValidator(_check),
    Field(examples=["accuracy", "accuracy_top5", "f1_macro", "roc_auc_class_3", "estimated_accuracy", "my.metrics:cost"]),
]


def estimated_metric(name: str) -> str | None:
    """Metric that a name is the estimate of, without labels; None for a metric that is measured.

    >>> estimated_metric("estimated_f1"), estimated_metric("f1")
    ('f1', None)
    """
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def name_of_estimate(metric: str) -> str:
    """Name of the estimate of a metric.

    >>> name_of_estimate("f1")
    'estimated_f1'
    """
    return f"{_PREFIX}{metric}"


def lower_is_better(metric: str) -> bool:
    """Test that smaller values of a metric are better. An import path counts as a score, of which larger values are better.

    >>> lower_is_better("log_loss_class_2"), lower_is_better("accuracy")
    (True, False)
    """
    return metric.removeprefix(_PREFIX).startswith(_LOSSES) and ":" not in metric


#: Accuracies are means of a loss per sample, and so are the metrics of `MEAN_LOSSES`.
ACCURACY: Final = re.compile(r"accuracy(?:_top(\d+))?")
#: Other metrics that are means of a loss per sample, by the kind of label that they are for.
MEAN_LOSSES: Final[dict[str, Literal["class", "target"]]] = {
    "log_loss": "class",
    "brier": "class",
    "rank_mae": "class",
    "ranked_probability": "class",
    "mse": "target",
    "mae": "target",
}


def label_of_losses(metric: str) -> Literal["class", "target"] | None:
    """Kind of label of a metric that is a mean of losses of single samples; None for every other metric."""
    if re.fullmatch(_PINBALL, metric):
        return "target"
    return "class" if ACCURACY.fullmatch(metric) else MEAN_LOSSES.get(metric)


def has_sample_losses(metric: str) -> bool:
    """Test that a metric is a mean of losses of single samples.

    >>> [has_sample_losses(name) for name in ("accuracy", "accuracy_top5", "log_loss", "roc_auc", "accuracy_class_1")]
    [True, True, True, False, False]
    """
    return label_of_losses(metric) is not None


__all__ = ["EvaluationSpec", "IntervalsSpec", "MetricName", "TumblingIntervals"]

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
