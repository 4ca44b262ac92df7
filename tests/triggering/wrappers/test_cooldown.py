"""Cooldown and minimum samples: length of the quiet time, and records of suppressed fires."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering import build_policy, simulate
from tests.triggering.laws import one_batch


def seconds(*values: int) -> np.ndarray:
    return np.array(values, dtype="datetime64[s]")


def wrapped(kind: str, every: int, **fields: object) -> dict:
    return {"kind": kind, "policy": {"kind": "amount", "every": every}, **fields}


def fires(spec: dict, timestamps: np.ndarray) -> list[int]:
    return [decision.index for decision in simulate(build_policy(spec), timestamps) if decision.fire]


def test_the_first_trigger_is_never_quiet_and_the_next_one_so_many_samples_later():
    assert fires(wrapped("cooldown", 2, samples=5), seconds(*range(16))) == [1, 7, 13]


def test_a_cooldown_in_sample_time():
    assert fires(wrapped("cooldown", 1, duration="10s"), seconds(0, 9, 10, 11, 30, 39, 41)) == [0, 2, 4, 6]


def test_a_late_sample_does_not_turn_the_clock_back():
    assert fires(wrapped("cooldown", 1, duration="10s"), seconds(0, 10, 1, 20)) == [0, 1, 3]


def test_minimum_samples_hold_for_the_first_trigger_too():
    assert fires(wrapped("minimum_samples", 2, samples=5), seconds(*range(16))) == [5, 11]


def test_minimum_samples_count_what_would_be_trained_on():
    # Two samples lie before the tick at 10 s and three before that at 20 s: each training set would hold too few.
    spec = {"kind": "minimum_samples", "policy": {"kind": "time", "every": "10s"}, "samples": 4}
    assert fires(spec, seconds(0, 1, 10, 20, 30)) == [3]


def test_a_suppressed_fire_is_recorded_with_its_reason():
    decisions = simulate(build_policy(wrapped("cooldown", 2, samples=5)), seconds(*range(4)))
    assert [decision.fire for decision in decisions] == [True, False]
    assert decisions[1].reason == "suppressed by cooldown: 2 of 5 samples since the last trigger (would fire: 2 samples)"
    assert decisions[1].details["suppressed"]["by"] == "cooldown"
    [decision] = simulate(build_policy(wrapped("minimum_samples", 2, samples=5)), seconds(0, 1))
    assert decision.reason == "suppressed by minimum_samples: 2 of 5 samples since the last trigger (would fire: 2 samples)"
    decision = simulate(build_policy(wrapped("cooldown", 1, duration="1m")), seconds(0, 30))[1]
    assert decision.reason == "suppressed by cooldown: 30 of 60 seconds since the last trigger (would fire: 1 samples)"


@pytest.mark.parametrize("fields", [{"kind": "cooldown", "samples": 5}, {"kind": "minimum_samples", "samples": 5}], ids=str)
def test_a_trigger_by_hand_begins_it_again(fields):
    policy = build_policy(wrapped(every=3, **fields))
    stream = one_batch(seconds(*range(9)))
    policy.triggered(1)
    cursor = ORIGIN
    for point, fires_there in ((2, False), (5, False), (8, True)):
        assert policy.next_point(cursor, stream) == point
        assert policy.decide(point).fire == fires_there
        cursor = point


def test_wrappers_nest_and_the_innermost_refuses_first():
    inner = wrapped("minimum_samples", 2, samples=3)
    [first, *_] = simulate(build_policy({"kind": "cooldown", "policy": inner, "samples": 9}), seconds(0, 1))
    assert first.reason.startswith("suppressed by minimum_samples")


@pytest.mark.parametrize(
    "spec",
    [
        wrapped("cooldown", 1),
        wrapped("cooldown", 1, samples=1, duration="1d"),
        wrapped("cooldown", 1, samples=0),
        wrapped("minimum_samples", 1),
        {"kind": "cooldown", "samples": 3},
    ],
    ids=["no measure", "two measures", "no samples", "no minimum", "no policy"],
)
def test_impossible_wrappers_are_refused(spec):
    with pytest.raises(ConfigError):
        build_policy(spec)


@pytest.mark.parametrize("kind", ["cooldown", "minimum_samples"])
def test_deciding_before_a_point_was_named_is_an_error(kind):
    with pytest.raises(ValueError, match="must follow the next_point"):
        build_policy(wrapped(kind, 1, samples=1)).decide(3)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 5), st.integers(1, 60))
def test_a_cooldown_in_time_agrees_with_brute_force(offsets, every, quiet):
    reached = np.maximum.accumulate(offsets)
    expected: list[int] = []
    for i in range(every - 1, len(reached), every):
        if not expected or reached[i] - reached[expected[-1]] >= quiet:
            expected.append(i)
    assert fires(wrapped("cooldown", every, duration=f"{quiet}s"), seconds(*offsets)) == expected


@pytest.mark.parametrize(("kind", "begin"), [("cooldown", -1000), ("minimum_samples", -1)])
@given(n=st.integers(0, 60), every=st.integers(1, 5), samples=st.integers(1, 20))
def test_both_counts_agree_with_brute_force(kind, begin, n, every, samples):
    expected = [begin]
    for i in range(every - 1, n, every):
        if i - expected[-1] >= samples:
            expected.append(i)
    assert fires(wrapped(kind, every, samples=samples), seconds(*range(n))) == expected[1:]
