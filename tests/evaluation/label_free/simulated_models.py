"""Simulated calibrated models: the probability of a class, given the outputs, is the softmax of these times a temperature."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.label_free.estimator import DRAWS, Estimate, Estimator
from modyn_dagster.evaluation.label_free.recalibration import recalibrated, unchanged
from modyn_dagster.evaluation.metrics.registry import score

METRICS = ["accuracy", "f1", "f1_macro", "f1_micro", "log_loss", "roc_auc"]


@dataclass(frozen=True)
class SimulatedModel:
    """A model of some classes.

    Attributes:
        temperature: factor of the outputs that makes them calibrated; 1 for a model that is so by itself.
        shift: of the inputs after calibration: the outputs move towards later classes, and closer together.
    """

    n_classes: int
    temperature: float = 1.0
    shift: float = 0.0

    def samples(
        self, rng: np.random.Generator, n: int, *, shifted: bool
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Draw outputs and labels of n samples."""
        outputs = 2 * rng.standard_normal((n, self.n_classes))
        if shifted:
            outputs = (outputs + self.shift * np.linspace(0, 1, self.n_classes)) * (1 - 0.3 * self.shift)
        outputs = outputs.astype(np.float32)
        shares = recalibrated(outputs.astype(np.float64) * self.temperature, unchanged(self.n_classes))
        labels = (rng.random((n, 1)) >= np.cumsum(shares[:, :-1], axis=1)).sum(axis=1)
        return outputs, labels.astype(np.int64)


def holds(model: SimulatedModel, seed: int, *, calibrate: int, n: int, draws: int = DRAWS) -> dict[str, bool]:
    """Simulate one calibration and one estimate; tell of every metric whether the interval holds the score of the labels."""
    rng = np.random.default_rng([seed, model.n_classes, calibrate, n])
    estimator = Estimator(*model.samples(rng, calibrate, shifted=False))
    outputs, labels = model.samples(rng, n, shifted=True)
    estimates = estimator.estimate(METRICS, outputs, draws=draws)
    return {metric: _holds(estimate, score(metric, outputs, labels).value) for metric, estimate in estimates.items()}


def coverage(model: SimulatedModel, simulations: int, *, calibrate: int, n: int, draws: int = DRAWS) -> dict[str, float]:
    """Share of simulations in which the interval of each metric holds the score of the labels."""
    held = [holds(model, seed, calibrate=calibrate, n=n, draws=draws) for seed in range(simulations)]
    return {metric: sum(each[metric] for each in held) / simulations for metric in METRICS}


def numbers_of(estimate: Estimate) -> tuple[float, float, float]:
    """Lower end, value and upper end of an estimate that has them."""
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.value, estimate.high


def _holds(estimate: Estimate, truth: float | None) -> bool:
    low, _, high = numbers_of(estimate)
    assert truth is not None
    return low <= truth <= high
