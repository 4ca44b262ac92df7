"""Trainers of boosted trees: their fields that belong to the pipeline, and objectives that fit the task."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.trainers import LightGBMSpec, XGBoostSpec
from modyn_dagster.training.trainers.adapters.libraries import THREADS, library_version
from modyn_dagster.training.trainers.protocol import LearningTask

_SEED: Final = "comes from the `seed` of the pipeline"
_ROUNDS: Final = "is the field `rounds` beside `parameters`"
_CLASSES: Final = "comes from the dataset's label"
_FILES: Final = "names a file or a machine: training reads the samples of the trigger alone"
_DEVICE: Final = "is not possible: trainers compute on the CPU"
_STOPPING: Final = "needs samples that are not trained on: choose `rounds`"
#: Parameters that a spec must not set, and where their values come from.
_RESERVED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("n_jobs", "nthread", "nthreads", "num_thread", "num_threads"), THREADS),
    **dict.fromkeys(("seed", "random_seed"), _SEED),
    **dict.fromkeys(("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds"), _ROUNDS),
    **dict.fromkeys(("nrounds", "num_boost_round", "n_estimators"), _ROUNDS),
    **dict.fromkeys(("num_class", "num_classes"), _CLASSES),
    **dict.fromkeys(("device", "device_type", "gpu_id"), _DEVICE),
    **dict.fromkeys(("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"), _STOPPING),
    **dict.fromkeys(("data", "train", "train_data", "valid", "test", "test_data", "valid_data", "machines", "workers"), _FILES),
    **dict.fromkeys(("task", "config", "config_file"), _FILES),
}


class BoostedTrees:
    """Base of trainers of boosted trees, which weigh samples and continue a model by more trees.

    Args:
        spec: parameters and rounds; its name is that of the package and of the extra.
        task: task of the models.

    Attributes:
        objectives: those of classes whose predictions are probabilities.
        rankings: those of rankings.

    Raises:
        ConfigError: a parameter is not for the spec to set, or the objective does not fit the task.
        MissingExtra: the library is not installed.
    """

    takes_weights = True
    continues = True
    objectives: ClassVar[tuple[str, ...]]
    rankings: ClassVar[tuple[str, ...]]

    def __init__(self, spec: LightGBMSpec | XGBoostSpec, task: LearningTask) -> None:
        self.library: tuple[str, str] = (spec.name, library_version(spec.name, spec.name, task.source, spec.name))
        refuse_reserved(spec.parameters, task.source)
        objective = spec.parameters.get("objective")
        allowed = self.objectives if task.kind == "class" else self.rankings
        if (task.kind == "class" or task.ranks) and objective is not None and objective not in allowed:
            subject = "the task is ranking" if task.ranks else "the label is a class"
            rule = f"{subject}: use one of {', '.join(allowed)}, or leave it out"
            raise ConfigError(task.source, "training.model.parameters.objective", objective, rule)
        self._spec, self._task = spec, task


def refuse_reserved(parameters: Mapping[str, Any], source: str) -> None:
    """Raise ``ConfigError`` for a parameter of boosting that the pipeline decides, or that names a file."""
    for name, value in parameters.items():
        field = f"training.model.parameters.{name}"
        if name in _RESERVED:
            raise ConfigError(source, field, value, _RESERVED[name])
        if "filename" in name or name.endswith(("_file", "_model", "_path")) or "machine" in name:
            raise ConfigError(source, field, value, _FILES)
