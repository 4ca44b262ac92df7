"""Cost against quality: the points that pipelines reach, and their Pareto front (paper, section 3.1)."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite.scores import Mask


def feasible_set(costs: npt.ArrayLike, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Points ``(cost, score)`` of the pipelines that have both, ``float64[n, 2]``, by cost and then by score.

    >>> feasible_set([2, 1], [0.9, 0.5])
    array([[1. , 0.5],
           [2. , 0.9]])
    """
    points = np.column_stack([np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)])
    points = points[np.isfinite(points).all(axis=1)]
    return np.asarray(points[np.lexsort((points[:, 1], points[:, 0]))])


def pareto_front(costs: npt.ArrayLike, scores: npt.ArrayLike, *, lower_is_better: bool = False) -> Mask:
    """Flags of the pipelines on the Pareto front, ``bool[pipelines]``.

    No other pipeline costs no more and scores no worse and is better in one of the two.
    Equal points are all on the front or all off it; a pipeline without cost or score (NaN) is never on it.

    Args:
        costs: one per pipeline, in any unit.
        scores: one per pipeline.
        lower_is_better: the scores are losses.

    Source: V. Pareto, Manuale di economia politica, 1906.

    >>> pareto_front([1, 2, 3, 3], [0.5, 0.9, 0.8, 0.95])
    array([ True,  True, False,  True])
    """
    cost, score = np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if cost.shape != score.shape:
        raise ValueError(f"costs and scores: one of each per pipeline, not {cost.shape} and {score.shape}")
    score = -score if lower_is_better else score
    present = np.isfinite(cost) & np.isfinite(score)
    front = np.zeros(len(cost), dtype=bool)
    best = -np.inf
    # By rising cost, for equal costs the best first: a point stays only if it is better than all before it.
    order = np.flatnonzero(present)[np.lexsort((-score[present], cost[present]))]
    for previous, i in zip([-1, *order], order, strict=False):
        # Equal points share their fate.
        equal = previous >= 0 and (cost[i], score[i]) == (cost[previous], score[previous])
        front[i] = front[previous] if equal else score[i] > best
        best = max(best, score[i])
    return front
