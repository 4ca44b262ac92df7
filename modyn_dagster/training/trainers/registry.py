"""Trainers by the kind of their spec."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

from modyn_dagster.imports import call_factory
from modyn_dagster.spec.learning.trainers import (
    LightGBMSpec,
    OwnTrainerSpec,
    RiverSpec,
    SklearnSpec,
    TrainerSpec,
    XGBoostSpec,
)
from modyn_dagster.training.trainers.adapters.lightgbm import LightGBMTrainer
from modyn_dagster.training.trainers.adapters.river import RiverTrainer
from modyn_dagster.training.trainers.adapters.sklearn import SklearnTrainer
from modyn_dagster.training.trainers.adapters.xgboost import XGBoostTrainer
from modyn_dagster.training.trainers.protocol import LearningTask, Trainer, require_trainer


def build_trainer(spec: TrainerSpec, task: LearningTask) -> Trainer:
    """Build the trainer of a spec.

    Raises:
        ConfigError: the spec does not fit the task, or a factory of user code returns no trainer.
        ImportPathError: a path cannot be imported.
        MissingExtra: the library is not installed.
    """
    return _TRAINERS[type(spec)](spec, task)


def _own(spec: OwnTrainerSpec, task: LearningTask) -> Trainer:
    trainer = call_factory(spec.factory, spec.config, task, source=task.source, field="training.model")
    return require_trainer(trainer, spec.factory, task.source)


def libraries_of(architecture: Mapping[str, Any]) -> dict[str, str]:
    """Versions by name of the packages that a recorded model of a trainer needs; empty for other models, and for user code."""
    name = architecture["model"].get("name")
    if "library" not in architecture or name == "trainer":
        return {}
    found = {architecture["library"]["name"]: architecture["library"]["version"]}
    return found | ({"skops": version("skops")} if name == "sklearn" else {})


_TRAINERS: Final[Mapping[type, Callable[[Any, LearningTask], Trainer]]] = {
    SklearnSpec: SklearnTrainer,
    LightGBMSpec: LightGBMTrainer,
    XGBoostSpec: XGBoostTrainer,
    RiverSpec: RiverTrainer,
    OwnTrainerSpec: _own,
}
