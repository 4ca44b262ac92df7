"""Pools of samples of which everything is known, and sums that estimators must hit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling import select


def everything(n: int = 40, *, classes: int = 4, width: int = 6, seed: int = 0) -> dict[str, Tensor]:
    """Inputs of every policy."""
    made = torch.Generator().manual_seed(seed)
    return {
        "logits": 2 * torch.randn(n, classes, generator=made),
        "labels": torch.arange(n) % classes,
        "losses": torch.rand(n, generator=made) + 0.05,
        "gradients": torch.randn(n, width, generator=made),
        "embeddings": torch.randn(n, width, generator=made),
        "irreducible_losses": torch.rand(n, generator=made),
        "validation_gradient": torch.randn(width, generator=made),
        "history": torch.rand(5, n, generator=made) > 0.4,
    }


def assert_unbiased(name: str, inputs: dict[str, Any], values: Tensor, *, k: int, draws: int = 2000, **options: Any) -> None:
    """The mean of weighted sums of ``values [n]`` is within 4 standard errors of their sum."""
    sums = np.empty(draws)
    for seed in range(draws):
        indices, weights = select(name, k=k, seed=seed, **inputs, **options)
        sums[seed] = float((weights.double() * values[indices].double()).sum())
    assert_mean(sums, float(values.double().sum()))


def assert_mean(found: npt.NDArray[np.float64], expected: float) -> None:
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() - expected) <= 4 * error + 1e-4 * abs(expected), (found.mean(), expected, error)
