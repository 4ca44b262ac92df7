"""What models are judged on, told apart by ``kind``."""

from typing import Annotated, Literal

from pydantic import Field

from modyn_dagster.spec.base import Name, Spec

_WHOSE = "Whose: of the run that stands for this pipeline (the open live run, else the newest replay); default: the run itself."


class EvaluateSplit(Spec):
    """The ``evaluate`` side of the pipeline's stream, or all of it where the split has none."""

    kind: Literal["evaluate"] = "evaluate"


class OtherDataset(Spec):
    """The ``evaluate`` side of another dataset with the same columns and label, or all of it where its split has none."""

    kind: Literal["dataset"]
    dataset: Name


class TrainingSetData(Spec):
    """What models were trained on: all samples of all training sets."""

    kind: Literal["training_sets"]
    pipeline: Name | None = Field(None, description=_WHOSE)


class TriggerSpanData(Spec):
    """All training samples from the run's begin to its newest trigger, selected or not."""

    kind: Literal["trigger_spans"]
    pipeline: Name | None = Field(None, description=_WHOSE)


EvaluationData = Annotated[EvaluateSplit | OtherDataset | TrainingSetData | TriggerSpanData, Field(discriminator="kind")]
