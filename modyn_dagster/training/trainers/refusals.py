"""Fields and combinations that a trainer cannot have, found before anything runs."""

from collections.abc import Iterator
from typing import Any, Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.trainers import LightGBMSpec, TrainerSpec, XGBoostSpec
from modyn_dagster.spec.learning.transforms import kind_after
from modyn_dagster.spec.online import GSSSpec, MIRSpec, WeighedOnlineSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import SimilarToUnlabelledSpec, Strategy
from modyn_dagster.spec.strategies.sized import Weighing
from modyn_dagster.spec.tasks.task import RankingTask
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.spec.triggers.measured import DriftTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks
from modyn_dagster.training.trainers.protocol import LearningTask, Trainer
from modyn_dagster.training.trainers.registry import build_trainer
from modyn_dagster.training.trainers.trial import Trial, known_columns

#: Fields of the training loop.
_LOOP: Final = (
    "transforms",
    "loss",
    "optimizer",
    "accumulate",
    "clip",
    "ema",
    "compile",
    "epochs",
    "max_steps",
    "max_samples",
    "early_stopping",
    "batch_size",
    "ranks",
    "strategy",
    "shuffle",
    "block_size",
    "drop_last",
    "downsampling",
    "carry_optimizer",
    "initial_weights",
    "deterministic",
)


def loop_errors(spec: TrainingSpec, *, source: str) -> Iterator[ConfigError]:
    """Errors of fields that need the training loop, in the training of a trainer; none for other models."""
    if not isinstance(spec.model, TrainerSpec):
        return
    name, fields = spec.model.name, TrainingSpec.model_fields
    for field in _LOOP:
        value = getattr(spec, field)
        if value != fields[field].get_default(call_default_factory=True):
            shown = value if isinstance(value, bool | int | str) else "(on)"
            rule = f"belongs to the training loop, and a trainer ({name}) has none: leave it out"
            yield ConfigError(source, f"training.{field}", shown, rule)
    if spec.checkpoint is not None and spec.checkpoint != fields["checkpoint"].get_default():
        rule = f"belongs to the training loop: a fit by a trainer ({name}) that is killed begins again, with the same result"
        yield ConfigError(source, "training.checkpoint", "(on)", rule)
    if spec.precision not in ("32-true", "64-true"):
        rule = f"a trainer ({name}) gets its inputs as float32 or float64: use 32-true or 64-true"
        yield ConfigError(source, "training.precision", spec.precision, rule)
    if spec.device != "cpu":
        yield ConfigError(source, "training.device", spec.device, f"a trainer ({name}) computes on the CPU: use cpu")


def require_no_loop(spec: TrainingSpec, *, source: str) -> None:
    """Raise the first of ``loop_errors``."""
    for error in loop_errors(spec, source=source):
        raise error


def trainer_errors(pipeline: PipelineSpec, dataset: DatasetSpec) -> Iterator[ConfigError]:
    """Errors of a pipeline whose model a trainer fits; none for other models.

    Where nothing else is wrong, the trainer is tried: it fits 100 made-up rows twice, and must give the same bytes.
    """
    training, source = pipeline.training, f"pipeline {pipeline.name}"
    if not isinstance(training.model, TrainerSpec) or dataset.label is None:
        return
    found = [*loop_errors(training, source=source), *_layer_errors(pipeline, source)]
    yield from found
    kind = kind_after(training.label_transform, dataset.label.kind)
    columns, continued = _columns(training), bool(training.use_previous_model)
    ranks = isinstance(training.task, RankingTask)
    if ranks and not isinstance(training.model, LightGBMSpec | XGBoostSpec):
        # Refused as a task of this trainer.
        return
    task = LearningTask(kind, columns, _n_outputs(dataset, kind), pipeline.threads, source, continued, ranks=ranks)
    try:
        trainer = build_trainer(training.model, task)
        _require_abilities(trainer, pipeline, source)
        if not found:
            Trial(training, training.model, task, weighted=_weighing_field(pipeline) is not None, seed=pipeline.seed).run()
    except ConfigError as error:
        yield error


def _layer_errors(pipeline: PipelineSpec, source: str) -> Iterator[ConfigError]:
    rule = f"a trainer ({getattr(pipeline.training.model, 'name', '')}) has no layers"
    for field, block in nested_blocks(pipeline.trigger):
        if isinstance(block, DriftTriggerSpec) and block.features.of == "embeddings":
            yield ConfigError(source, f"{field}.features.of", "embeddings", f"{rule}: use columns or outputs")
    for field, strategy in pipeline.selection.by_field.items():
        if isinstance(strategy, GSSSpec | MIRSpec):
            yield ConfigError(source, f"{field}.kind", strategy.kind, f"{rule} whose gradients the strategy compares")
        elif isinstance(strategy, SimilarToUnlabelledSpec):
            yield ConfigError(source, f"{field}.kind", strategy.kind, f"{rule} whose embeddings the strategy compares")


def _require_abilities(trainer: Trainer, pipeline: PipelineSpec, source: str) -> None:
    training = pipeline.training
    model: Any = training.model
    subject = getattr(model, "estimator", None) or getattr(model, "factory", model.name)
    if training.use_previous_model and not trainer.continues:
        rule = f"{subject} cannot continue an earlier model: it has neither partial_fit nor warm_start"
        if not hasattr(model, "estimator"):
            rule = f"{subject} cannot continue an earlier model (`continues` is false)"
        raise ConfigError(source, "training.use_previous_model", training.use_previous_model, rule)
    field = _weighing_field(pipeline)
    if field is not None and not trainer.takes_weights:
        rule = f"gives samples weights, and {subject} takes none: use `weights: equal`, or an estimator with sample_weight"
        raise ConfigError(source, f"{field}.weights", "unbiased", rule)


def _weighing_field(pipeline: PipelineSpec) -> str | None:
    """Field of a strategy that is sure to give samples different weights; None without one."""
    fields = (field for field, strategy in pipeline.selection.by_field.items() if _weighs(strategy))
    return next(fields, None)


def _weighs(strategy: Strategy) -> bool:
    return isinstance(strategy, Weighing | WeighedOnlineSpec) and strategy.weights == "unbiased"


def _columns(training: TrainingSpec) -> tuple[str, ...]:
    """Names of made-up columns: those of the spec, or some where only the data tell."""
    return known_columns(training) or tuple(f"column_{i}" for i in range(8))


def _n_outputs(dataset: DatasetSpec, kind: str) -> int:
    label = dataset.label
    if kind == "target" or label is None:
        return 1
    return min(10, max(2, len(label.classes or ()), label.n_classes or 0))
