"""Metrics of regressions on a slice of judged samples: a number, or the reason why there is none."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples


def mae(judged: EvaluationSamples, part: slice) -> float | str:
    """Mean absolute error."""
    return float(np.abs(judged.outputs[part, 0] - judged.truth[part]).mean())


def mse(judged: EvaluationSamples, part: slice) -> float | str:
    """Mean squared error."""
    return float(np.square(judged.outputs[part, 0] - judged.truth[part]).mean())


def r2(judged: EvaluationSamples, part: slice) -> float | str:
    """Coefficient of determination."""
    truth = judged.truth[part]
    spread = np.square(truth - truth.mean()).sum()
    if truth.min() == truth.max() or spread == 0:
        return f"all targets are {truth[0]:g}"
    return float(1 - np.square(judged.outputs[part, 0] - truth).sum() / spread)
