"""Recalibrated probabilities of a model's classes, with the uncertainty of having fitted them to finitely many samples."""

from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.losses import Float64, reduce_columns

Outputs = npt.NDArray[np.float32]

#: Log probabilities below are taken for this one: a slope must not hang on a few samples that the model is very sure of.
_LEAST_LOG: Final = -16.0
#: Precision of the prior, which is centred on the model as it is: it decides where no sample tells, as for a class without any.
_PRECISION: Final = 0.1
#: The same of changes of slope. A weaker one lets draws bend far where there are few samples.
_PRECISION_OF_CHANGES: Final = 1.0
#: Log probabilities of a class below which its slope may change, as it does where labels are noisy and no probability is near 0.
_KNOTS: Final = (-1.0, -2.0, -4.0)
#: Classes from which on slopes are the same everywhere: the time and the samples that a fit needs grow with its parameters.
_MOST_CLASSES_WITH_KNOTS: Final = 32
_MOST_STEPS: Final = 50
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A map of a model's probabilities ``s`` to ``softmax(f(log s))``, with a continuous piecewise linear ``f`` per class.

    With one slope and offset per class it is beta calibration for two classes, and for more Dirichlet calibration with a
    diagonal matrix; up to 32 classes, three changes of slope each make it a spline. Slopes 1, changes 0 and offsets 0 leave the
    model as it is. The parameters have a Gaussian posterior (Laplace's approximation) under a weak prior around those.

    Attributes:
        parameters: most probable slopes, changes of slope, one knot after the other, and offsets, ``float64[p]``, where p is
            5 k, or 2 k for many classes.
        factor: lower triangular root of the posterior's covariance, ``float64[p, p]``.
        n: samples that it was fitted to.

    Source: M. Kull, T. Silva Filho, P. Flach, Beta Calibration, 2017; M. Kull et al., Beyond Temperature Scaling, 2019;
    B. Lucena, Spline-Based Probability Calibration, 2018.
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
        prior, truth = _prior(outputs.shape[1]), truth[usable]
        basis, parameters = _basis(log_shares(outputs[usable]), prior.centre), prior.centre
        loss = _loss(basis, truth, parameters, prior)
        for _ in range(_MOST_STEPS):
            gradient, curvature = _derivatives(basis, truth, parameters, prior)
            parameters, gained = _descend(basis, truth, parameters, prior, np.linalg.solve(curvature, gradient), loss)
            loss -= gained
            if gained < _TOLERANCE:
                break
        _, curvature = _derivatives(basis, truth, parameters, prior)
        return cls(parameters, np.linalg.cholesky(np.linalg.inv(curvature)), len(truth))

    def draw(self, rng: np.random.Generator) -> Float64:
        """Parameters that the samples leave possible, drawn from the posterior, ``float64[p]``."""
        return np.asarray(self.parameters + self.factor @ rng.standard_normal(len(self.parameters)))


def unchanged(n_classes: int) -> Float64:
    """Parameters that leave a model of so many classes as it is.

    >>> unchanged(2)
    array([1., 1., 0., 0., 0., 0., 0., 0., 0., 0.])
    """
    n_changes = len(_KNOTS) if n_classes <= _MOST_CLASSES_WITH_KNOTS else 0
    return np.repeat([1.0] + [0.0] * (n_changes + 1), n_classes)


def recalibrated(logs: Float64, parameters: Float64) -> Float64:
    """Probabilities of all classes, ``float64[n, k]``, each row adding up to 1.

    Args:
        logs: of ``log_shares``, ``float64[n, k]``.
        parameters: slopes, changes of slope, if any, and offsets, ``float64[p]``.

    >>> recalibrated(np.log([[0.25, 0.75]]), np.array([1.0, 1.0, 0.0, 0.0]))
    array([[0.25, 0.75]])
    """
    return _softmax(_logits(_basis(logs, parameters), parameters))


def log_shares(outputs: Outputs) -> Float64:
    """Logarithms of the softmax of logits, bounded from below for the fit, ``float64[n, k]``.

    >>> log_shares(np.zeros((1, 2), np.float32)).round(3)
    array([[-0.693, -0.693]])
    """
    logits = outputs.astype(np.float64)
    logits -= reduce_columns(np.maximum, logits)[:, None]
    return np.asarray(np.maximum(logits - np.log(reduce_columns(np.add, np.exp(logits)))[:, None], _LEAST_LOG))


class _Prior(NamedTuple):
    """Independent normal distributions around a model as it is."""

    centre: Float64
    precision: Float64


def _prior(n_classes: int) -> _Prior:
    centre = unchanged(n_classes)
    precision = np.full(len(centre), _PRECISION)
    precision[n_classes:-n_classes] = _PRECISION_OF_CHANGES
    return _Prior(centre, precision)


def _basis(logs: Float64, parameters: Float64) -> list[Float64]:
    """Functions of each class's log probability that slopes and their changes multiply, ``float64[n, k]`` each."""
    n_changes = len(parameters) // logs.shape[1] - 2
    return [logs, *(np.minimum(logs - knot, 0.0) for knot in _KNOTS[:n_changes])]


def _logits(basis: list[Float64], parameters: Float64) -> Float64:
    *factors, offsets = parameters.reshape(len(basis) + 1, -1)
    logits: Float64 = basis[0] * factors[0] + offsets
    for function, factor in zip(basis[1:], factors[1:], strict=True):
        logits += function * factor
    return logits


def _loss(basis: list[Float64], truth: npt.NDArray[np.int64], parameters: Float64, prior: _Prior) -> float:
    """Negative logarithm of the posterior, but for a constant."""
    logits = _logits(basis, parameters)
    logits -= reduce_columns(np.maximum, logits)[:, None]
    own = logits[np.arange(len(truth)), truth]
    missed = np.log(reduce_columns(np.add, np.exp(logits))) - own
    return float(missed.sum() + (prior.precision * np.square(parameters - prior.centre)).sum() / 2)


def _derivatives(
    basis: list[Float64], truth: npt.NDArray[np.int64], parameters: Float64, prior: _Prior
) -> tuple[Float64, Float64]:
    shares = _softmax(_logits(basis, parameters))
    functions, classes = [*basis, np.ones_like(shares)], np.arange(shares.shape[1])
    excess = shares.copy()
    excess[np.arange(len(truth)), truth] -= 1
    gradient = np.concatenate([(excess * function).sum(axis=0) for function in functions])
    gradient += prior.precision * (parameters - prior.centre)
    weighted = np.concatenate([shares * function for function in functions], axis=1)
    curvature = -weighted.T @ weighted
    for (i, one), (j, other) in product(enumerate(functions), repeat=2):
        curvature[i * len(classes) + classes, j * len(classes) + classes] += (shares * one * other).sum(axis=0)
    curvature[np.diag_indices(len(parameters))] += prior.precision
    return gradient, curvature


def _descend(
    basis: list[Float64], truth: npt.NDArray[np.int64], parameters: Float64, prior: _Prior, step: Float64, loss: float
) -> tuple[Float64, float]:
    """Take a step of Newton's, halved until the loss falls, and the loss it gained; none where no part of it helps."""
    for _ in range(_MOST_STEPS):
        taken = parameters - step
        if (gained := loss - _loss(basis, truth, taken, prior)) >= 0:
            return taken, gained
        step = step / 2
    return parameters, 0.0


def _softmax(logits: Float64) -> Float64:
    powers = np.exp(logits - reduce_columns(np.maximum, logits)[:, None])
    return np.asarray(powers / reduce_columns(np.add, powers)[:, None])
