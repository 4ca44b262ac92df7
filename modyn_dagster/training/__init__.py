"""How to train: the loop, the models in the box, and the predictor a trained model becomes.

Names load on first use: importing this package does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Final

from modyn_dagster.training.check import check_task, check_user_code, import_paths
from modyn_dagster.training.data import PreviousModel, Task, TrainedModel, TrainingData
from modyn_dagster.training.progress import TrainingProgress, training_bar

if TYPE_CHECKING:
    from modyn_dagster.training.loop import train
    from modyn_dagster.training.predictor import Predictor, build_predictor
    from modyn_dagster.training.reproducible import reproducible

__all__ = [
    "Predictor",
    "PreviousModel",
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

_WITH_TORCH: Final = {
    "Predictor": "predictor",
    "build_predictor": "predictor",
    "reproducible": "reproducible",
    "train": "loop",
}


def __getattr__(name: str) -> object:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
