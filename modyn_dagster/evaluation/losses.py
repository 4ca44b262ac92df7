"""Losses of single samples from raw outputs, in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.training import TaskKind

Float64 = npt.NDArray[np.float64]


def cross_entropy(outputs: npt.NDArray[np.float32], labels: npt.NDArray[Any]) -> Float64:
    """``-log softmax(outputs)[label]``, ``float64[n]``; labels are int64 below the number of outputs."""
    logits = outputs.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)


def sample_losses(outputs: npt.NDArray[np.float32], truth: npt.NDArray[Any], kind: TaskKind) -> npt.NDArray[np.float32]:
    """Cross-entropy or squared error, ``float32[n]``; NaN where a sample has no label or one the model does not know."""
    usable = np.isfinite(outputs).all(axis=1)
    usable &= (truth >= 0) & (truth < outputs.shape[1]) if kind == "class" else np.isfinite(truth)
    # All rows are computed, so that the bits of one do not depend on which others have a label.
    outputs, truth = np.where(usable[:, None], outputs, 0), np.where(usable, truth, 0)
    losses = cross_entropy(outputs, truth) if kind == "class" else np.square(outputs[:, 0] - truth)
    # What is beyond float32 becomes infinite, which says so.
    with np.errstate(over="ignore"):
        return np.where(usable, losses, np.nan).astype(np.float32)
