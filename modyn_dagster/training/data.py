"""Inputs and results of a training, its task, and the checks of both that need no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from fastpath import TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.learning.libraries import TOKEN_LOSSES, TransformersSpec
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.learning.trainers import OwnTrainerSpec, RiverSpec, SklearnSpec, TrainerSpec
from modyn_dagster.spec.learning.transforms import GroupedLabels, PositiveLabels, ThresholdLabels, kind_after
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.tasks.task import TASKS, QuantilesTask, RankingTask, SeveralColumns, task_name
from modyn_dagster.spec.training import TaskKind, TrainingSpec, is_unlabelled
from modyn_dagster.training.refusals.several_columns import check_columns
from modyn_dagster.training.refusals.unlabelled import check_without_label

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class FastPath:
    """Options of reading during a training.

    Attributes:
        threads: number of threads that gather, parse and prepare batches.
        prefetch: number of batches prepared ahead of the model.
        cache_bytes: largest inputs of a training set that stay in memory between epochs.
        pin: use page-locked memory for copies to a GPU; None does so if there is one.
        resident: keep the shards and files of the samples in memory, in large pages.
    """

    threads: int = 1
    prefetch: int = 2
    cache_bytes: int = 256 << 20
    pin: bool | None = None
    resident: bool = False


class Reader(Protocol):
    """Reader of samples by key. Readers other than ``SampleReader`` are called by the training thread."""

    def read(self, keys: KeyArray) -> Samples:
        """Read samples in the order of ``keys``."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """A training set and a reader of its samples.

    Attributes:
        chosen: keys, and weights that are finite and positive; mapped from its file or in memory.
        reader: reader of all its samples.
        fast_path: options of reading, which change no result.
    """

    chosen: TrainingSet
    reader: Reader
    fast_path: FastPath = FastPath()

    def __post_init__(self) -> None:
        if len(self.chosen) == 0:
            raise TrainingError("the training set is empty; there is nothing to train on")
        for partition in self.chosen.partitions():
            unusable = ~(np.isfinite(partition.weights) & (partition.weights > 0))
            if unusable.any():
                first = int(np.argmax(unusable))
                weight = f"the weight of key {partition.keys[first]} is {partition.weights[first]}"
                raise TrainingError(f"{weight}, weights must be finite and above 0")

    def __len__(self) -> int:
        return len(self.chosen)


@dataclass(frozen=True, slots=True)
class Task:
    """Learning task: kind of output and number of classes.

    Attributes:
        kind: class index or regression target, or what a loss without labels makes of the inputs.
        n_classes: number of classes; None counts those of the training set (at least two, and no fewer than the previous
            model has).
        exclude: columns that ``features: numeric`` leaves out, such as time, label and attributes.
    """

    kind: TaskKind
    n_classes: int | None = None
    exclude: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class PreviousModel:
    """Previous model: its weights, recorded ``architecture``, and optimizer states if requested."""

    state_dict: Mapping[str, "Tensor"]
    architecture: Mapping[str, Any]
    optimizers: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Result of a training: weights, architecture, losses and measurements.

    Attributes:
        state_dict: weights and standardisation, on the CPU.
        architecture: record from which ``build_predictor`` builds the module; JSON-serialisable.
        losses: weighted mean loss of each epoch.
        curve: at most 1,000 points ``(batch, mean loss since the point before)``, batches counted from 1.
        n_steps: optimizer steps taken.
        n_samples: size of the training set.
        seconds: host time per stage: prepare, data (waiting for batches), to_device, select (downsampling), forward, backward,
            step, calibrate (early stopping), finish. The seconds of a killed training up to its checkpoint count.
        optimizers: optimizer states, if the spec says ``carry_optimizer``.
        calibration_losses: loss of each epoch on the calibration samples of early stopping.
        epochs: ``n_samples`` and ``seconds`` per stage of each epoch.
        pretrained: report of the pretrained weights that training began with; None without.
        surroundings: libraries, hardware, thread count and settings that decide bits beside spec, data and seed.
    """

    state_dict: dict[str, "Tensor"]
    architecture: dict[str, Any]
    losses: list[float]
    curve: list[tuple[int, float]]
    n_steps: int
    n_samples: int
    seconds: dict[str, float]
    optimizers: list[dict[str, Any]] | None = None
    calibration_losses: list[float] = field(default_factory=list)
    surroundings: dict[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    pretrained: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """Record of the training for the catalog, JSON-serialisable."""
        return {
            "n_steps": self.n_steps,
            "epochs": self.epochs,
            "calibration_losses": self.calibration_losses,
            "surroundings": self.surroundings,
        } | ({} if self.pretrained is None else {"pretrained": self.pretrained})


#: Layer of raw outputs: logits, or the regression value.
OUTPUTS: Final = "<outputs>"
#: In place of a layer: what the metrics of a model without a label are computed from.
MEASURES: Final = "<measures>"
#: Layer of the body's inputs: standardised columns, or a parser's array.
COLUMNS: Final = "<columns>"
#: Layer of the last linear layer's inputs.
EMBEDDING: Final = "<embedding>"

#: Kinds of label that transforms need; other transforms take any.
_LABEL_OF_TRANSFORM: Final[Mapping[type, TaskKind]] = {GroupedLabels: "class", PositiveLabels: "class", ThresholdLabels: "target"}


def check_task(spec: TrainingSpec, kind: TaskKind | None, *, source: str) -> None:
    """Check label transform, task and loss against the dataset's label (of ``kind``; None: it has none).

    Raises ``ConfigError`` for unsuitable ones.
    """
    objective = kind_of_objective(spec.loss)
    if kind is None or is_unlabelled(kind):
        check_without_label(spec, source=source)
        return
    if objective is not None:
        allowed = TASKS[task_name(spec.task, kind_after(spec.label_transform, kind))].losses
        rule = (
            f"reads no label, and the dataset's label is a {kind}: give the dataset `label: {{kind: none}}`, or use "
            f"{' or '.join(allowed)}"
        )
        raise ConfigError(source, "training.loss.name", getattr(spec.loss, "name", None), rule)
    if isinstance(spec.model, TransformersSpec) and (loss := TOKEN_LOSSES.get(spec.model.task)) is not None:
        rule = f"is for the loss {loss}, which reads no label, and the dataset's label is a {kind}"
        raise ConfigError(source, "training.model.task", spec.model.task, rule)
    required = _LABEL_OF_TRANSFORM.get(type(spec.label_transform), kind)
    if spec.label_transform is not None and required != kind:
        (name,) = spec.label_transform.model_fields_set
        raise ConfigError(
            source, f"training.label_transform.{name}", "(on)", f"is for a {required}; the dataset's label is a {kind}"
        )
    learnt = kind_after(spec.label_transform, kind)
    what = "the dataset's label" if spec.label_transform is None else "the label after label_transform"
    task = task_name(spec.task, learnt)
    if TASKS[task].label != learnt:
        raise ConfigError(source, "training.task.kind", task, f"is for a {TASKS[task].label}; {what} is a {learnt}")
    if isinstance(spec.task, SeveralColumns | RankingTask):
        check_columns(spec, spec.task, source=source)
    if isinstance(spec.task, QuantilesTask | SeveralColumns) and isinstance(spec.model, TrainerSpec):
        rule = f"needs a network, with an output for each: a trainer ({spec.model.name}) predicts one value"
        raise ConfigError(source, "training.task.kind", task, rule)
    if isinstance(spec.task, RankingTask) and isinstance(spec.model, SklearnSpec | RiverSpec | OwnTrainerSpec):
        rule = f"needs a network, lightgbm or xgboost, which learn from groups: {spec.model.name} is given single samples"
        raise ConfigError(source, "training.task.kind", task, rule)
    allowed = TASKS[task].losses
    if spec.loss is not None and not isinstance(spec.loss, CustomSpec) and spec.loss not in allowed:
        subject = f"{what} is a {learnt}" if spec.task is None else f"the task is {task}"
        rule = f"{subject}: use {' or '.join(allowed)}, or a loss of your own"
        raise ConfigError(source, "training.loss", spec.loss, rule)


def check_ranks(spec: TrainingSpec, *, source: str) -> None:
    """Check that ranks can share a training; ``ConfigError`` names the field."""
    if spec.strategy == "fsdp":
        _check_sharding(spec, source)
    if spec.ranks == 1:
        return
    if spec.ranks > spec.batch_size:
        rule = f"must not exceed `batch_size`, {spec.batch_size}: ranks share every batch"
        raise ConfigError(source, "training.ranks", spec.ranks, rule)
    for i, transform in enumerate(spec.transforms):
        if transform.per == "batch":
            rule = f"sees one rank's share of a batch with `ranks: {spec.ranks}`; use `per: sample`"
            raise ConfigError(source, f"training.transforms.{i}.per", "batch", rule)
    if spec.device not in ("cpu", "cuda", "auto"):
        rule = "names one GPU, and every rank gets one of its own: use cuda"
        raise ConfigError(source, "training.device", spec.device, rule)


def _check_sharding(spec: TrainingSpec, source: str) -> None:
    """Check that ranks can divide the weights of a model among them."""
    if spec.ranks == 1:
        raise ConfigError(source, "training.strategy", "fsdp", "needs `ranks` above 1, which divide the weights among them")
    if spec.precision.endswith("mixed"):
        rule = "is not divided among ranks: use 32-true or 64-true, or `strategy: replicated`"
        raise ConfigError(source, "training.precision", spec.precision, rule)
    if spec.compile is not None:
        raise ConfigError(source, "training.compile", "(on)", "is not possible with `strategy: fsdp`")
