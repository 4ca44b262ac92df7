"""What models still know of the past, and what they have lost of it since."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.scores import Float64, Mask


def past_intervals(train_ends: npt.ArrayLike, interval_ends: npt.ArrayLike) -> Mask:
    """Which intervals were over when a model ended its training, ``bool[models, intervals]``; ends of intervals are exclusive."""
    return np.asarray(np.asarray(interval_ends)[None, :] <= np.asarray(train_ends)[:, None])


def retention(values: Float64, past: Mask) -> Float64:
    """Mean score of every model on its past, ``float64[models]``; NaN where it has none, or none that is defined.

    ``values`` is ``float64[models, intervals]`` with NaN for undefined cells, ``past`` as of ``past_intervals``.
    """
    return _row_means(np.where(past, values, np.nan))


def forgetting(values: Float64, past: Mask, *, lower_is_better: bool = False) -> Float64:
    """How much worse every model is on its past than the best model before it, ``float64[models]``.

    The mean over past intervals of (best score of any earlier model) - (own score), turned round where lower is better; below
    0 where models got better at the past (Chaudhry et al., 2018). NaN where there is nothing to compare with.

    >>> forgetting(np.array([[0.9, 0.2], [0.6, 0.8]]), np.array([[False, False], [True, False]])).round(2)
    array([nan, 0.3])
    """
    signed = -values if lower_is_better else values
    best = np.fmax.accumulate(signed, axis=0)
    earlier = np.vstack([np.full((1, values.shape[1]), np.nan), best[:-1]])[: len(values)]
    return _row_means(np.where(past, earlier - signed, np.nan))


def _row_means(values: Float64) -> Float64:
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
