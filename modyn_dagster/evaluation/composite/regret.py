"""The best that could have been done with the models there are, known only afterwards, and how far a pipeline stayed below."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite.scores import Float64, currently_active


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which trainings to keep.

    Attributes:
        models: the indices of the trainings, ascending.
        mean: the mean score of the currently active of them over the judged intervals.
        n_intervals: how many those are.
    """

    models: tuple[int, ...]
    mean: float
    n_intervals: int


class Regret(NamedTuple):
    """How far the pipeline's mean score lies below the best schedule's (never below 0), and that schedule."""

    value: float
    best: Schedule


def best_schedule(
    values: Float64,
    train_ends: npt.ArrayLike,
    anchors: npt.ArrayLike,
    *,
    triggers: int | None = None,
    cost: float = 0.0,
    lower_is_better: bool = False,
) -> Schedule | None:
    """The subset of the trainings whose currently active model scores best, found by dynamic programming over the matrix.

    In each interval the newest kept model that ended before the anchor is in use. Judged are the intervals that have an active
    model and whose cells are defined for all models that ended before the anchor; a schedule must serve all of them. None
    where there is no such interval. A model counts as it was trained, whatever trainings before it are left out.

    Args:
        values: ``float64[models, intervals]``, NaN where undefined.
        train_ends: last training times, not decreasing, else ``ValueError``; ``anchors``: of the intervals.
        triggers: keep at most so many; default: any number.
        cost: of each kept training, in units of the mean score.
        lower_is_better: the values are losses.
    """
    ends, moments = np.asarray(train_ends), np.asarray(anchors)
    if len(ends) and (ends[1:] < ends[:-1]).any():
        raise ValueError("train_ends: must not decrease, in the order of training")
    if triggers is not None and triggers < 1:
        raise ValueError(f"triggers: {triggers} serve no interval")
    judged = _judged(values, currently_active(ends, moments))
    if not judged.any():
        return None
    order = np.flatnonzero(judged)[np.argsort(moments[judged], kind="stable")]
    gains = (-values if lower_is_better else values)[:, order] / len(order)
    first = np.searchsorted(moments[order], ends, side="right")
    models = _best_chain(gains, first, len(ends) if triggers is None else min(triggers, len(ends)), cost)
    active = np.asarray(models)[currently_active(ends[list(models)], moments[order])]
    return Schedule(models, float(values[active, order].mean()), len(order))


def regret(
    values: Float64,
    train_ends: npt.ArrayLike,
    anchors: npt.ArrayLike,
    *,
    triggers: int | None = None,
    lower_is_better: bool = False,
) -> Regret | None:
    """A pipeline's own schedule, all its trainings, against the best in hindsight, with the arguments of ``best_schedule``.

    With fewer ``triggers`` than the pipeline has the value may be negative: it had more trainings than the schedule may.
    """
    best = best_schedule(values, train_ends, anchors, triggers=triggers, lower_is_better=lower_is_better)
    if best is None:
        return None
    active = currently_active(train_ends, anchors)
    judged = np.flatnonzero(_judged(values, active))
    own = float(values[active[judged], judged].mean())
    return Regret(own - best.mean if lower_is_better else best.mean - own, best)


def _judged(values: Float64, active: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Intervals with an active model and no undefined cell up to it."""
    candidate = np.arange(len(values))[:, None] <= active[None, :]
    return np.asarray((active >= 0) & (np.isfinite(values) | ~candidate).all(axis=0))


def _best_chain(gains: Float64, first: npt.NDArray[np.int64], most: int, cost: float) -> tuple[int, ...]:
    """The kept models, by going backwards: what is still to be gained from a model on, with so many more of them.

    ``first[m]`` is the first interval that model m may serve; it serves all up to the first one of the next kept model.
    """
    n_models, n_intervals = gains.shape
    # Cells of models that had not ended are never used, and may hold anything.
    usable = np.where(np.arange(n_intervals)[None, :] >= first[:, None], gains, 0.0)
    sums = np.concatenate([np.zeros((n_models, 1)), np.cumsum(usable, axis=1)], axis=1)
    alone = sums[:, -1] - cost
    served = sums[:, first] - cost
    ahead = np.triu(np.ones((n_models, n_models), dtype=bool), 1)
    best, following = alone, np.full((most, n_models), -1)
    for step in range(1, most):
        chained = np.where(ahead, served + best[None, :], -np.inf)
        choice = chained.argmax(axis=1)
        value = chained[np.arange(n_models), choice]
        following[step] = np.where(value > alone, choice, -1)
        best = np.maximum(value, alone)
    start = int(np.where(first == 0, best, -np.inf).argmax())
    chain, step = [start], most - 1
    while (following_model := int(following[step, chain[-1]])) >= 0:
        chain.append(following_model)
        step -= 1
    return tuple(chain)
