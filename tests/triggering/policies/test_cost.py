"""Cost policies: regret in its units, forecast seconds, reset at triggers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from modyn_dagster.spec.selection import LastTriggers
from modyn_dagster.triggering import ModelTrained, build_policy, simulate
from modyn_dagster.triggering.policies.forecasts import TrainingSeconds
from tests.triggering.laws import one_batch
from tests.triggering.measured import point_of

LATENCY: dict[str, Any] = {"kind": "cost", "every": 3, "signal": "latency", "regret_per_training_second": 50.0}
MISTAKES: dict[str, Any] = {**LATENCY, "signal": "misclassifications", "regret_per_training_second": 2.0}


@given(st.lists(st.integers(-20, 60), max_size=60), st.integers(1, 7), st.sampled_from([1.0, 30.0, 400.0]))
def test_latency_regret_is_what_the_samples_since_the_last_trigger_have_waited_together(steps, every, factor):
    times = np.cumsum([1_000, *steps])
    block = {**LATENCY, "every": every, "regret_per_training_second": factor, "seconds": {"fixed": 1.0, "per_sample": 0.5}}
    running, last = np.maximum.accumulate(times), -1
    for one in simulate(build_policy(block), times):
        if one.score is not None and one.threshold is not None:
            regret = sum(running[one.index] - running[i] for i in range(last + 1, one.index + 1))
            threshold = factor * (1.0 + 0.5 * (one.index - last))
            assert one.score == regret
            assert one.threshold == pytest.approx(threshold)
            assert one.fire == (one.score >= one.threshold)
        last = one.index if one.fire else last


def test_latency_needs_nothing_measured_and_states_its_unit():
    made = simulate(build_policy(LATENCY), np.arange(0, 90, 10), training_seconds=1.0)
    # 3 samples, 10 s apart, have waited 20 + 10 + 0 s together; then 6 of them 150 s.
    assert [(one.index, one.score, one.threshold) for one in made] == [(2, None, None), (5, 30.0, 50.0), (8, 150.0, 50.0)]
    assert made[2].reason == "regret 150 >= 50 sample-seconds (50 per second of training, 1 s for 6 samples)"
    assert made[2].details == {"unit": "sample-seconds", "n_samples": 6, "training_seconds": 1.0}


def test_long_latency_is_exact():
    # 4 million samples that wait 150 years: too many microseconds for 64 bits.
    n, years = 4_000_000, 150 * 365 * 86_400
    times = np.zeros(n + 2, dtype=np.int64)
    times[-1] = years
    block = {**LATENCY, "every": (n + 2) // 2, "seconds": {"fixed": 1e30}}
    assert simulate(build_policy(block), times)[1].score == (n // 2) * years
    block["every"] = 1
    policy, stream = build_policy(block), one_batch(times.astype("datetime64[s]"))
    assert stream.waiting_time(-1, n + 1) == (n + 1) * years * 1_000_000
    assert policy.next_point(-1, stream) == 0


def test_regret_of_misclassifications_counts_them_all_by_default():
    made = simulate(build_policy(MISTAKES), np.arange(12), scores=[0, 2 / 3, 1 / 3, 1], training_seconds=1.0)
    assert [one.score for one in made] == [None, 1, 3, 0]
    assert [one.fire for one in made] == [True, False, True, False]
    assert made[2].reason == "regret 3 >= 2 misclassifications (2 per second of training, 1 s for 6 samples)"


def test_regret_of_misclassifications_spares_those_that_were_to_be_expected():
    block = {**MISTAKES, "every": 10, "expected_accuracy": 0.8}
    made = simulate(build_policy(block), np.arange(40), scores=[0, 0.9, 0.7, 0.5], training_seconds=9.0)
    assert [one.score for one in made] == [None, 0, 1, 4]
    calibrated = build_policy({**block, "expected_accuracy": "calibrate"})
    scores = {"accuracy": [0, 0.9, 0.7, 0.5], "expected_accuracy": [0, 1.0, None, 0.6]}
    assert [one.score for one in simulate(calibrated, np.arange(40), scores=scores, training_seconds=9.0)] == [None, 1, None, 2]


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 10**4)), min_size=1, max_size=20),
    st.integers(0, 10**6),
    st.integers(1, 25),
)
def test_seconds_are_forecast_by_ridge_on_the_last_trainings(trainings, n_samples, history):
    forecast = TrainingSeconds(history=history)
    for samples, seconds in trainings:
        forecast.add(samples, seconds)
    samples, seconds = zip(*trainings[-history:], strict=True)
    expected = Ridge().fit(np.array(samples, dtype=float)[:, None], seconds).predict([[n_samples]])[0]
    assert forecast.expected(n_samples) == pytest.approx(max(0, expected), rel=1e-6, abs=1e-4)


def test_one_training_gives_a_constant_forecast_and_none_gives_none():
    forecast = TrainingSeconds()
    assert forecast.expected(7) is None
    forecast.add(1000, 12.0)
    assert [forecast.expected(n) for n in (1, 1000, 10**6)] == [12.0, 12.0, 12.0]


def test_what_simulate_says_a_training_takes_is_learnt():
    block = {**LATENCY, "regret_per_training_second": 1.0}
    made = simulate(build_policy(block), np.arange(0, 300, 10), training_seconds=lambda n: 20.0 * n)
    learnt: list[tuple[int, float]] = []
    last = -1
    for one in made:
        n = one.index - last
        if learnt:
            forecast = TrainingSeconds()
            for samples, seconds in learnt:
                forecast.add(samples, seconds)
            assert one.threshold == pytest.approx(forecast.expected(n))
        if one.fire:
            learnt.append((n, 20.0 * n))
            last = one.index
    assert len(learnt) > 2


def test_a_model_of_seconds_takes_the_place_of_the_forecast():
    block = {**LATENCY, "seconds": {"fixed": 2.0, "per_sample": 0.5}}
    slow, quick = (simulate(build_policy(block), np.arange(0, 300, 10), training_seconds=s) for s in (1e9, 0.0))
    assert slow == quick
    assert slow[1].threshold == 50.0 * (2.0 + 3 * 0.5)
    assert build_policy(block).state_dict()["own"]["seconds"] == {"history": []}


@pytest.mark.parametrize(
    ("window", "limit", "n_samples"),
    [("since_last_trigger", None, 3), (LastTriggers(last_triggers=2), None, 6), ("all", None, 9), ("all", 4, 4)],
    ids=str,
)
def test_the_training_expected_holds_what_the_selection_would_choose(window, limit, n_samples):
    policy, stream = build_policy(LATENCY, window=window, limit=limit), one_batch(np.arange(20).astype("datetime64[s]"))
    cursor = -1
    for _ in range(3):
        cursor = point_of(policy, cursor, stream)
        decision = policy.decide(cursor)
        policy.triggered(cursor)
        policy.model_trained(ModelTrained(cursor, 3, 1.0))
    assert decision.details["n_samples"] == n_samples


def test_regret_goes_on_after_a_fire_that_made_no_trigger():
    stream, scores = one_batch(np.arange(0, 200, 10).astype("datetime64[s]")), []
    policy, cursor = build_policy(LATENCY), -1
    policy.triggered(-1)
    policy.model_trained(ModelTrained(-1, 1, 0.0))
    for made in (False, True, False):
        cursor = point_of(policy, cursor, stream)
        scores.append(policy.decide(cursor).score)
        if made:
            policy.triggered(cursor)
    assert scores == [30.0, 150.0, 30.0]


def test_a_trigger_before_the_point_leaves_the_samples_after_it_waiting():
    stream, policy = one_batch(np.arange(0, 200, 10).astype("datetime64[s]")), build_policy(LATENCY)
    policy.triggered(-1)
    policy.model_trained(ModelTrained(-1, 1, 0.0))
    policy.decide(point_of(policy, -1, stream))
    policy.triggered(1)
    # Samples 2 to 5 wait 30 + 20 + 10 + 0 s.
    assert policy.decide(point_of(policy, 2, stream)).score == 60.0
