"""Specs of training: model, loss, optimizer and loop. Built-ins by ``name``, user code by ``factory`` (an import path)."""

from datetime import datetime
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.learning.device import Device
from modyn_dagster.spec.learning.downsampling import DownsamplingSpec
from modyn_dagster.spec.learning.features import ColumnList, EmbeddingSpec, EncodingSpec, ImputeSpec, require_no_repeats
from modyn_dagster.spec.learning.libraries import ImageNetworkSpec
from modyn_dagster.spec.learning.models import CustomSpec, ModelSpec, input_mismatch
from modyn_dagster.spec.learning.optimizers import (
    CheckpointSpec,
    ClipSpec,
    CompileSpec,
    CustomOptimizerSpec,
    EarlyStoppingSpec,
    EMASpec,
    Optimizers,
    OptimizerSpec,
)
from modyn_dagster.spec.learning.parsing import ImageParserSpec, Parser, SoundParserSpec, TextParserSpec, TokenizerParserSpec
from modyn_dagster.spec.learning.pretrained import PretrainedSpec, pretrained_problem
from modyn_dagster.spec.learning.transforms import LabelTransform, TransformSpec
from modyn_dagster.spec.tasks.objectives import ObjectiveSpec, TokenTagsSpec, UnlabelledKind
from modyn_dagster.spec.tasks.task import LossName, TaskSpec

#: Kind of a dataset's label.
LabelKind = Literal["class", "target"]
#: Kind of task: by the label of the dataset, or by the loss where there is none.
TaskKind = Literal[LabelKind, UnlabelledKind]


def is_unlabelled(kind: TaskKind) -> bool:
    """Test that a kind of task reads no label.

    >>> is_unlabelled("tokens"), is_unlabelled("target")
    (True, False)
    """
    return kind not in get_args(LabelKind)


#: Names of inputs become keyword arguments of the model.
InputName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]


class GroupSpec(Spec):
    """Columns that reach the model as one tensor ``[B, number of values]`` of one dtype."""

    columns: ColumnList
    dtype: Literal["float32", "int32", "int64", "uint8", "bool"] = Field(
        "float32", description="float32 (float64 with precision 64-true) can be standardised; the others stay as they are."
    )

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        require_no_repeats(self.columns, "columns")
        return self


Groups = Annotated[dict[InputName, GroupSpec], Field(min_length=1)]


def _absent(value: object) -> bool:
    # Fields that are not set are excluded, so that they do not change the hash of the pipeline.
    return value is None


