"""Metrics of torchmetrics by the import path of their function, for example ``torchmetrics.functional:cosine_similarity``.

torch is imported when one is computed.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import (
    CellFailed,
    EvaluationSamples,
    Outputs,
    Truth,
    UndefinedScore,
    require_known,
)
from modyn_dagster.spec.training import TaskKind

_PREFIX: Final = "torchmetrics."


def is_torchmetric(path: str) -> bool:
    """Tell whether an import path names a function of torchmetrics.

    >>> is_torchmetric("torchmetrics.functional.classification:binary_cohen_kappa"), is_torchmetric("my.metrics:cost")
    (True, False)
    """
    return path.startswith(_PREFIX)


def kind_of(path: str) -> TaskKind:
    """Task that the function is for: functions for classes are named ``binary_…`` and ``multiclass_…``.

    >>> kind_of("torchmetrics.functional.classification:binary_cohen_kappa"), kind_of("torchmetrics.functional:pearson_corrcoef")
    ('class', 'target')
    """
    return "class" if _name(path).startswith(("binary_", "multiclass_")) else "target"


def check_torchmetric(path: str) -> Callable[[EvaluationSamples, slice], None]:
    """A check that raises ``CellFailed`` for a class unknown to the model, and for more than two classes in ``binary_…``."""

    def check(samples: EvaluationSamples, part: slice) -> None:
        if kind_of(path) == "class":
            require_known(samples, part)
        if _name(path).startswith("binary_") and samples.n_classes != 2:
            raise CellFailed(f"{_name(path)} is for two classes, the model knows {samples.n_classes}")

    return check


def torchmetric(path: str, function: Callable[..., Any]) -> Callable[[Outputs, Truth], float]:
    """The metric as a function of numpy arrays.

    ``binary_…`` receives the probability of class 1, ``multiclass_…`` the outputs and the number of classes, every other function
    the predicted target. NaN is undefined, and so is a value that torchmetrics warns about.
    """
    name = _name(path)

    def compute(outputs: Outputs, truth: Truth) -> float:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                value = float(function(*_arguments(name, outputs, truth)))
        except UserWarning as warning:
            raise UndefinedScore(str(warning)) from warning
        if np.isnan(value):
            raise UndefinedScore(f"{name} gives {value}")
        return value

    return compute


def _name(path: str) -> str:
    return path.rpartition(":")[2]


def _arguments(name: str, outputs: Outputs, truth: Truth) -> tuple[Any, ...]:
    import torch

    logits, target = torch.from_numpy(outputs.copy()), torch.from_numpy(truth.copy())
    if name.startswith("multiclass_"):
        return logits, target, outputs.shape[1]
    if name.startswith("binary_"):
        return logits.double().softmax(dim=1)[:, 1], target
    return logits[:, 0].double(), target
