"""The accuracy to expect without labels: confidences, calibrated on samples that have labels.

Confidence-based performance estimation (CBPE): where a confidence of c has meant a share g(c) of right answers, the mean of
g over new samples is the accuracy to expect of them. It holds under covariate shift; a change of what the labels mean it
cannot see.
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


def expected_accuracy(known: Outputs, truth: npt.NDArray[np.int64], outputs: Outputs) -> float | None:
    """The accuracy to expect on samples without labels; None without samples, or without any to calibrate on.

    Args:
        known: logits of the samples to calibrate on, ``float32[m, k]``, and
        truth: their classes, ``int64[m]``; below 0: no label, not used.
        outputs: logits of the samples in question, ``float32[n, k]``.
    """
    labelled = truth >= 0
    known, truth = known[labelled], truth[labelled]
    if len(known) == 0 or len(outputs) == 0:
        return None
    right = (known.argmax(axis=1) == truth).astype(np.float64)
    knots, shares = isotonic(confidences(known), right)
    return float(np.interp(confidences(outputs), knots, shares).mean())


def isotonic(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """The non-decreasing function nearest to ``y`` in squares, at the distinct values of ``x``, ascending.

    Pool adjacent violators (Ayer et al., 1955). Both results are ``float64[k]``.

    >>> isotonic(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]))
    (array([1., 2., 3.]), array([0. , 0.5, 0.5]))
    """
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
