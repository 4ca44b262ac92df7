"""Composite models of a pipeline, and summaries of its matrix of scores.

The *currently active* model is the one a deployment would have used: the newest model whose last training sample is strictly
older than the interval's anchor. The *currently trained* model is the next one: trained on, or nearest to, the interval itself.
Where the pipeline promotes models, the *served* one is the champion of the time.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.registry import Score

Choice = npt.NDArray[np.int64]


def currently_active(train_ends: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the active model per interval, ``int64[n]``; -1 where there is none yet.

    Args:
        train_ends: last training times of the models, in order of training; ``datetime64`` or numbers.
        anchors: of the intervals, of the same type.

    >>> currently_active([10, 20, 30], [10, 11, 30, 31])
    array([-1,  0,  1,  2])
    """
    ends, at = np.asarray(train_ends), np.asarray(anchors)
    if len(ends) == 0:
        return np.full(len(at), -1, dtype=np.int64)
    # A late sample may give an earlier model a later end: the newest of all that ended before the anchor counts.
    by_end = np.argsort(ends, kind="stable")
    newest = np.concatenate([[-1], np.maximum.accumulate(by_end)])
    return newest[np.searchsorted(ends[by_end], at, side="left")].astype(np.int64)


def currently_trained(train_ends: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the trained model per interval, ``int64[n]``: the one after the active one.

    The last model has no successor and stands for itself. Before any model is active it is the first; -1 without models.

    >>> currently_trained([10, 20, 30], [10, 11, 30, 31])
    array([0, 1, 2, 2])
    """
    n_models = len(np.asarray(train_ends))
    return np.minimum(currently_active(train_ends, anchors) + 1, n_models - 1)


def currently_served(moments: npt.ArrayLike, champions: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the model that served per interval, ``int64[n]``: the last champion of before the anchor, -1 where there was none.

    Args:
        moments: stream times at which models became the champion, in order; ``datetime64`` or numbers.
        champions: index of the model that became it, ``int64[m]``; -1 where the champion was withdrawn and none took its place.
        anchors: of the intervals, of the type of ``moments``.

    >>> currently_served([10, 20, 30], [0, 2, 0], [10, 11, 21, 31])
    array([-1,  0,  2,  0])
    """
    times, chosen = np.asarray(moments), np.asarray(champions, np.int64)
    if len(times) == 0:
        return np.full(len(np.asarray(anchors)), -1, dtype=np.int64)
    return np.concatenate([[-1], chosen])[np.searchsorted(times, np.asarray(anchors), side="left")].astype(np.int64)


Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def composite_scores(values: Float64, chosen: Choice) -> Float64:
    """Value of the chosen model in every interval, ``float64[intervals]``; NaN where undefined or no model is chosen.

    Args:
        values: ``float64[models, intervals]``, NaN for undefined and missing cells.
        chosen: index of a model, or -1, per interval (``currently_active``, ``currently_trained``).

    >>> composite_scores(np.array([[0.5, 0.6], [0.7, 0.8]]), np.array([-1, 1]))
    array([nan, 0.8])
    """
    scores = np.full(len(chosen), np.nan)
    has_model = np.flatnonzero(chosen >= 0)
    scores[has_model] = values[chosen[has_model], has_model]
    return scores


def pipeline_score(scores: Float64, active: Choice, *, among: Mask | None = None) -> Score:
    """Unweighted mean of a composite model's scores over the intervals that have an active model and a defined score.

    Args:
        scores: of the composite model, ``float64[intervals]``.
        active: the pipeline's currently active choice, also for scores of another composite: all composites of a pipeline are
            scored on the same intervals.
        among: intervals to narrow them to, for example those that several pipelines share.

    >>> pipeline_score(np.array([0.1, 0.5, 0.7]), np.array([-1, 0, 1])).value
    0.6
    """
    has_model = active >= 0
    if among is not None:
        has_model = has_model & among
    if not has_model.any():
        return Score(None, 0, "no interval has an active model")
    defined = scores[has_model & np.isfinite(scores)]
    if len(defined) == 0:
        return Score(None, 0, f"the score is undefined in all of {has_model.sum()} intervals with an active model")
    return Score(float(defined.mean()), len(defined))


def comparable_intervals(active: Sequence[Choice]) -> Mask:
    """Flags of the intervals in which every pipeline has an active model, ``bool[intervals]``; one choice per pipeline.

    >>> comparable_intervals([np.array([-1, 0, 1]), np.array([0, 0, -1])])
    array([False,  True, False])
    """
    return np.asarray(np.logical_and.reduce([choice >= 0 for choice in active]))


def expected_shortfall(scores: npt.ArrayLike, z: float, *, lower_is_better: bool = False) -> float | None:
    """Mean of the worst ``z`` percent of the scores, the last of them counting in part; None without a defined one.

    At 100 it is the mean, for z near 0 the worst score.

    Args:
        scores: ``float64[n]``, NaN where undefined.
        z: above 0 and at most 100, else ``ValueError``.
        lower_is_better: the scores are losses.

    Source: R. T. Rockafellar, S. Uryasev, Optimization of Conditional Value-at-Risk, 2000.

    >>> expected_shortfall([0.9, 0.5, 0.7, 0.6], 50)
    0.55
    """
    if not 0 < z <= 100:
        raise ValueError(f"z: {z} must be above 0 and at most 100 percent")
    values = np.asarray(scores, dtype=np.float64)
    worst_first = np.sort(values[np.isfinite(values)])
    if len(worst_first) == 0:
        return None
    worst_first = worst_first[::-1] if lower_is_better else worst_first
    share = len(worst_first) * z / 100
    weights = np.clip(share - np.arange(len(worst_first)), 0, 1)
    return float((worst_first * weights).sum() / share)


def past_intervals(train_ends: npt.ArrayLike, interval_ends: npt.ArrayLike) -> Mask:
    """Flags of the intervals over by the end of a model's training, ``bool[models, intervals]``; interval ends are exclusive.

    >>> past_intervals([10, 20], [10, 15])
    array([[ True, False],
           [ True,  True]])
    """
    return np.asarray(np.asarray(interval_ends)[None, :] <= np.asarray(train_ends)[:, None])


def retention(values: Float64, past: Mask) -> Float64:
    """Mean score of every model on its past intervals, ``float64[models]``; NaN without a defined one.

    Args:
        values: ``float64[models, intervals]``, NaN for undefined cells.
        past: flags of ``past_intervals``.

    >>> retention(np.array([[0.9, 0.2], [0.6, 0.8]]), np.array([[False, False], [True, True]]))
    array([nan, 0.7])
    """
    return _row_means(np.where(past, values, np.nan))


def forgetting(values: Float64, past: Mask, *, lower_is_better: bool = False) -> Float64:
    """Loss of every model on its past intervals against the best model before it, ``float64[models]``.

    Mean over past intervals of (best score of any earlier model) - (own score), with the sign reversed where lower is better.
    Negative where models improved on the past, NaN where there is nothing to compare with. Arguments as in ``retention``.

    Source: A. Chaudhry et al., Riemannian Walk for Incremental Learning, 2018.

    >>> forgetting(np.array([[0.9, 0.2], [0.6, 0.8]]), np.array([[False, False], [True, False]])).round(2)
    array([nan, 0.3])
    """
    signed = -values if lower_is_better else values
    best = np.fmax.accumulate(signed, axis=0)
    earlier = np.vstack([np.full((1, values.shape[1]), np.nan), best[:-1]])[: len(values)]
    return _row_means(np.where(past, earlier - signed, np.nan))


def _row_means(values: Float64) -> Float64:
    # Not np.nanmean: it adds up in another order, and the last bit of scores would change.
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    total = np.where(defined, values, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
