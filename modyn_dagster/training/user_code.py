"""User code of a training: its import paths, the check before a run, and errors that name it."""

from collections.abc import Iterator
from importlib.util import find_spec
from types import TracebackType

from modyn_dagster.errors import MissingExtra, ModynError, TrainingError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.learning.downsampling import CustomPolicySpec
from modyn_dagster.spec.learning.models import CustomSpec, DistilBertSpec
from modyn_dagster.spec.learning.optimizers import CustomSchedulerSpec, optimizer_fields
from modyn_dagster.spec.learning.parsing import ParserSpec, TokenizerParserSpec
from modyn_dagster.spec.learning.trainers import OwnTrainerSpec, RiverSpec, SklearnSpec, nested_estimators
from modyn_dagster.spec.learning.transforms import OwnLabels
from modyn_dagster.spec.training import TrainingSpec


class user_code:  # noqa: N801 - used as a function; a class is faster around every step
    """Turn exceptions of user code into a ``TrainingError`` that begins with ``what``; errors of Modyn pass unchanged."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, ModynError):
            raise TrainingError(f"{self._what} failed: {type(error).__name__}: {error}") from error


def import_paths(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """List the user code of a training: ``(field, import path)``."""
    if isinstance(spec.parser, ParserSpec):
        yield "training.parser.function", spec.parser.function
    elif isinstance(spec.parser, TokenizerParserSpec) and spec.parser.tokenizer.factory is not None:
        yield "training.parser.tokenizer.factory", spec.parser.tokenizer.factory
    elif isinstance(spec.parser, str):
        yield "training.parser", spec.parser
    for field, part in (("model", spec.model), ("loss", spec.loss)):
        if isinstance(part, CustomSpec | OwnTrainerSpec):
            yield f"training.{field}.factory", part.factory
    if isinstance(spec.model, SklearnSpec | RiverSpec):
        yield "training.model.estimator", spec.model.estimator
        yield from ((f"training.model.{place}", path) for place, path in nested_estimators(spec.model.parameters, "parameters"))
    for field, optimizer in zip(optimizer_fields(len(spec.optimizers)), spec.optimizers):
        if isinstance(optimizer, CustomSpec):
            yield f"{field}.factory", optimizer.factory
        if isinstance(optimizer.scheduler, CustomSchedulerSpec):
            yield f"{field}.scheduler.factory", optimizer.scheduler.factory
    yield from transform_paths(spec)
    if spec.downsampling is not None:
        for stage in (spec.downsampling, *spec.downsampling.schedule):
            if isinstance(stage.policy, CustomPolicySpec):
                yield "training.downsampling.policy.factory", stage.policy.factory


def transform_paths(spec: TrainingSpec) -> Iterator[tuple[str, str]]:
    """List the user code of transforms of inputs and labels."""
    for i, transform in enumerate(spec.transforms):
        yield f"training.transforms.{i}.{'factory' if transform.function is None else 'function'}", transform.path
    if isinstance(spec.label_transform, OwnLabels):
        yield "training.label_transform.function", spec.label_transform.function


def check_user_code(spec: TrainingSpec, *, source: str) -> None:
    """Import all user code of a training; ``ImportPathError`` names ``source`` (the pipeline) and the field.

    ``MissingExtra`` for a built-in model whose library is not installed.
    """
    if isinstance(spec.model, DistilBertSpec) and find_spec("transformers") is None:
        raise MissingExtra(source, "training.model.name", spec.model.name, package="transformers", extra="text")
    for field, path in import_paths(spec):
        import_callable(path, source=source, field=field)
