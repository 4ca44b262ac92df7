"""Libraries of trainers, which extras install, and their fields that belong to the pipeline."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from modyn_dagster.errors import ConfigError, MissingExtra

#: Rule about parameters that choose a number of threads.
THREADS: Final = "comes from `threads` of the pipeline"
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


def library_version(package: str, extra: str, source: str, name: str) -> str:
    """Version of an installed package; ``MissingExtra`` names the extra that brings it."""
    distributions = (package, f"{package}-cpu")
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise MissingExtra(source, "training.model.name", name, package=package, extra=extra)


def refuse_reserved(parameters: Mapping[str, Any], source: str) -> None:
    """Raise ``ConfigError`` for a parameter of boosting that the pipeline decides, or that names a file."""
    for name, value in parameters.items():
        field = f"training.model.parameters.{name}"
        if name in _RESERVED:
            raise ConfigError(source, field, value, _RESERVED[name])
        if "filename" in name or name.endswith(("_file", "_model", "_path")) or "machine" in name:
            raise ConfigError(source, field, value, _FILES)
