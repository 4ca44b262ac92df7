"""What the loss compares outputs with, checked against what the model can express."""

from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind

Truth = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def truth_of(samples: Samples, kind: TaskKind, *, source: str) -> Truth:
    """Labels or targets of samples; ``TrainingError`` names the first key that has none."""
    return checked_truth(samples.labels if kind == "class" else samples.targets, samples.keys, kind, source=source)


def checked_truth(truth: Truth | None, keys: KeyArray, kind: TaskKind, *, source: str) -> Truth:
    """Labels or targets of some keys, none of them missing."""
    if truth is None:
        raise ConfigError(source, "training", kind, "the dataset has no such label to learn")
    missing = truth < 0 if kind == "class" else ~np.isfinite(truth)
    if missing.any():
        first = int(np.argmax(missing))
        raise TrainingError(f"{source}: the sample with key {keys[first]} has no label ({truth[first]})")
    return truth


def targets_of(truth: Truth, keys: KeyArray, kind: TaskKind, n_outputs: int, *, source: str) -> npt.NDArray[Any]:
    """``int64[n]`` classes below ``n_outputs``, or ``float32[n]`` targets."""
    if kind == "target":
        return truth.astype(np.float32)
    outside = truth >= n_outputs
    if outside.any():
        first = int(np.argmax(outside))
        raise TrainingError(
            f"{source}: the sample with key {keys[first]} has class {truth[first]}, "
            f"the dataset allows classes 0 to {n_outputs - 1}"
        )
    return truth.astype(np.int64)
