"""Amount and time triggers: examples, brute force, and the laws every policy obeys."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.triggering import build_policy, simulate
from tests.triggering.laws import POLICIES, decisions_of, one_batch, split_points
from tests.triggering.measured import point_of


def days(*values: int) -> np.ndarray:
    return np.array(values, dtype="datetime64[D]")


def indices(spec: dict, timestamps: np.ndarray, **options) -> list[int]:
    return [decision.index for decision in simulate(build_policy(spec), timestamps, **options)]


def test_amount_fires_at_every_nth_sample_and_trains_up_to_and_including_it():
    assert indices({"kind": "amount", "every": 3}, days(*range(8))) == [2, 5]


def test_time_trains_on_the_last_sample_before_the_tick():
    # Ticks at day 2, 4, 6, ...: the evidence is the first sample at or after a tick.
    assert indices({"kind": "time", "every": "2d"}, days(0, 1, 2, 3, 5)) == [1, 3]


def test_several_ticks_inside_one_gap_are_one_trigger():
    assert indices({"kind": "time", "every": "1d"}, days(0, 10, 11)) == [0, 1]


def test_a_tick_before_the_first_sample_of_a_batch_triggers_on_what_came_before():
    assert indices({"kind": "time", "every": "1d"}, days(0, 0, 5), batches=[2, 1]) == [1]


def test_a_tick_before_the_first_sample_of_the_stream_is_no_trigger():
    spec = {"kind": "time", "every": "1d", "start": date(1970, 1, 1)}
    assert indices(spec, days(100, 100, 101)) == [1]


def test_ticks_begin_after_the_start_and_never_at_it():
    spec = {"kind": "time", "every": "10d", "start": date(1970, 1, 5)}
    assert indices(spec, days(4, 5, 14, 15)) == [1]
    assert indices(spec, days(4, 5, 13, 14)) == [2]


def test_a_late_sample_causes_no_tick():
    assert indices({"kind": "time", "every": "2d"}, days(0, 5, 1, 2, 6, 7)) == [0, 3]


def test_max_triggers_stops_after_so_many():
    assert indices({"kind": "amount", "every": 2, "max_triggers": 2}, days(*range(9))) == [1, 3]


def test_the_reason_says_what_happened():
    [decision] = simulate(build_policy({"kind": "time", "every": "1y"}), days(0, 366))
    assert decision.reason == "tick at 1971-01-01"
    [decision] = simulate(build_policy({"kind": "amount", "every": 2}), days(0, 1))
    assert (decision.reason, decision.score, decision.threshold) == ("2 samples", 2.0, 2.0)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "amount", "every": 0},
        {"kind": "time", "every": "3x"},
        {"kind": "amout", "every": 1},
        {"kind": "time", "every": "1d", "evry": 1},
    ],
    ids=str,
)
def test_impossible_blocks_are_refused(spec):
    with pytest.raises(ConfigError):
        build_policy(spec)


def test_batches_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="batches hold 2 samples, timestamps 3"):
        simulate(build_policy({"kind": "amount", "every": 1}), days(0, 1, 2), batches=[1, 1])


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(1, 60))
def test_time_agrees_with_brute_force(offsets, every):
    reached = np.maximum.accumulate(offsets)
    expected, tick = [], reached[0] + every
    for index in range(1, len(reached)):
        if reached[index] >= tick:
            expected.append(index - 1)
            tick = reached[0] + every * ((reached[index] - reached[0]) // every + 1)
    assert indices({"kind": "time", "every": f"{every}d"}, days(*offsets)) == expected


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 20))
def test_amount_agrees_with_brute_force(offsets, every):
    assert indices({"kind": "amount", "every": every}, days(*offsets)) == list(range(every - 1, len(offsets), every))


streams = st.lists(st.integers(0, 300), min_size=1, max_size=50)


@pytest.mark.parametrize("spec", POLICIES, ids=str)
@given(data=st.data(), offsets=streams)
def test_splitting_the_stream_into_other_batches_changes_no_decision(spec, data, offsets):
    whole = simulate(build_policy(spec), days(*offsets))
    assert simulate(build_policy(spec), days(*offsets), batches=data.draw(split_points(len(offsets)))) == whole


@pytest.mark.parametrize("spec", POLICIES, ids=str)
@given(offsets=streams, length=st.integers(1, 50))
def test_decisions_on_a_prefix_are_a_prefix_of_the_decisions(spec, offsets, length):
    whole = simulate(build_policy(spec), days(*offsets))
    prefix = simulate(build_policy(spec), days(*offsets[:length]))
    assert prefix == whole[: len(prefix)]


@pytest.mark.parametrize("spec", POLICIES, ids=str)
@given(offsets=streams, every=st.integers(1, 5))
def test_saving_and_loading_state_at_any_decision_changes_none(spec, offsets, every):
    assert decisions_of(spec, days(*offsets), reload_every=every) == decisions_of(spec, days(*offsets), reload_every=None)


@pytest.mark.parametrize("spec", POLICIES, ids=str)
@given(offsets=streams)
def test_every_decision_lies_after_the_last_trigger_and_at_or_before_its_point(spec, offsets):
    last = -1
    for point, decision in decisions_of(spec, days(*offsets), reload_every=None):
        assert decision.key <= point
        if decision.fire:
            assert last < decision.key
            last = decision.key


def test_amount_and_time_decide_only_where_they_fire():
    spec = {"kind": "time", "every": "1d", "start": date(1960, 1, 1)}
    assert [one.fire for one in simulate(build_policy(spec), days(0, 0, 1, 3))] == [True, True]


def test_a_tick_with_nothing_new_since_a_trigger_by_hand_is_none():
    policy, stream = build_policy({"kind": "time", "every": "2d"}), one_batch(days(0, 1, 2, 3, 4))
    point = point_of(policy, -1, stream)
    policy.triggered(1)
    decision = policy.decide(point)
    assert (point, decision.fire, decision.reason) == (2, False, "nothing new before the tick at 1970-01-03")
    assert policy.decide(point_of(policy, 2, stream)).key == 3


def test_ticks_inside_a_day_are_shown_to_the_second():
    [decision] = simulate(build_policy({"kind": "time", "every": "90m"}), np.array([0, 5400]))
    assert decision.reason == "tick at 1970-01-01 01:30:00"


def test_ticks_before_1970_are_shown_too():
    [decision] = simulate(build_policy({"kind": "time", "every": "1h"}), np.array([-86_400 * 365, -86_400 * 365 + 3600]))
    assert decision.reason == "tick at 1969-01-01 01:00:00"
