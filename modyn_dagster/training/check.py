"""Whether a training can work at all, found out before any run starts and without importing torch."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.downsampling import CustomPolicySpec
from modyn_dagster.spec.models import CustomSpec, DistilBertSpec
from modyn_dagster.spec.optimizers import CustomSchedulerSpec, optimizer_fields
from modyn_dagster.spec.parsing import ParserSpec, TokenizerParserSpec
from modyn_dagster.spec.training import LossName, TaskKind, TrainingSpec
from modyn_dagster.spec.transforms import GroupedLabels, OwnLabels, PositiveLabels, ThresholdLabels, kind_after

#: Of what kind of label a transform takes; any where it is not here.
_TAKES: Final[Mapping[type, TaskKind]] = {GroupedLabels: "class", PositiveLabels: "class", ThresholdLabels: "target"}
_LOSSES_OF: Final[Mapping[TaskKind, tuple[LossName, ...]]] = {"class": ("cross_entropy",), "target": ("mse", "l1")}


def default_loss(kind: TaskKind) -> LossName:
    """What is minimised where the spec names nothing."""
    return _LOSSES_OF[kind][0]


def import_paths(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """Every piece of user code of a training: ``(field, import path)``."""
    if isinstance(spec.parser, ParserSpec):
        yield "training.parser.function", spec.parser.function
    elif isinstance(spec.parser, TokenizerParserSpec) and spec.parser.tokenizer.factory is not None:
        yield "training.parser.tokenizer.factory", spec.parser.tokenizer.factory
    elif isinstance(spec.parser, str):
        yield "training.parser", spec.parser
    for field, part in (("model", spec.model), ("loss", spec.loss)):
        if isinstance(part, CustomSpec):
            yield f"training.{field}.factory", part.factory
    for field, optimizer in zip(optimizer_fields(len(spec.optimizers)), spec.optimizers):
        if isinstance(optimizer, CustomSpec):
            yield f"{field}.factory", optimizer.factory
        if isinstance(optimizer.scheduler, CustomSchedulerSpec):
            yield f"{field}.scheduler.factory", optimizer.scheduler.factory
    yield from transform_paths(spec)
    if spec.downsampling is not None:
        for each in (spec.downsampling, *spec.downsampling.schedule):
            if isinstance(each.policy, CustomPolicySpec):
                yield "training.downsampling.policy.factory", each.policy.factory


def transform_paths(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """The part of them that makes other inputs or labels of samples."""
    for i, transform in enumerate(spec.transforms):
        yield f"training.transforms.{i}.{'factory' if transform.function is None else 'function'}", transform.path
    if isinstance(spec.label_transform, OwnLabels):
        yield "training.label_transform.function", spec.label_transform.function


def check_user_code(spec: TrainingSpec, *, source: str) -> None:
    """Import all user code of a training; ``ImportPathError`` names ``source`` (the pipeline) and the field.

    ``MissingExtra`` for a model in the box that needs a library which is not installed.
    """
    if isinstance(spec.model, DistilBertSpec) and find_spec("transformers") is None:
        raise MissingExtra(source, "training.model.name", spec.model.name, package="transformers", extra="text")
    for field, path in import_paths(spec):
        import_callable(path, source=source, field=field)


def check_task(spec: TrainingSpec, kind: TaskKind, *, source: str) -> None:
    """``ConfigError`` when label transform or loss are not for what the dataset's label is."""
    takes = _TAKES.get(type(spec.label_transform), kind)
    if spec.label_transform is not None and takes != kind:
        (name,) = spec.label_transform.model_fields_set
        raise ConfigError(
            source, f"training.label_transform.{name}", "(on)", f"is for a {takes}; the dataset's label is a {kind}"
        )
    learnt = kind_after(spec.label_transform, kind)
    allowed = _LOSSES_OF[learnt]
    if spec.loss is not None and not isinstance(spec.loss, CustomSpec) and spec.loss not in allowed:
        what = "the dataset's label" if spec.label_transform is None else "what label_transform makes"
        rule = f"{what} is a {learnt}: use {' or '.join(allowed)}, or a loss of your own"
        raise ConfigError(source, "training.loss", spec.loss, rule)
