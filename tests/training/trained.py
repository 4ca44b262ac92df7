"""One training of a table, and what is compared of it."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import (
    FastPath,
    Task,
    TrainedModel,
    train,
)
from tests.training.table import FASTEST, Table

CLASSES = Task("class", exclude=frozenset({"label"}))


def trained(
    table: Table,
    spec: TrainingSpec,
    *,
    weights: npt.ArrayLike | None = None,
    task: Task = CLASSES,
    fast_path: FastPath = FASTEST,
    **options: Any,
) -> TrainedModel:
    fixed: dict[str, Any] = {"seed": 3, "threads": 1, "source": "pipeline p"}
    return train(spec, table.data(weights, fast_path), task=task, **fixed | options)


def assert_same_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert tensor.numpy().tobytes() == other[name].numpy().tobytes(), name


def weights_of(found: TrainedModel) -> Tensor:
    """Weights of the body, as one row."""
    return torch.cat([tensor.flatten() for name, tensor in found.state_dict.items() if name.startswith("body.")])
