"""From cells to one number: scores of a composite model, and of a pipeline."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite import Choice
from modyn_dagster.evaluation.metrics import Score

Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def composite_scores(values: Float64, chosen: Choice) -> Float64:
    """The chosen model's value in every interval, ``float64[intervals]``; NaN where undefined or no model is chosen.

    ``values`` is ``float64[models, intervals]`` with NaN for undefined and missing cells, ``chosen`` an index or -1 per
    interval (``currently_active``, ``currently_trained``).
    """
    scores = np.full(len(chosen), np.nan)
    has_model = np.flatnonzero(chosen >= 0)
    scores[has_model] = values[chosen[has_model], has_model]
    return scores


def pipeline_score(scores: Float64, active: Choice, *, among: Mask | None = None) -> Score:
    """The unweighted mean of a composite model's scores over the intervals that have an active model and a defined score.

    ``active`` is the pipeline's currently active choice, also when the scores are those of another composite: all composites
    of a pipeline are judged on the same intervals. ``among`` narrows them to those that several pipelines share.
    """
    judged = active >= 0
    if among is not None:
        judged = judged & among
    if not judged.any():
        return Score(None, 0, "no interval has an active model")
    defined = scores[judged & np.isfinite(scores)]
    if len(defined) == 0:
        return Score(None, 0, f"the score is undefined in all of {judged.sum()} intervals with an active model")
    return Score(float(defined.mean()), len(defined))


def comparable_intervals(active: Sequence[Choice]) -> Mask:
    """Intervals in which every pipeline has an active model, ``bool[intervals]``; one choice per pipeline, same intervals."""
    return np.asarray(np.logical_and.reduce([choice >= 0 for choice in active]))


def expected_shortfall(scores: npt.ArrayLike, z: float, *, lower_is_better: bool = False) -> float | None:
    """The mean of the worst ``z`` percent of the scores, the last of them counting in part; None without a defined one.

    ``scores`` are ``float64[n]``, NaN where undefined; 0 < z <= 100, else ``ValueError``. At 100 it is the mean, and as z goes
    to 0 the worst score (Rockafellar and Uryasev, 2000).

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
