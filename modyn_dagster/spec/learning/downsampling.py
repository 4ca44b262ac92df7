"""Specs of downsampling: policies that choose samples of a batch, or of the training set, for a step."""

from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from modyn_dagster.spec.base import ImportPath, Spec

PolicyName = Literal[
    "none",
    "uniform",
    "loss",
    "dlis",
    "least_confidence",
    "margin",
    "entropy",
    "rs2",
    "rs2_without_replacement",
    "rho",
    "craig",
    "gradmatch",
    "glister",
    "k_center",
    "herding",
    "facility_location",
    "graph_cut",
    "log_det",
    "infobatch",
    "el2n",
    "grand",
    "forgetting",
]

#: Policies that need classes or their probabilities.
CLASSES_ONLY: Final = ("least_confidence", "margin", "entropy", "el2n", "forgetting")


class CustomPolicySpec(Spec):
    """A policy of the project: ``factory(**options)`` returns it."""

    factory: ImportPath


class HoldoutSpec(Spec):
    """Samples that a policy keeps for itself: for the irreducible losses of `rho`, or the validation gradient of `glister`."""

    kind: Literal["simple", "twin"] = Field(
        "twin",
        description="simple: a share of the training set is set aside and never trained on. twin (only rho): two halves, each "
        "scored by a model of the other, and all of it is trained on. glister always sets a share aside.",
    )
    share: Annotated[float, Field(gt=0, lt=1)] = Field(0.1, description="What is set aside.")
    epochs: PositiveInt | None = Field(None, description="Of the models of irreducible losses; default: those of the training.")


class PolicySpec(Spec):
    """One policy and how it is used."""

    policy: PolicyName | CustomPolicySpec
    mode: Literal["batch_then_sample", "sample_then_batch"] = Field(
        "batch_then_sample",
        description="batch_then_sample: from every batch of `batch_size`, just before its step. "
        "sample_then_batch: from the whole training set, before an epoch.",
    )
    ratio: Annotated[float, Field(gt=0, le=1)] = Field(0.5, description="Share that is kept.")
    period: NonNegativeInt = Field(
        1, description="sample_then_batch: epochs until the set is sampled anew; 0: once per training."
    )
    options: dict[str, Any] = Field({}, description="Of the policy: the fields of its class, and `balance`.")
    gradient: Literal["outputs", "last_layer"] = Field(
        "outputs",
        description="What stands for a sample's gradient: at the model's outputs, or of the last linear layer.",
    )
    self_normalised: bool = Field(
        False, description="Divide an estimator's loss by the sum of the weights drawn, not by the pool's size. Biased."
    )
    holdout: HoldoutSpec = HoldoutSpec()

    @model_validator(mode="after")
    def _period_needs_the_whole_set(self) -> Self:
        if self.mode == "batch_then_sample" and self.period != 1:
            raise ValueError("period is a setting of mode sample_then_batch; batch_then_sample chooses from every batch")
        return self


class ScheduledPolicySpec(PolicySpec):
    """Policy from a trigger on."""

    from_trigger: PositiveInt = Field(description="Ordinal of the trigger, counted from 0.")


class DownsamplingSpec(PolicySpec):
    """Policy from the first trigger on, and later changes; policy `none` trains on everything."""

    schedule: list[ScheduledPolicySpec] = Field([], description="In the order of their triggers.")

    @model_validator(mode="after")
    def _triggers_ascend(self) -> Self:
        starts = [change.from_trigger for change in self.schedule]
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError("schedule must be in the order of from_trigger, each once")
        return self

    def at(self, trigger: int) -> PolicySpec | None:
        """Policy of a trigger; None if it trains on everything."""
        policy: PolicySpec = self
        for change in self.schedule:
            if change.from_trigger <= trigger:
                policy = change
        return None if policy.policy == "none" else policy