class TrainingSpec(Spec):
    """The training of one trigger."""

    features: ColumnList | Groups | Literal["numeric"] = Field(
        "numeric",
        description="Columns the model sees; `numeric`: all numeric ones but time, label and attributes, and those that `encode` "
        "names. A mapping makes several inputs, which a custom model's `forward` gets as keyword arguments.",
    )
    encode: dict[str, EncodingSpec] = Field(
        {},
        description="Encodings of columns of text, integers or truth values, by name or pattern. Fitted to each training set.",
        exclude_if=lambda value: not value,
    )
    impute: dict[str, ImputeSpec] = Field(
        {},
        description="Values for missing numbers of columns of floats, by name or pattern. Fitted to each training set.",
        exclude_if=lambda value: not value,
    )
    standardize: bool = Field(
        True, description="Hand numeric columns to the model with mean 0 and deviation 1, as found in the training set."
    )
    parser: Parser | None = Field(
        None,
        description="Makes arrays of the samples' bytes where the format has no columns: an import path of a batch parser "
        "`(list[bytes]) -> dict[str, ndarray]`, a function with workers, images or sounds.",
    )
    transforms: list[TransformSpec] = Field(
        [], description="Of the model's inputs, in this order.", exclude_if=lambda value: not value
    )
    label_transform: LabelTransform | None = Field(
        None, description="Other classes or targets than the dataset's, for training and evaluation.", exclude_if=_absent
    )
    task: TaskSpec | None = Field(
        None,
        description="What is learnt of the label; default: a class, or a target, by the label of the dataset.",
        exclude_if=_absent,
    )
    model: ModelSpec
    loss: LossName | Annotated[ObjectiveSpec, Field(discriminator="name")] | CustomSpec | None = Field(
        None, description="Default: by the task, such as cross_entropy for classes. A mapping with `name` needs no label."
    )
    optimizer: Optimizers = Field(OptimizerSpec(), description="One, or a list of several that share the parameters.")
    accumulate: PositiveInt = Field(1, description="Batches per optimizer step.", exclude_if=lambda value: value == 1)
    clip: ClipSpec | None = Field(None, description="Bound gradients.", exclude_if=_absent)
    ema: EMASpec | None = Field(None, description="Average the weights of the steps.", exclude_if=_absent)
    compile: CompileSpec | None = Field(None, description="Compile the model.", exclude_if=_absent)
    epochs: PositiveInt = 1
    max_steps: PositiveInt | None = Field(None, description="End after so many optimizer steps.", exclude_if=_absent)
    max_samples: PositiveInt | None = Field(
        None, description="End before a batch with which more samples would have been trained on.", exclude_if=_absent
    )
    early_stopping: EarlyStoppingSpec | None = Field(None, exclude_if=_absent)
    batch_size: PositiveInt = 256
    ranks: PositiveInt = Field(
        1,
        description="Processes that share every batch, each with a GPU of its own on device cuda. Their number decides bits.",
        exclude_if=lambda value: value == 1,
    )
    strategy: Literal["replicated", "fsdp"] = Field(
        "replicated",
        description="Whether each of the ranks holds the whole model, or a part of its weights, gradients and optimizer states.",
        exclude_if=lambda value: value == "replicated",
    )
    shuffle: bool | Literal["blocks"] = Field(
        True, description="A new order every epoch: of the whole set, or of blocks and inside them, for sets far beyond memory."
    )
    block_size: PositiveInt = Field(65_536, description="Samples per block of `shuffle: blocks`.")
    drop_last: bool = False
    downsampling: DownsamplingSpec | None = Field(
        None, description="Train on the samples that are worth it.", exclude_if=lambda value: value is None
    )
    use_previous_model: bool | Literal["newest", "champion"] = Field(
        False,
        description="Start from an earlier model of the run instead of from scratch: from the newest (true is the same), or from "
        "the champion of `promotion`.",
    )
    carry_optimizer: bool = Field(
        False,
        description="Start with the state of the previous model's optimizers too.",
        exclude_if=lambda value: not value,
    )
    initial_weights: str | None = Field(
        None,
        description="A safetensors file, relative to the project, to start from where there is no previous model.",
        exclude_if=_absent,
    )
    pretrained: PretrainedSpec | None = Field(
        None, description="Fine-tune a pretrained model: weights of a file, frozen parameters, LoRA.", exclude_if=_absent
    )
    checkpoint: CheckpointSpec | None = Field(
        CheckpointSpec(minutes=10), description="Write the state down now and then, so that a killed training goes on."
    )
    device: Device = "cpu"
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = "32-true"
    deterministic: bool = True

    @property
    def optimizers(self) -> list[OptimizerSpec | CustomOptimizerSpec]:
        """All optimizers, as a list."""
        return self.optimizer if isinstance(self.optimizer, list) else [self.optimizer]

    @property
    def is_pretrained(self) -> bool:
        """True for a model that is fine-tuned, and for a network of a library."""
        return self.pretrained is not None or isinstance(self.model, ImageNetworkSpec)

    @property
    def tags(self) -> list[str]:
        """Names of the tags of tokens; empty for any other loss than ``token_tags``."""
        return self.loss.tags if isinstance(self.loss, TokenTagsSpec) else []

    @property
    def possibly_seen_until(self) -> datetime | None:
        """Time in UTC up to which a pretrained model may have seen the data; None where the spec gives none."""
        return None if self.pretrained is None else self.pretrained.seen_until

    def at(self, trigger: int) -> Self:
        """The training at a trigger, by ordinal: with the downsampling of that trigger and no schedule."""
        if self.downsampling is None or not self.downsampling.schedule:
            return self
        policy = self.downsampling.at(trigger)
        fields = None if policy is None else policy.model_dump(exclude={"from_trigger", "schedule"})
        return self.model_copy(update={"downsampling": None if fields is None else DownsamplingSpec.model_validate(fields)})

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if isinstance(self.features, list):
            require_no_repeats(self.features, "features")
        if isinstance(self.parser, ImageParserSpec | SoundParserSpec | TextParserSpec | TokenizerParserSpec):
            for field in ("features", "encode", "impute"):
                if getattr(self, field) not in ("numeric", {}):
                    raise ValueError(f"images, sounds and texts are one array and have no columns: leave `{field}` out")
        if isinstance(self.parser, TokenizerParserSpec) and self.parser.tokenizer.tags is not None and not self.tags:
            raise ValueError("parser: tokenizer.tags is learnt by the loss `token_tags` alone")
        known = list(self.features) if isinstance(self.features, dict) else ["features"]
        if strange := [each.input for each in self.transforms if each.input is not None and each.input not in known]:
            raise ValueError(f"transforms: {strange[0]!r} is no input of the model: {', '.join(known)}")
        if len(known) > 1 and any(each.input is None for each in self.transforms):
            raise ValueError(f"transforms: each needs an `input` of the model: {', '.join(known)}")
        if self.max_samples is not None and self.max_samples < self.batch_size:
            raise ValueError(f"max_samples {self.max_samples} is less than a batch of {self.batch_size}")
        if self.carry_optimizer and not self.use_previous_model:
            raise ValueError("carry_optimizer needs use_previous_model: true")
        if self.precision == "16-mixed" and self.device == "cpu":
            raise ValueError("precision 16-mixed needs device cuda; a CPU has bf16-mixed")
        return self

    @model_validator(mode="after")
    def _pretrained_fits(self) -> Self:
        if self.pretrained is not None and (problem := pretrained_problem(self.pretrained, self.model)):
            raise ValueError(problem)
        if self.pretrained is not None and self.pretrained.weights is not None and self.initial_weights is not None:
            raise ValueError("pretrained.weights and initial_weights are two beginnings: give one of them")
        if self.pretrained is not None and self.strategy == "fsdp" and (self.pretrained.freeze or self.pretrained.lora):
            raise ValueError("pretrained: frozen parameters are not divided among ranks: use `strategy: replicated`")
        return self

    @model_validator(mode="after")
    def _features_fit_the_model(self) -> Self:
        groups = {name: group.dtype for name, group in self.features.items()} if isinstance(self.features, dict) else None
        embedded = next((name for name, encoding in self.encode.items() if isinstance(encoding, EmbeddingSpec)), None)
        if problem := input_mismatch(self.model, groups, self.parser, embedded=embedded):
            raise ValueError(problem)
        if embedded is not None and self.transforms:
            raise ValueError(
                f"encode: the embedding of {embedded!r} takes its column as it is, so `transforms` must not change it"
            )
        return self
