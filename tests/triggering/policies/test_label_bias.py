"""Bias of scores where the delay of a label depends on it: positives are reported early, negatives late."""

from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering import build_policy, simulate
from tests.triggering.measured import performance

Floats = npt.NDArray[np.float64]

DAY = 86_400
N, EVERY = 120_000, 1_000
#: Of a hundred samples ten are positive; the model recognizes six of these ten, and 95 % of the negatives.
POSITIVE, RECALL, SPECIFICITY = 0.1, 0.6, 0.95
ACCURACY = POSITIVE * RECALL + (1 - POSITIVE) * SPECIFICITY


def scores_and_truths(maturity: str | None, age: int) -> tuple[Floats, Floats]:
    """Scores at the points of a performance trigger over 120 days, by the labels known then, and by all labels."""
    rng = np.random.default_rng(7)
    times = np.sort(rng.integers(0, 120 * DAY, N))
    positive = rng.random(N) < POSITIVE
    is_right = rng.random(N) < np.where(positive, RECALL, SPECIFICITY)
    delays = np.where(positive, rng.integers(0, 3 * DAY, N), rng.integers(0, 20 * DAY, N)).astype(float)
    # A tenth of all labels never comes, whatever they are.
    delays[rng.random(N) < 0.1] = np.inf
    truths = []

    def score(start: int, stop: int, _: Any) -> float:
        known = times[start:stop] + delays[start:stop] <= times[stop - 1] + age
        truths.append(is_right[start:stop].mean())
        return float(is_right[start:stop][known].mean())

    # A threshold that no score reaches: the first model is judged all the time.
    block = performance({"rule": "threshold", "value": -1}, every=EVERY)
    policy = build_policy(block if maturity is None else block | {"maturity": maturity})
    scores = [one.score for one in simulate(policy, times, scores=score) if one.score is not None]
    return np.array(scores), np.array(truths)


def test_scores_of_known_labels_are_biased_and_those_of_mature_cohorts_are_not() -> None:
    naive, truths = scores_and_truths(None, 0)
    assert (len(naive), naive.mean().round(3), truths.mean().round(3)) == (119, 0.8, 0.915)
    cohort, truths = scores_and_truths("20d", 20 * DAY)
    # A cohort has about 1,000 samples, of which nine tenths have a label.
    error = np.sqrt(ACCURACY * (1 - ACCURACY) * (1 / (0.9 * EVERY) - 1 / EVERY) / len(cohort))
    assert abs((cohort - truths).mean()) < 4 * error < 0.0015
    assert (len(cohort), cohort.mean().round(3), truths.mean().round(3)) == (100, 0.917, 0.917)
