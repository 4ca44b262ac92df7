"""What a step does beside the optimizer's, when a training ends early, and when it is written down."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Spec


class ClipSpec(Spec):
    """Bounds of gradients, before every optimizer step."""

    norm: PositiveFloat | None = Field(None, description="Of all gradients together; larger ones are scaled down to it.")
    value: PositiveFloat | None = Field(None, description="Of every single number.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.norm is None) == (self.value is None):
            raise ValueError("give either `norm` or `value`")
        return self


class EMASpec(Spec):
    """A moving average of the weights, which becomes the model."""

    decay: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.999, description="After step t it is at most (1 + t) / (10 + t), so that short trainings forget their beginning."
    )


class CompileSpec(Spec):
    """``torch.compile`` of the model. Other kernels, other bits: it is part of what a model was made with."""

    backend: str = "inductor"
    mode: Literal["default", "reduce-overhead", "max-autotune"] | None = None
    dynamic: bool | None = None


class EarlyStoppingSpec(Spec):
    """Stop once the mean loss on the dataset's `calibrate` samples gets no better, epoch after epoch."""

    patience: PositiveInt = Field(3, description="Epochs without an improvement until it stops.")
    min_delta: NonNegativeFloat = Field(0.0, description="What counts as one.")
    restore_best: bool = Field(True, description="Keep the weights of the best epoch, not those of the last.")


class CheckpointSpec(Spec):
    """When the state of a training is written down, so that a killed one goes on from there. It changes no result."""

    steps: PositiveInt | None = Field(None, description="Every so many optimizer steps.")
    minutes: PositiveFloat | None = Field(None, description="At the first step after so many minutes.")

    @model_validator(mode="after")
    def _sometimes(self) -> Self:
        if self.steps is None and self.minutes is None:
            raise ValueError("give `steps`, `minutes` or both")
        return self
