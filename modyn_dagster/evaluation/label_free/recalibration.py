"""Recalibrated probabilities of a model's classes, with the uncertainty of having fitted them to finitely many samples."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.losses import Float64, reduce_columns

Outputs = npt.NDArray[np.float32]

#: Log probabilities below are taken for this one: a slope must not hang on a few samples that the model is very sure of.
_LEAST_LOG: Final = -16.0
#: Precision of the prior, which is centred on the model as it is: it decides where no sample tells, as for a class without any.
_PRECISION: Final = 0.1
_MOST_STEPS: Final = 50
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A map of a model's probabilities ``s`` to ``softmax(slope * log s + offset)``, one slope and offset per class.

    For two classes it is beta calibration, for more Dirichlet calibration with a diagonal matrix; slopes 1 and offsets 0 leave
    the model as it is. The parameters have a Gaussian posterior (Laplace's approximation) under a weak prior around those.

    Attributes:
        parameters: most probable slopes, then offsets, ``float64[2 k]``.
        factor: lower triangular root of the posterior's covariance, ``float64[2 k, 2 k]``.
        n: samples that it was fitted to.

    Source: M. Kull, T. Silva Filho, P. Flach, Beta Calibration, 2017; M. Kull et al., Beyond Temperature Scaling, 2019.
    """

    parameters: Float64
    factor: Float64
    n: int

    @classmethod
    def fit(cls, outputs: Outputs, truth: npt.NDArray[np.int64]) -> Self:
        """Fit to labelled samples; those of a class unknown to the model are left out, as it has no probability for them.

        Args:
            outputs: finite logits, ``float32[m, k]``.
            truth: classes, ``int64[m]``; -1 is no label.
        """
        usable = (truth >= 0) & (truth < outputs.shape[1])
        logs, truth = log_shares(outputs[usable]), truth[usable]
        n_classes = outputs.shape[1]
        centre = np.repeat([1.0, 0.0], n_classes)
        parameters, loss = centre, _loss(logs, truth, centre, centre)
        for _ in range(_MOST_STEPS):
            gradient, curvature = _derivatives(logs, truth, parameters, centre)
            parameters, gained = _descend(logs, truth, parameters, centre, np.linalg.solve(curvature, gradient), loss)
            loss -= gained
            if gained < _TOLERANCE:
                break
        _, curvature = _derivatives(logs, truth, parameters, centre)
        return cls(parameters, np.linalg.cholesky(np.linalg.inv(curvature)), len(truth))

    def draw(self, rng: np.random.Generator) -> Float64:
        """Parameters that the samples leave possible, drawn from the posterior, ``float64[2 k]``."""
        return np.asarray(self.parameters + self.factor @ rng.standard_normal(len(self.parameters)))


def recalibrated(logs: Float64, parameters: Float64) -> Float64:
    """Probabilities of all classes, ``float64[n, k]``, each row adding up to 1.

    Args:
        logs: of ``log_shares``, ``float64[n, k]``.
        parameters: slopes, then offsets, ``float64[2 k]``.

    >>> recalibrated(np.log([[0.25, 0.75]]), np.array([1.0, 1.0, 0.0, 0.0]))
    array([[0.25, 0.75]])
    """
    slopes, offsets = np.split(parameters, 2)
    logits = logs * slopes + offsets
    powers = np.exp(logits - reduce_columns(np.maximum, logits)[:, None])
    return np.asarray(powers / reduce_columns(np.add, powers)[:, None])


def log_shares(outputs: Outputs) -> Float64:
    """Logarithms of the softmax of logits, bounded from below for the fit, ``float64[n, k]``.

    >>> log_shares(np.zeros((1, 2), np.float32)).round(3)
    array([[-0.693, -0.693]])
    """
    logits = outputs.astype(np.float64)
    logits -= reduce_columns(np.maximum, logits)[:, None]
    return np.asarray(np.maximum(logits - np.log(reduce_columns(np.add, np.exp(logits)))[:, None], _LEAST_LOG))


def _loss(logs: Float64, truth: npt.NDArray[np.int64], parameters: Float64, centre: Float64) -> float:
    """Negative logarithm of the posterior, but for a constant."""
    slopes, offsets = np.split(parameters, 2)
    logits = logs * slopes + offsets
    logits -= reduce_columns(np.maximum, logits)[:, None]
    own = logits[np.arange(len(truth)), truth]
    missed = np.log(reduce_columns(np.add, np.exp(logits))) - own
    return float(missed.sum() + _PRECISION / 2 * np.square(parameters - centre).sum())


def _derivatives(logs: Float64, truth: npt.NDArray[np.int64], parameters: Float64, centre: Float64) -> tuple[Float64, Float64]:
    shares, n_classes = recalibrated(logs, parameters), logs.shape[1]
    excess = shares.copy()
    excess[np.arange(len(truth)), truth] -= 1
    gradient = np.concatenate([(excess * logs).sum(axis=0), excess.sum(axis=0)]) + _PRECISION * (parameters - centre)
    weighted = np.concatenate([shares * logs, shares], axis=1)
    curvature = -weighted.T @ weighted
    slope, offset = np.arange(n_classes), np.arange(n_classes, 2 * n_classes)
    curvature[slope, slope] += (shares * np.square(logs)).sum(axis=0)
    curvature[offset, offset] += shares.sum(axis=0)
    mixed = (shares * logs).sum(axis=0)
    curvature[slope, offset] += mixed
    curvature[offset, slope] += mixed
    curvature[np.diag_indices(2 * n_classes)] += _PRECISION
    return gradient, curvature


def _descend(
    logs: Float64, truth: npt.NDArray[np.int64], parameters: Float64, centre: Float64, step: Float64, loss: float
) -> tuple[Float64, float]:
    """Take a step of Newton's, halved until the loss falls, and the loss it gained; none where no part of it helps."""
    for _ in range(_MOST_STEPS):
        taken = parameters - step
        if (gained := loss - _loss(logs, truth, taken, centre)) >= 0:
            return taken, gained
        step = step / 2
    return parameters, 0.0
