"""Jensen-Shannon distance of histograms."""

import numpy as np

from modyn_dagster.triggering.drift.univariate.histograms import Float64


def jensen_shannon(p: Float64, q: Float64) -> Float64:
    """The root of the divergence in nats, as ``scipy.spatial.distance.jensenshannon``: ``float64[...]`` up to √ln 2; symmetric.

    >>> round(float(jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0]))) ** 2, 6)
    0.693147
    """
    from scipy.special import rel_entr

    middle = (p + q) / 2
    divergence = (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2
    return np.asarray(np.sqrt(np.maximum(divergence, 0.0)))
