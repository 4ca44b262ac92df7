"""How to train: the loop, the models in the box, the predictor a trained model becomes, and loaders for loops of your own.

Names load on first use: importing this package imports neither torch nor anything else.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from modyn_dagster.reproducible import reproducible
    from modyn_dagster.training.check import check_task, check_user_code, import_paths
    from modyn_dagster.training.checkpoint import CheckpointFile
    from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData
    from modyn_dagster.training.fast_path import FastPath
    from modyn_dagster.training.loader import StreamLoader
    from modyn_dagster.training.loop import train
    from modyn_dagster.training.predictor import Predictor, build_predictor
    from modyn_dagster.training.progress import TrainingProgress, training_bar
    from modyn_dagster.training.stream_dataset import StreamDataset

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
    "training_bar",
]

_MODULES: Final = {
    "CheckpointFile": "checkpoint",
    "FastPath": "fast_path",
    "Predictor": "predictor",
    "PreviousModel": "data",
    "StreamDataset": "stream_dataset",
    "StreamLoader": "loader",
    "Task": "data",
    "TrainedModel": "data",
    "TrainingData": "data",
    "TrainingProgress": "progress",
    "build_predictor": "predictor",
    "check_task": "check",
    "check_user_code": "check",
    "import_paths": "check",
    # Beside this package: others need it, too.
    "reproducible": ".reproducible",
    "train": "loop",
    "training_bar": "progress",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
