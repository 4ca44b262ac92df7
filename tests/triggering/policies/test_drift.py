"""Drift policies: points, windows, several metrics, warm-up."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyRange
from modyn_dagster.triggering import DriftNeed, Measured, ModelTrained, build_policy, simulate
from tests.triggering.laws import one_batch
from tests.triggering.measured import MMD, decide, drift, need_of, point_of

ABOVE_HALF = {"rule": "threshold", "value": 0.5}
DAY = 86_400


def need_at(block: dict[str, Any], times: np.ndarray, trigger: int, point: int, origin: int = -1) -> DriftNeed:
    """Need at a point of a policy whose last trigger was at ``trigger``; keys are indices."""
    policy = build_policy({**block, "every": point - origin})
    policy.triggered(trigger)
    policy.model_trained(ModelTrained(trigger, 1, 1.0))
    assert policy.next_point(trigger, one_batch(times, origin)) == point
    return need_of(policy, point, DriftNeed)


def indices(window: KeyRange) -> list[int]:
    return list(range(window.after + 1, window.until + 1))


@st.composite
def places(draw) -> tuple[np.ndarray, int, int, int]:
    """Times, and origin < trigger < point."""
    offsets = draw(st.lists(st.integers(0, 30), min_size=4, max_size=25))
    inside = draw(st.lists(st.integers(-1, len(offsets) - 1), min_size=3, max_size=3, unique=True).map(sorted))
    return np.array(offsets, dtype="datetime64[D]"), *inside


sizes = st.integers(1, 12)


@given(places(), sizes, sizes, st.booleans())
def test_windows_by_amount_are_the_last_samples_before_the_trigger_and_before_the_point(place, reference, current, overlap):
    times, origin, trigger, point = place
    windows = {"by": "amount", "reference": reference, "current": current, "overlap": overlap}
    need = need_at(drift(ABOVE_HALF, windows=windows), times, trigger, point, origin)
    assert indices(need.reference) == list(range(origin + 1, trigger + 1))[-reference:]
    assert indices(need.current) == list(range((origin if overlap else trigger) + 1, point + 1))[-current:]


@given(places(), sizes, sizes, st.booleans())
def test_windows_by_time_reach_back_from_the_trigger_and_from_the_point(place, reference, current, overlap):
    times, origin, trigger, point = place
    windows = {"by": "time", "reference": f"{reference}d", "current": f"{current}d", "overlap": overlap}
    need = need_at(drift(ABOVE_HALF, windows=windows), times, trigger, point, origin)
    running = np.maximum.accumulate(times).astype(int)
    run = range(origin + 1, len(times))
    assert indices(need.reference) == [i for i in run if i <= trigger and running[i] > running[trigger] - reference]
    recent = [i for i in run if i <= point and running[i] > running[point] - current]
    assert indices(need.current) == [i for i in recent if overlap or i > trigger]


def test_the_need_names_metrics_features_and_the_number_of_the_point():
    block = drift({"rule": "p_value"}, metrics={"a": {"metric": "ks"}}, features={"of": "columns", "pca": 3})
    need = need_at(block, np.arange(9).astype("datetime64[s]"), 2, 5)
    assert (need.ordinal, list(need.metrics), need.features.pca, need.p_values) == (0, ["a"], 3, True)


def test_points_lie_at_every_nth_sample_of_the_run_and_scores_are_counted_by_them():
    block = drift(ABOVE_HALF, every=3)
    made = decide(block, [9.0, 0.1, 0.9, 0.2], n=14)
    assert [(one.index, one.fire, one.score) for one in made] == [
        (2, True, None),
        (5, False, 0.1),
        (8, True, 0.9),
        (11, False, 0.2),
    ]
    assert made[0].reason == "no model yet"


def test_without_a_model_every_point_fires_and_nothing_is_measured():
    stream, policy = one_batch(np.arange(9).astype("datetime64[s]")), build_policy(drift(ABOVE_HALF, every=2))
    for expected in (1, 3):
        point = point_of(policy, expected - 1, stream)
        assert (point, policy.needs(point)) == (expected, {})
        decision = policy.decide(point)
        assert (decision.fire, decision.key, decision.reason) == (True, expected, "no model yet")
        policy.triggered(point)
    policy.model_trained(ModelTrained(3, 2, 1.0))
    assert need_of(policy, point_of(policy, 3, stream), DriftNeed).ordinal == 2


def test_only_a_trigger_that_was_made_moves_the_reference():
    stream, policy = one_batch(np.arange(20).astype("datetime64[s]")), build_policy(drift(ABOVE_HALF, every=4))
    policy.triggered(1)
    policy.model_trained(ModelTrained(1, 2, 1.0))
    references = []
    for made in (False, True, True):
        point = point_of(policy, -1, stream)
        references.append(need_of(policy, point, DriftNeed).reference.until)
        assert policy.decide(point, {"": Measured({"mmd": 0.9})}).fire
        if made:
            policy.triggered(point)
    assert references == [1, 1, 7]


def test_a_trigger_by_hand_moves_the_reference_too():
    stream, policy = one_batch(np.arange(20).astype("datetime64[s]")), build_policy(drift(ABOVE_HALF, every=4))
    policy.triggered(5)
    policy.model_trained(ModelTrained(5, 6, 1.0))
    policy.next_point(5, stream)
    policy.decide(3, {"": Measured({"mmd": 0.0})})
    need = need_of(policy, point_of(policy, 5, stream), DriftNeed)
    assert (need.reference.until, need.current) == (5, KeyRange(5, 7))


THREE = {"a": {"metric": "mmd"}, "b": {"metric": "ks"}, "c": {"metric": "energy"}}


@pytest.mark.parametrize(
    ("aggregate", "needed"), [("any", 1), ("majority", 2), ("all", 3), ({"at_least": 1}, 1), ({"at_least": 3}, 3)], ids=str
)
def test_enough_metrics_must_agree_and_the_one_that_tips_gives_the_score(aggregate, needed):
    for votes in range(8):
        seen = {name: 0.6 + 0.1 * i if votes >> i & 1 else 0.1 for i, name in enumerate("abc")}
        made = decide(drift(ABOVE_HALF, metrics=THREE, aggregate=aggregate), {k: [0.0, v] for k, v in seen.items()}, n=2)[1]
        high = [score for score in seen.values() if score > 0.5]
        assert made.fire == (len(high) >= needed)
        assert made.score == (high[needed - 1] if made.fire else None)
        assert made.threshold == (0.5 if made.fire else None)
        assert {name: one["score"] for name, one in made.details["metrics"].items()} == seen
        assert made.reason.startswith(f"{len(high)} of 3 metrics see drift, {needed} needed: ")


def test_a_majority_of_two_is_both():
    two = {"a": {"metric": "mmd"}, "b": {"metric": "ks"}}
    made = decide(drift(ABOVE_HALF, metrics=two), {"a": [0, 0.9, 0.9], "b": [0, 0.1, 0.9]}, n=3)
    assert [one.fire for one in made] == [True, False, True]


def test_every_metric_has_its_own_dynamic_threshold():
    block = drift({"rule": "quantile", "window": 1, "quantile": 0.5}, metrics={"a": THREE["a"], "b": THREE["b"]}, aggregate="any")
    made = decide(block, {"a": [0, 5, 4, 3], "b": [0, 1, None, 2]}, n=4)
    assert [one.fire for one in made] == [True, False, False, True]
    assert made[3].score == 2


def test_more_metrics_than_there_are_can_never_agree():
    with pytest.raises(ConfigError, match="at least 2 of 1 metrics can never agree"):
        build_policy(drift(ABOVE_HALF, aggregate={"at_least": 2}))


def test_details_say_how_large_the_windows_were():
    block = drift(ABOVE_HALF, windows={"by": "amount", "reference": 3, "current": 2}, every=4)
    assert [one.details for one in decide(block, [0, 0, 0], n=12)[1:]] == [{"n_reference": 3, "n_current": 2}] * 2


def test_a_measurement_that_lacks_what_was_asked_for_is_an_error():
    stream, policy = one_batch(np.arange(9).astype("datetime64[s]")), build_policy(drift(ABOVE_HALF))
    policy.triggered(0)
    policy.model_trained(ModelTrained(0, 1, 1.0))
    policy.next_point(0, stream)
    with pytest.raises(ValueError, match=r"must be given 'mmd', as needs\(0\) asked for; it was given nothing"):
        policy.decide(0)


class TestWarmUp:
    def block(self, policy: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return drift(ABOVE_HALF, every=4, warmup={"intervals": 3, "policy": policy}, **fields)

    def test_another_policy_decides_at_the_first_points(self):
        made = decide(self.block({"kind": "amount", "every": 10}), [9.0] * 5, n=20)
        # Points 3, 7, 11, 15, 19; the other policy fires at 9, which point 11 is the first to see.
        assert [one.fire for one in made] == [True, False, True, True, True]
        assert made[1].reason == "warm-up, point 2 of 3: mmd 9 >= 0.5"
        assert made[2].reason == "warm-up, point 3 of 3: 10 samples"
        assert made[3].reason == "mmd 9 >= 0.5"

    def test_it_goes_on_where_the_fire_was_forced(self):
        made = decide(self.block({"kind": "amount", "every": 3}), [0.0] * 5, n=20)
        assert [one.fire for one in made] == [True, True, True, False, False]

    def test_what_is_measured_meanwhile_fills_dynamic_thresholds(self):
        block = self.block({"kind": "amount", "every": 100})
        block["decision"] = {"rule": "quantile", "window": 2, "quantile": 0.5}
        made = decide(block, [9.0, 0.1, 0.2, 0.9], n=16)
        assert [one.fire for one in made] == [True, False, False, True]
        assert made[3].threshold == pytest.approx(0.15)

    @given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 5))
    def test_it_fires_at_the_first_point_that_sees_the_other_policy_fire(self, offsets, every, intervals):
        times = np.array(offsets, dtype="datetime64[D]")
        other = {"kind": "time", "every": f"{every}d"}
        block = drift({"rule": "threshold", "value": 1e9}, every=4, warmup={"intervals": intervals, "policy": other})
        running = np.maximum.accumulate(offsets)
        ticks = (running - running[0]) // every
        expected = [
            point == 3 or (ordinal < intervals and ticks[point] > ticks[point - 4])
            for ordinal, point in enumerate(range(3, len(offsets), 4))
        ]
        made = simulate(build_policy(block), times, scores=lambda start, stop, labels: 0.0)
        assert [one.fire for one in made] == expected


def test_a_single_metric_may_be_called_as_one_likes():
    assert decide(drift(ABOVE_HALF, metrics={"mine": MMD["mmd"]}), [0, 1])[1].reason == "mine 1 >= 0.5"
