"""Expected accuracy without labels, from confidences calibrated on labelled samples.

Confidence-based performance estimation (CBPE): if a share g(c) of the labelled samples with confidence c was predicted correctly,
the expected accuracy on new samples is the mean of g over their confidences. The estimate holds under covariate shift; it cannot
detect concept drift.
"""

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.losses import Float64, binary_softmax

Outputs = npt.NDArray[np.float32]


def confidences(outputs: Outputs) -> Float64:
    """Softmax probability of the predicted class, ``float64[n]``, of logits ``float32[n, k]``."""
    if outputs.shape[1] == 2:
        return binary_softmax(outputs).confidences()
    logits = outputs.astype(np.float64)
    return np.asarray(1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1))


def expected_accuracy(labelled: Outputs, truth: npt.NDArray[np.int64], outputs: Outputs) -> float | None:
    """Expected accuracy on unlabelled samples; None without samples, or without labelled ones to calibrate on.

    Args:
        labelled: logits of the samples to calibrate on, ``float32[m, k]``.
        truth: classes of these, ``int64[m]``; samples below 0 have no label and are ignored.
        outputs: logits of the unlabelled samples, ``float32[n, k]``.

    Source: NannyML, Confidence-based Performance Estimation, 2022.

    >>> expected_accuracy(np.zeros((4, 2), np.float32), np.array([0, 0, 0, 1]), np.zeros((2, 2), np.float32))
    0.75
    """
    usable = truth >= 0
    labelled, truth = labelled[usable], truth[usable]
    if len(labelled) == 0 or len(outputs) == 0:
        return None
    correct = (labelled.argmax(axis=1) == truth).astype(np.float64)
    knots, shares = isotonic(confidences(labelled), correct)
    return float(np.interp(confidences(outputs), knots, shares).mean())


def isotonic(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """Isotonic regression: the non-decreasing function nearest to ``y`` in squares, at the distinct values of ``x``, ascending.

    Args:
        x: ``float64[n]``.
        y: ``float64[n]``.

    Returns:
        The distinct values of ``x`` and the function there, ``float64[k]`` both.

    Source: M. Ayer et al., An Empirical Distribution Function for Sampling with Incomplete Information, 1955 (pool adjacent
    violators).

    >>> isotonic(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]))
    (array([1., 2., 3.]), array([0. , 0.5, 0.5]))
    """
    # Not scipy.optimize.isotonic_regression: its last bit differs in 44 of 500 cases, and the expected accuracy is recorded.
    knots, place, count = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(place, weights=y) / count
    pools: list[tuple[float, int, int]] = []
    for mean, weight in zip(means.tolist(), count.tolist(), strict=True):
        pool = (mean, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            earlier = pools.pop()
            total = earlier[1] + pool[1]
            pool = ((earlier[0] * earlier[1] + pool[0] * pool[1]) / total, total, earlier[2] + pool[2])
        pools.append(pool)
    return knots, np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
