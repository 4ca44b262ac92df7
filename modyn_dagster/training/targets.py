"""What the loss compares outputs with, checked against what the model can express."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind

Truth = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def truth_of(samples: Samples, kind: TaskKind, *, source: str) -> Truth:
    """Labels or targets of samples; ``TrainingError`` names the first key that has none."""
    truth = samples.labels if kind == "class" else samples.targets
    if truth is None:
        raise ConfigError(source, "training", kind, "the dataset has no such label to learn")
    missing = truth < 0 if kind == "class" else ~np.isfinite(truth)
    if missing.any():
        first = int(np.argmax(missing))
        raise TrainingError(f"{source}: the sample with key {samples.keys[first]} has no label ({truth[first]})")
    return truth


def target_tensor(truth: Truth, keys: KeyArray, kind: TaskKind, n_outputs: int, *, source: str) -> Tensor:
    """``int64[n]`` classes below ``n_outputs``, or ``float32[n]`` targets."""
    if kind == "target":
        return torch.from_numpy(truth.astype(np.float32))
    outside = truth >= n_outputs
    if outside.any():
        first = int(np.argmax(outside))
        raise TrainingError(
            f"{source}: the sample with key {keys[first]} has class {truth[first]}, "
            f"the dataset allows classes 0 to {n_outputs - 1}"
        )
    return torch.from_numpy(truth.astype(np.int64))
