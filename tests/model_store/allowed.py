"""A module that a store allows, with names that come from elsewhere."""

import random
from collections.abc import Mapping
from functools import lru_cache, partial
from subprocess import run
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.model_store import ModelStore
from tests.model_store.trainings import network as imported
from tests.model_store.trainings import train

__all__ = ["alias", "breaks", "cached", "channels_last", "imported", "nested", "on_top", "other_alias", "run"]


def channels_last(base: Mapping[str, Tensor] | None, *, data: Any, seed: int) -> Mapping[str, Tensor]:
    """Tensors that require gradients, in another memory format, one of them tied."""
    weight = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    return {"weight": weight, "tied": weight, "row": torch.arange(6.0).reshape(2, 3).T}


def on_top(base: Mapping[str, Tensor] | None, *, data: Any, seed: int) -> Mapping[str, Tensor]:
    """Says how its base is laid out, and changes it."""
    assert base is not None
    strides = torch.tensor([list(tensor.stride()) + [0] * (4 - tensor.dim()) for tensor in base.values()])
    tied = torch.tensor(base["weight"].data_ptr() == base["tied"].data_ptr())
    return {"strides": strides, "tied": tied, "leaf": torch.tensor(not base["weight"].requires_grad)}


def breaks(base: Mapping[str, Tensor] | None, *, data: Any, seed: int) -> Mapping[str, Tensor]:
    """Draws, and fails."""
    torch.randn(3)
    np.random.rand()
    random.seed(5)
    torch.set_num_threads(1)
    raise ValueError("no")


def nested(base: Mapping[str, Tensor] | None, *, data: Any, seed: int, root: str, model: str) -> Mapping[str, Tensor]:
    """Draws before and after a training within."""
    first = torch.randn(3)
    found = ModelStore(root, allow=[__name__]).load(model, retrain=True)
    return {**found, "first": first, "last": torch.randn(3)}


cached = lru_cache(imported)
alias = partial(partial(train, steps=2))
other_alias = partial(channels_last)
