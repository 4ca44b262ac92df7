"""Specs of optimizers, learning rates, clipping, averaging, compilation, early stopping and checkpoints."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Tag, model_validator

from modyn_dagster.spec.base import ImportPath, Spec
from modyn_dagster.spec.learning.models import CustomSpec

OptimizerName = Literal["sgd", "adam", "adamw", "adamax", "nadam", "radam", "adagrad", "adadelta", "rmsprop"]
SchedulerName = Literal["constant", "step", "multistep", "exponential", "linear", "polynomial", "cosine", "one_cycle"]
#: Shell patterns of parameter names, such as ``embedding.*``.
Patterns = Annotated[list[str], Field(min_length=1, description="Shell patterns of the names of the model's parameters.")]

_WITH_MOMENTUM: Final = ("sgd", "rmsprop")
_CONFIG: Final[Any] = Field({}, description="Further arguments of the torch class.", exclude_if=lambda value: not value)


class SchedulerSpec(Spec):
    """A torch scheduler by name. Its length (`T_max`, `total_iters`, `total_steps`) is the training's, unless in `config`."""

    name: SchedulerName
    every: Literal["batch", "epoch"] = Field("batch", description="When it steps: after every optimizer step, or every epoch.")
    warmup: NonNegativeInt = Field(0, description="Steps of the schedule in which the learning rate first rises from near 0.")
    config: dict[str, Any] = _CONFIG

    @model_validator(mode="after")
    def _one_cycle_warms_up_itself(self) -> Self:
        if self.name == "one_cycle" and (self.warmup or self.every == "epoch"):
            raise ValueError("one_cycle warms up by itself (`pct_start`) and steps every batch")
        return self


class CustomSchedulerSpec(Spec):
    """User code: ``factory(optimizer, n_steps=..., **config)``; ``n_steps`` is how often the scheduler will be stepped."""

    factory: ImportPath
    every: Literal["batch", "epoch"] = "batch"
    config: dict[str, Any] = {}


class ParameterGroupSpec(Spec):
    """Parameters with settings of their own; the others are the optimizer's."""

    parameters: Patterns
    lr: PositiveFloat | None = Field(None, exclude_if=lambda value: value is None)
    weight_decay: NonNegativeFloat | None = Field(None, exclude_if=lambda value: value is None)
    config: dict[str, Any] = _CONFIG


_GROUPS: Final[Any] = Field(
    [], description="The first group whose pattern fits gets the parameter.", exclude_if=lambda value: not value
)
_OWN: Final = Field(
    None,
    description="Of several optimizers: the parameters of this one; the first that fits gets them. Left out: all others.",
    exclude_if=lambda value: value is None,
)
_SCHEDULER: Final = Field(None, exclude_if=lambda value: value is None)


class OptimizerSpec(Spec):
    """A torch optimizer by name."""

    name: OptimizerName = "adam"
    lr: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    momentum: NonNegativeFloat = Field(0.0, description="Only for sgd and rmsprop.")
    config: dict[str, Any] = _CONFIG
    parameters: Patterns | None = _OWN
    groups: list[ParameterGroupSpec] = _GROUPS
    scheduler: SchedulerSpec | CustomSchedulerSpec | None = _SCHEDULER

    @model_validator(mode="after")
    def _momentum_fits(self) -> Self:
        if self.momentum and self.name not in _WITH_MOMENTUM:
            raise ValueError(f"momentum is a setting of {' and '.join(_WITH_MOMENTUM)}, not of {self.name}")
        return self

    def settings(self) -> dict[str, Any]:
        """Keyword arguments of the torch class."""
        momentum = {"momentum": self.momentum} if self.name in _WITH_MOMENTUM else {}
        return {"lr": self.lr, "weight_decay": self.weight_decay} | momentum | self.config


class CustomOptimizerSpec(CustomSpec):
    """User code: ``factory(parameters, **config)``; parameters are dicts with `params` where `groups` are given."""

    parameters: Patterns | None = _OWN
    groups: list[ParameterGroupSpec] = _GROUPS
    scheduler: SchedulerSpec | CustomSchedulerSpec | None = _SCHEDULER


def _kind_of(content: object) -> str:
    if isinstance(content, list):
        return "Several"
    custom = isinstance(content, CustomSpec) or (isinstance(content, dict) and "factory" in content)
    return "Own" if custom else "Named"


OneOptimizer = Annotated[
    Annotated[OptimizerSpec, Tag("Named")] | Annotated[CustomOptimizerSpec, Tag("Own")], Discriminator(_kind_of)
]
#: One optimizer, or several that share the parameters among them.
Optimizers = Annotated[
    Annotated[OptimizerSpec, Tag("Named")]
    | Annotated[CustomOptimizerSpec, Tag("Own")]
    | Annotated[Annotated[list[OneOptimizer], Field(min_length=1)], Tag("Several")],
    Discriminator(_kind_of),
]


def optimizer_fields(n: int) -> list[str]:
    """Dotted paths of ``n`` optimizers in a spec, for errors."""
    return ["training.optimizer"] if n == 1 else [f"training.optimizer[{i}]" for i in range(n)]


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
    """Intervals at which the state of a training is saved, so that a killed one goes on from there. It changes no result."""

    steps: PositiveInt | None = Field(None, description="Every so many optimizer steps.")
    minutes: PositiveFloat | None = Field(None, description="At the first step after so many minutes.")

    @model_validator(mode="after")
    def _sometimes(self) -> Self:
        if self.steps is None and self.minutes is None:
            raise ValueError("give `steps`, `minutes` or both")
        return self
