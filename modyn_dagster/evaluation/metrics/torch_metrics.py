"""Metrics of torchmetrics by the import path of their function, for example ``torchmetrics.functional:cosine_similarity``.

torch is imported when one is computed.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import CellFailed, EvaluationSamples, require_known
from modyn_dagster.spec.training import TaskKind

_PREFIX: Final = "torchmetrics."


def is_torchmetric(path: str) -> bool:
    """Whether an import path names a function of torchmetrics.

    >>> is_torchmetric("torchmetrics.functional.classification:binary_cohen_kappa"), is_torchmetric("my.metrics:cost")
    (True, False)
    """
    return path.startswith(_PREFIX)


def kind_of(path: str) -> TaskKind:
    """What the function judges: those for classes are named ``binary_…`` and ``multiclass_…``."""
    return "class" if path.rpartition(":")[2].startswith(("binary_", "multiclass_")) else "target"


def torchmetric(path: str, function: Callable[..., Any]) -> Callable[[EvaluationSamples, slice], float | str]:
    """The metric: ``binary_…`` is given the probability of class 1, ``multiclass_…`` the outputs and the number of classes,
    every other one the regression value.

    Whatever it raises, or a value that is not one number, fails the cell. NaN is undefined, and so is a number that it warns is
    meaningless.
    """
    name = path.rpartition(":")[2]

    def compute(judged: EvaluationSamples, part: slice) -> float | str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                found = float(function(*_arguments(name, judged, part)))
        except CellFailed:
            raise
        except UserWarning as warning:
            return str(warning)
        except Exception as error:
            raise CellFailed(f"{type(error).__name__}: {error}") from error
        return f"{name} gives {found}" if np.isnan(found) else found

    return compute


def _arguments(name: str, judged: EvaluationSamples, part: slice) -> tuple[Any, ...]:
    import torch

    if kind_of(name) == "class":
        require_known(judged, part)
    outputs, truth = (torch.from_numpy(array[part].copy()) for array in (judged.outputs, judged.truth))
    if name.startswith("multiclass_"):
        return outputs, truth, judged.n_classes
    if not name.startswith("binary_"):
        return outputs[:, 0].double(), truth
    if judged.n_classes != 2:
        raise CellFailed(f"{name} is for two classes, the model knows {judged.n_classes}")
    return outputs.double().softmax(dim=1)[:, 1], truth
