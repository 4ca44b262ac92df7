"""Confidence sequence of differences: laws of its state and its bounds, and a brute-force twin."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.paired.confidence_sequence import (
    DifferenceState,
    Running,
    bounds_path,
    confidence_bounds,
    confidence_verdict,
    log_evidence,
)
from modyn_dagster.evaluation.paired.mixture_boundary import boundary

DIFFERENCES = st.lists(st.floats(-1, 1), max_size=60).map(np.array)
SOME = st.lists(st.floats(-1, 1), min_size=1, max_size=60).map(np.array)


def brute_force(differences: np.ndarray) -> tuple[float, float]:
    """Sum of the differences, and of squares less centres, one sample at a time."""
    squares = 0.0
    for i, d in enumerate(differences):
        centre = sum(differences[:i]) / (i + 1)
        squares += (d - max(-0.25, min(0.25, centre))) ** 2
    return sum(differences), squares


@given(DIFFERENCES)
def test_the_state_is_that_of_brute_force(differences):
    state = DifferenceState().updated(differences)
    assert (state.n, state.total, state.squares) == pytest.approx((len(differences), *brute_force(differences)), abs=1e-9)


@given(DIFFERENCES, st.lists(st.integers(0, 60), max_size=5))
def test_the_bits_of_a_state_do_not_depend_on_how_the_stream_is_divided_nor_on_saving_it(differences, cuts):
    state = DifferenceState()
    for part in np.split(differences, sorted(min(cut, len(differences)) for cut in cuts)):
        state = DifferenceState.of_json(json.loads(json.dumps(state.updated(part).to_json())))
    assert state == DifferenceState().updated(differences)


@given(SOME, st.floats(0.001, 0.4))
def test_bounds_of_the_opposite_comparison_are_mirrored(differences, alpha):
    one = confidence_bounds(DifferenceState().updated(differences), alpha)
    other = confidence_bounds(DifferenceState().updated(-differences), alpha)
    assert (-other.upper, -other.lower, -other.high, -other.low) == (one.lower, one.upper, one.low, one.high)


@given(SOME, st.floats(0.01, 100), st.floats(0.001, 0.4))
def test_bounds_are_in_the_unit_of_the_metric_and_hold_the_mean(differences, unit, alpha):
    state = DifferenceState().updated(differences)
    plain, scaled = confidence_bounds(state, alpha), confidence_bounds(state, alpha, unit)
    assert [scaled.low, scaled.lower, scaled.upper, scaled.high] == pytest.approx(
        [unit * end for end in (plain.low, plain.lower, plain.upper, plain.high)]
    )
    assert -1 <= plain.low <= plain.lower <= state.mean <= plain.upper <= plain.high <= 1


@given(SOME, st.floats(-0.5, 0.5), st.floats(0.001, 0.4))
def test_better_is_said_where_the_evidence_reaches_its_threshold(differences, margin, alpha):
    state = DifferenceState().updated(differences)
    run = Running(*(np.array([value]) for value in (state.n, state.total, state.squares)))
    evidence = float(log_evidence(run, margin)[0])
    if abs(evidence + np.log(alpha)) > 1e-6:
        assert (confidence_verdict(state, alpha=alpha, margin=margin).result == "better") == (evidence > -np.log(alpha))


@given(SOME)
def test_the_order_of_samples_changes_the_bounds_by_the_centres_alone(differences):
    one, other = (DifferenceState().updated(each) for each in (differences, differences[::-1]))
    assert one.total == pytest.approx(other.total, abs=1e-9)
    # No centre moves a square by more than (1 + 1/4)^2.
    assert abs(one.squares - other.squares) <= 1.5625 * len(differences)


@given(SOME, st.integers(1, 30))
def test_the_path_has_the_bounds_of_every_beginning_and_ends_at_the_last_sample(differences, points):
    path = bounds_path(differences, points=points, unit=3.0)
    assert path.n[-1] == len(differences) or points == 1
    for i, n in enumerate(path.n.tolist()):
        bounds = confidence_bounds(DifferenceState().updated(differences[:n]), 0.05, 3.0)
        ends = path.lower[i], path.upper[i], path.low[i], path.high[i]
        assert ends == pytest.approx((bounds.lower, bounds.upper, bounds.low, bounds.high), abs=1e-9)


def test_bounds_are_the_boundary_on_the_scale_of_the_farthest_difference():
    state = DifferenceState().updated(np.tile([1.0, 0.0, 0.0, -1.0], 100))
    expected = 1.25 * float(boundary(state.squares / 1.25**2, 0.05)) / 400
    assert confidence_bounds(state, 0.05).upper == pytest.approx(expected)


@pytest.mark.parametrize("bad", [1.5, -1.0001, float("nan")])
def test_a_difference_outside_its_bounds_is_refused(bad):
    with pytest.raises(ConfigError, match=r"must lie in \[-1, 1\]"):
        DifferenceState().updated(np.array([0.0, bad]))


def test_verdicts_need_samples_and_say_what_they_are_read_from():
    none = confidence_verdict(DifferenceState())
    assert (none.result, none.bounds, none.reason) == ("undecided", None, "0 samples, at least 1 are needed")
    few = confidence_verdict(DifferenceState().updated(np.ones(20)), min_samples=30)
    assert (few.result, few.reason) == ("undecided", "20 samples, at least 30 are needed")
    equal = confidence_verdict(DifferenceState().updated(np.tile([1.0, -1.0], 50)))
    assert (equal.result, equal.difference) == ("undecided", 0)
    worse = confidence_verdict(DifferenceState().updated(np.tile([-1.0, 0.0], 50)), margin=0.01)
    assert worse.result == "worse or equal"
    assert worse.reason == (
        "on 100 samples the candidate is worse by 0.5; "
        "with 95% confidence the true difference is at most -0.3075, and the margin is 0.01"
    )
    assert worse.bounds is not None
    assert worse.to_json()["bounds"]["upper"] == worse.bounds.upper


def test_equal_predictions_are_worse_or_equal_against_a_margin_and_never_worse_without_one():
    same = DifferenceState().updated(np.zeros(20_000))
    assert confidence_verdict(same).result == "undecided"
    assert confidence_verdict(same, margin=0.01).result == "worse or equal"
