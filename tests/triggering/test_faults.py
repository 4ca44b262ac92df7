"""Faults of the reference system that this one must not have: one test each."""

from datetime import date
from typing import get_args

import numpy as np
import pytest
from pydantic import BaseModel

from modyn_dagster.spec.triggers.drift import OwnMetricSpec
from modyn_dagster.triggering import build_policy, simulate
from tests.triggering import user_metrics
from tests.triggering.measured import decide, drift, fires_on_a_shift, performance

METRICS = [
    name
    for spec in get_args(get_args(OwnMetricSpec)[0])
    if issubclass(spec, BaseModel)
    for name in get_args(spec.model_fields["metric"].annotation)
]


@pytest.mark.parametrize("metric", METRICS)
def test_a_drift_trigger_takes_every_metric_and_not_only_mmd(metric):
    own = {"factory": f"{user_metrics.__name__}:energy"} if metric == "custom" else {}
    assert fires_on_a_shift({"metric": metric} | own) == [True, False, False, True]


@pytest.mark.parametrize("signal", ["latency", "misclassifications"])
def test_regret_is_zero_again_after_every_trigger(signal):
    # Regret that only grew would fire at every point from the first crossing on.
    block = {"kind": "cost", "every": 10, "signal": signal, "regret_per_training_second": 1.0}
    made = simulate(build_policy(block), np.arange(200), scores=[0.5] * 20, training_seconds=8.0 if signal[0] == "m" else 100.0)
    fires = [one.fire for one in made]
    assert fires == [True, *[False, True] * 9, False]
    scores = [one.score for one in made[1:]]
    assert scores[::2] == [scores[0]] * 10


def test_regret_is_compared_in_its_own_unit():
    # 10 samples one second apart have waited 45 sample-seconds: worth 45 s of training at 1 a second, 4.5 s at 10 a second.
    for factor, seconds in ((1.0, 45.0), (10.0, 4.5), (0.1, 450.0)):
        block = {"kind": "cost", "every": 10, "signal": "latency", "regret_per_training_second": factor}
        for costs, fires in ((seconds, True), (seconds * 1.01, False)):
            assert simulate(build_policy(block), np.arange(20), training_seconds=costs)[1].fire == fires


@pytest.mark.parametrize(
    "rule",
    [{"rule": "quantile", "window": 3, "quantile": 0.5}, {"rule": "rolling_mean", "window": 3, "deviation": 0.1}],
    ids=lambda rule: rule["rule"],
)
def test_the_first_score_never_fires_a_dynamic_threshold(rule):
    made = decide(drift(rule), [0, 1e6, 1e7, 1e8, 1e9])
    assert [one.fire for one in made] == [True, False, False, False, True]
    assert made[1].reason == "mmd 1e+06: 0 of 3 scores so far"


def test_avoidable_misclassifications_do_without_a_given_expected_accuracy():
    block = performance({"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}, every=10)
    made = decide(block, {"accuracy": [0, 0.7, 0.7], "expected_accuracy": [0, 0.9, 0.9]}, n=30)
    assert [one.fire for one in made] == [True, False, True]


def test_empty_batches_and_ticks_without_samples_are_no_triggers():
    times = np.array([100, 100, 101, 200], dtype="datetime64[D]")
    block = {"kind": "time", "every": "1d", "start": date(1970, 1, 1)}
    made = simulate(build_policy(block), times, batches=[0, 0, 2, 0, 1, 1, 0])
    assert [(one.index, one.reason) for one in made] == [(1, "tick at 1970-04-12"), (2, "tick at 1970-07-20")]
    assert simulate(build_policy(block), times[:0], batches=[0, 0]) == []


def test_an_ensemble_takes_members_that_measure():
    block = {
        "kind": "ensemble",
        "rule": "all",
        "policies": {
            "p": performance({"rule": "threshold", "value": 0.5}, every=5),
            "c": {"kind": "cost", "every": 5, "signal": "misclassifications", "regret_per_training_second": 1.0},
            "d": drift({"rule": "threshold", "value": 0.5}, every=5),
        },
    }
    scores = {"p": [0, 0.4, 0.4], "c": [0, 0.9, 0.4], "d": [0, 0.9, 0.1]}
    made = decide(block, scores, n=15, training_seconds=2.0)
    assert [one.fire for one in made] == [True, False, True]
