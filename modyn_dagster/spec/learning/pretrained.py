"""Specs of pretrained models: weights of a file, frozen parameters, rates by layer and LoRA."""

from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Spec, as_time
from modyn_dagster.spec.learning.libraries import TransformersSpec
from modyn_dagster.spec.learning.models import ModelSpec, Share
from modyn_dagster.spec.learning.optimizers import Patterns
from modyn_dagster.spec.learning.trainers import TrainerSpec


def _check_safetensors(path: str) -> str:
    if PurePosixPath(path).suffix != ".safetensors":
        raise ValueError(
            "must end in .safetensors: files such as .pt, .pth, .bin and .ckpt may hold a pickle, which would run code when it "
            "is loaded; convert it once with safetensors.torch.save_file"
        )
    return path


#: Path of a file of safetensors, relative to the project.
WeightsFile = Annotated[str, AfterValidator(_check_safetensors)]
_OPTIONAL: Final[Any] = {"exclude_if": lambda value: value is None}


class LoraSpec(Spec):
    """Low-rank adapters (Hu et al. 2021, by peft): linear layers get ``B @ A * alpha / rank``, and only these are trained."""

    rank: PositiveInt = 8
    alpha: PositiveInt = 16
    targets: Patterns = Field(description="Shell patterns of the names of linear layers, such as `*.query`.")
    dropout: Share = 0.0
    train: Patterns | None = Field(
        None,
        description="Patterns of parameters that are trained beside the adapters. Default: the head, that is what a network "
        "of transformers adds to its base, else the last linear layer.",
        **_OPTIONAL,
    )


class PretrainedSpec(Spec):
    """Fine-tuning of a pretrained model."""

    weights: WeightsFile | None = Field(
        None,
        description="A safetensors file below the project, for trainings without a previous model. Tensors that fit by name and "
        "shape are taken over; the model's record lists the others.",
        **_OPTIONAL,
    )
    rename: dict[str, str] = Field(
        {},
        description="Beginnings of names in the file, and those in the model instead; the first that fits counts.",
        exclude_if=lambda value: not value,
    )
    freeze: Patterns | None = Field(
        None,
        description="Patterns of parameters that keep their values; frozen batch norm keeps its statistics too.",
        **_OPTIONAL,
    )
    layer_decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Learning rate of a layer, relative to that of the layer above it.", **_OPTIONAL
    )
    lora: LoraSpec | None = Field(None, description="Train low-rank adapters instead of the weights.", **_OPTIONAL)
    until: datetime | date | None = Field(
        None,
        description="Time up to which the pretrained model may have seen the data: evaluations that begin before it are marked.",
        **_OPTIONAL,
    )

    @property
    def seen_until(self) -> datetime | None:
        """``until`` in UTC."""
        return None if self.until is None else as_time(self.until).astype(datetime).replace(tzinfo=UTC)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.lora is not None and self.freeze is not None:
            raise ValueError("lora freezes everything but the adapters and `lora.train`: leave `freeze` out")
        if self.rename and self.weights is None:
            raise ValueError("rename: belongs to `weights`")
        return self


def pretrained_problem(pretrained: PretrainedSpec, model: ModelSpec) -> str | None:
    """Reason for which a model cannot be fine-tuned so; None if it can, as far as specs tell."""
    if isinstance(model, TrainerSpec):
        return f"pretrained: a trainer ({model.name}) has no layers: leave it out"
    if isinstance(model, TransformersSpec) and model.place is not None and pretrained.weights is not None:
        return "pretrained.weights: the model has weights of its own (`folder`, `id`): leave one of them out"
    return None
