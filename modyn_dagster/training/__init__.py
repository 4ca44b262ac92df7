"""Training: the loop, built-in models, the predictor of a trained model, and loaders for loops of your own.

Names load on first use: importing this package imports neither torch nor anything else.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.progress import TrainingProgress, training_bar
    from modyn_dagster.reproducibility.determinism import reproducible
    from modyn_dagster.training.checkpoint.file import CheckpointFile
    from modyn_dagster.training.data import FastPath, PreviousModel, Task, TrainedModel, TrainingData, check_task
    from modyn_dagster.training.in_ranks import train_in_ranks
    from modyn_dagster.training.loader import StreamLoader
    from modyn_dagster.training.loop.trainer import train
    from modyn_dagster.training.predictor import Predictor, build_predictor
    from modyn_dagster.training.stream_dataset import StreamDataset
    from modyn_dagster.training.user_code import check_user_code, import_paths

__all__ = [
    "CheckpointFile",
    "FastPath",
    "Predictor",
    "PreviousModel",
    "StreamDataset",
    "StreamLoader",
    "Task",
    "TrainedModel",
    "TrainingData",
    "TrainingProgress",
    "build_predictor",
    "check_task",
    "check_user_code",
    "import_paths",
    "reproducible",
    "train",
    "train_in_ranks",
    "training_bar",
]

_HOMES: Final[Mapping[str, str]] = {
    "CheckpointFile": "modyn_dagster.training.checkpoint.file",
    "FastPath": "modyn_dagster.training.data",
    "Predictor": "modyn_dagster.training.predictor",
    "PreviousModel": "modyn_dagster.training.data",
    "StreamDataset": "modyn_dagster.training.stream_dataset",
    "StreamLoader": "modyn_dagster.training.loader",
    "Task": "modyn_dagster.training.data",
    "TrainedModel": "modyn_dagster.training.data",
    "TrainingData": "modyn_dagster.training.data",
    "TrainingProgress": "modyn_dagster.progress",
    "build_predictor": "modyn_dagster.training.predictor",
    "check_task": "modyn_dagster.training.data",
    "check_user_code": "modyn_dagster.training.user_code",
    "import_paths": "modyn_dagster.training.user_code",
    "reproducible": "modyn_dagster.reproducibility.determinism",
    "train": "modyn_dagster.training.loop.trainer",
    "train_in_ranks": "modyn_dagster.training.in_ranks",
    "training_bar": "modyn_dagster.progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
