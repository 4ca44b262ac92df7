"""Cost against quality: what pipelines reach, and which of them no other one beats in both (paper, section 3.1)."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite.scores import Mask


def feasible_set(costs: npt.ArrayLike, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The points ``(cost, score)`` of the pipelines that have both, ``float64[n, 2]``, by cost and then by score."""
    points = np.column_stack([np.asarray(costs, dtype=np.float64), np.asarray(scores, dtype=np.float64)])
    points = points[np.isfinite(points).all(axis=1)]
    return np.asarray(points[np.lexsort((points[:, 1], points[:, 0]))])


def pareto_front(costs: npt.ArrayLike, scores: npt.ArrayLike, *, lower_is_better: bool = False) -> Mask:
    """Which pipelines no other one beats, ``bool[pipelines]``: none costs no more and scores no worse, and one of them better.

    Equal points are all on the front or all off it; a pipeline without cost or score (NaN) is never on it.

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
    # From cheap to dear, of equal cost the best first: only what is better than all before it stays.
    order = np.flatnonzero(present)[np.lexsort((-score[present], cost[present]))]
    for place, i in enumerate(order):
        twin = place > 0 and (cost[i], score[i]) == (cost[order[place - 1]], score[order[place - 1]])
        front[i] = front[order[place - 1]] if twin else score[i] > best
        best = max(best, score[i])
    return front
