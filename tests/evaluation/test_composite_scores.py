"""Scores of whole pipelines against brute force: shortfall, retention, forgetting, hindsight and the Pareto front."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.evaluation import (
    best_schedule,
    currently_active,
    expected_shortfall,
    feasible_set,
    forgetting,
    pareto_front,
    past_intervals,
    regret,
    retention,
)
from tests.examples import examples

Float64 = npt.NDArray[np.float64]

EIGHTHS = st.integers(0, 8).map(lambda i: i / 8)
SCORES = st.lists(EIGHTHS | st.just(float("nan")), max_size=12)


@given(SCORES, st.integers(1, 100), st.booleans())
def test_the_shortfall_is_the_mean_of_the_worst_part_counted_in_hundredths(scores: list[float], z: int, losses: bool) -> None:
    defined = sorted((s for s in scores if s == s), reverse=losses)
    found = expected_shortfall(scores, z, lower_is_better=losses)
    if not defined:
        assert found is None
    else:
        hundredfold = np.repeat(defined, 100)[: z * len(defined)]
        assert found == pytest.approx(hundredfold.mean())


@pytest.mark.parametrize("z", [0, -1, 101])
def test_a_share_that_is_none_is_refused(z: float) -> None:
    with pytest.raises(ValueError, match=r"z: .*must be above 0"):
        expected_shortfall([0.5], z)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Float64, list[int], list[int]]:
    """Values, last training times in order, anchors in any order; few distinct numbers, so that ties are common."""
    n_models, n_intervals = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    values = draw(hnp.arrays(np.float64, (n_models, n_intervals), elements=EIGHTHS | st.sampled_from([np.nan, 0.5, 0.25])))
    ends = sorted(draw(st.lists(st.integers(0, 8), min_size=n_models, max_size=n_models)))
    return values, ends, draw(st.lists(st.integers(0, 10), min_size=n_intervals, max_size=n_intervals))


@given(matrices(), st.booleans())
def test_retention_and_forgetting_agree_with_their_definitions(case: tuple[Float64, list[int], list[int]], losses: bool) -> None:
    values, train_ends, interval_ends = case
    past = past_intervals(train_ends, interval_ends)
    kept, lost = retention(values, past), forgetting(values, past, lower_is_better=losses)
    for m, end in enumerate(train_ends):
        mine = [j for j, over in enumerate(interval_ends) if over <= end]
        own = [values[m, j] for j in mine if values[m, j] == values[m, j]]
        np.testing.assert_allclose(kept[m], np.mean(own) if own else np.nan)
        drops = []
        for j in mine:
            earlier = [values[i, j] for i in range(m) if values[i, j] == values[i, j]]
            if earlier and values[m, j] == values[m, j]:
                drops.append(values[m, j] - min(earlier) if losses else max(earlier) - values[m, j])
        np.testing.assert_allclose(lost[m], np.mean(drops) if drops else np.nan)


def judged(values: Float64, ends: list[int], anchors: list[int]) -> list[int]:
    """Intervals in which some model has ended, and all that have are defined."""
    able = [[m for m, end in enumerate(ends) if end < anchor] for anchor in anchors]
    return [j for j, models in enumerate(able) if models and np.isfinite(values[models, j]).all()]


@pytest.mark.long
@settings(max_examples=examples(200))
@given(matrices(), st.integers(1, 6) | st.none(), st.sampled_from([0.0, 0.05, 0.3]), st.booleans())
def test_the_best_schedule_is_the_best_of_all_subsets(
    case: tuple[Float64, list[int], list[int]], most: int | None, cost: float, losses: bool
) -> None:
    values, ends, anchors = case
    intervals = judged(values, ends, anchors)
    found = best_schedule(values, ends, anchors, triggers=most, cost=cost, lower_is_better=losses)
    if not intervals:
        assert found is None
        return
    best = -np.inf
    for size in range(1, (most or len(ends)) + 1):
        for subset in combinations(range(len(ends)), size):
            active = currently_active([ends[m] for m in subset], [anchors[j] for j in intervals])
            if (active >= 0).all():
                mean = np.mean([values[subset[a], j] for a, j in zip(active, intervals, strict=True)])
                best = max(best, (-mean if losses else mean) - cost * size)
    assert found is not None
    assert (-found.mean if losses else found.mean) - cost * len(found.models) == pytest.approx(best)
    assert found.n_intervals == len(intervals)
    assert len(found.models) <= (most or len(ends))


@given(matrices(), st.booleans())
def test_regret_is_never_negative_and_nothing_for_a_pipeline_of_one_model(
    case: tuple[Float64, list[int], list[int]], losses: bool
) -> None:
    values, ends, anchors = case
    found = regret(values, ends, anchors, lower_is_better=losses)
    if found is not None:
        assert found.value >= 0
    alone = regret(values[:1], ends[:1], anchors, lower_is_better=losses)
    assert alone is None or alone.value == pytest.approx(0)


def test_regret_of_retraining_into_an_outlier() -> None:
    """The second model is bad for good: the best schedule skips it."""
    values = np.array([[0.9, 0.8, 0.8], [np.nan, 0.2, 0.2], [np.nan, np.nan, 0.9]])
    found = regret(values, [0, 10, 20], [5, 15, 25])
    assert found is not None
    assert found.best.models == (0, 2)
    assert found.value == pytest.approx((0.9 + 0.8 + 0.9) / 3 - (0.9 + 0.2 + 0.9) / 3)


def test_impossible_questions_of_hindsight_are_refused() -> None:
    with pytest.raises(ValueError, match="train_ends: must not decrease"):
        best_schedule(np.zeros((2, 1)), [5, 3], [9])
    with pytest.raises(ValueError, match="triggers: 0"):
        best_schedule(np.zeros((1, 1)), [5], [9], triggers=0)


POINTS = st.lists(st.tuples(st.integers(0, 5) | st.just(float("nan")), EIGHTHS | st.just(float("nan"))), max_size=10)


@given(POINTS, st.booleans())
def test_the_front_holds_exactly_the_pipelines_that_no_other_beats(points: list[tuple[float, float]], losses: bool) -> None:
    sign = -1 if losses else 1
    real = [(c, s) for c, s in points if c == c and s == s]

    def beaten(c: float, s: float) -> bool:
        return any(oc <= c and sign * os >= sign * s and (oc, os) != (c, s) for oc, os in real)

    costs, scores = [c for c, _ in points], [s for _, s in points]
    expected = [(c, s) in real and not beaten(c, s) for c, s in points]
    assert pareto_front(costs, scores, lower_is_better=losses).tolist() == expected
    assert feasible_set(costs, scores).tolist() == [list(map(float, point)) for point in sorted(real)]


def test_a_front_needs_a_score_for_every_cost() -> None:
    with pytest.raises(ValueError, match="one of each per pipeline"):
        pareto_front([1, 2], [0.5])
