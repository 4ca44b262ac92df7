"""Regret: distance of a pipeline's score from that of the best training schedule in hindsight."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite.scores import Float64, currently_active


@dataclass(frozen=True, slots=True)
class Schedule:
    """A subset of the trainings.

    Attributes:
        models: indices of the trainings, ascending.
        mean: mean score of the currently active one over the scored intervals.
        n_intervals: number of scored intervals.
    """

    models: tuple[int, ...]
    mean: float
    n_intervals: int


class Regret(NamedTuple):
    """Distance of the pipeline's mean score from the best schedule's, at least 0, and that schedule."""

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

    Each interval uses the newest kept model that ended before the anchor. An interval is scored if it has an active model and
    all models that ended before its anchor have a value; a schedule must serve all of these. None if there is no such interval.
    A model counts as it was trained, even if trainings before it are left out.

    Args:
        values: ``float64[models, intervals]``, NaN where undefined.
        train_ends: last training time of each model; must not decrease, else ``ValueError``.
        anchors: of the intervals.
        triggers: maximum number of trainings; default: any number.
        cost: of each kept training, in units of the mean score.
        lower_is_better: the values are losses.

    >>> best_schedule(np.array([[0.9, 0.8], [0.1, 0.2]]), [0, 10], [5, 15])
    Schedule(models=(0,), mean=0.8500000000000001, n_intervals=2)
    """
    ends, moments = np.asarray(train_ends), np.asarray(anchors)
    if len(ends) and (ends[1:] < ends[:-1]).any():
        raise ValueError("train_ends: must not decrease, in the order of training")
    if triggers is not None and triggers < 1:
        raise ValueError(f"triggers: {triggers} serve no interval")
    scored = _scored(values, currently_active(ends, moments))
    if not scored.any():
        return None
    order = np.flatnonzero(scored)[np.argsort(moments[scored], kind="stable")]
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
    """Distance of a pipeline with all its trainings from the best schedule in hindsight. Arguments as in ``best_schedule``.

    With fewer ``triggers`` than the pipeline has, the value may be negative: the pipeline trained more often than the schedule.

    >>> round(regret(np.array([[0.9, 0.8], [0.1, 0.2]]), [0, 10], [5, 15]).value, 2)
    0.3
    """
    best = best_schedule(values, train_ends, anchors, triggers=triggers, lower_is_better=lower_is_better)
    if best is None:
        return None
    active = currently_active(train_ends, anchors)
    scored = np.flatnonzero(_scored(values, active))
    own = float(values[active[scored], scored].mean())
    distance = own - best.mean if lower_is_better else best.mean - own
    if triggers is None or triggers >= len(values):
        # The pipeline's own schedule is among those compared, so less than 0 is rounding.
        distance = max(0.0, distance)
    return Regret(distance, best)


def _scored(values: Float64, active: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Flags of the intervals with an active model and no undefined cell up to it."""
    candidate = np.arange(len(values))[:, None] <= active[None, :]
    return np.asarray((active >= 0) & (np.isfinite(values) | ~candidate).all(axis=0))


def _best_chain(gains: Float64, first: npt.NDArray[np.int64], most: int, cost: float) -> tuple[int, ...]:
    """Kept models, by backward induction over the gain from each model on with a given number of models.

    ``first[m]`` is the first interval that model m may serve; it serves all before the first one of the next kept model.
    """
    n_models, n_intervals = gains.shape
    # Cells of models that had not ended are never used and may hold anything.
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
