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
