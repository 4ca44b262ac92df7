"""The public conformance suite: every kind of policy passes, and a policy that breaks a law is caught by that law."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from modyn_dagster.errors import ConfigError, LawBroken
from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.trigger import TriggerSpec
from modyn_dagster.triggering import Measured, build_policy
from modyn_dagster.triggering.conformance import check_policy
from tests.triggering import user_policies
from tests.variants import represented

USER_CODE = user_policies.__name__
AMOUNT = {"kind": "amount", "every": 7}
TIME = {"kind": "time", "every": "9d"}
DRIFT = {
    "kind": "drift",
    "every": 8,
    "windows": {"by": "time", "reference": "90d", "current": "30d"},
    "metrics": {"m": {"metric": "mmd"}, "k": {"metric": "ks"}},
    "decision": {"rule": "quantile", "window": 5, "quantile": 0.3},
    "aggregate": "any",
    "warmup": {"intervals": 3, "policy": {"kind": "amount", "every": 11}},
}
PERFORMANCE = {"kind": "performance", "every": 8, "decision": {"rule": "threshold", "value": 0.2}}
COST = {"kind": "cost", "every": 8, "signal": "latency", "regret_per_training_second": 1e7}
POLICIES: dict[str, dict[str, Any]] = {
    "amount": {**AMOUNT, "max_triggers": 20},
    "time": TIME,
    "time with start": {**TIME, "start": "2020-02-01"},
    "drift": DRIFT,
    "drift by p-value": {
        **DRIFT,
        "windows": {"by": "amount", "reference": 40, "current": 20, "overlap": True},
        "decision": {"rule": "p_value", "alpha": 0.2},
    },
    "performance": PERFORMANCE,
    "performance, calibrated forecast": {
        "kind": "performance",
        "every": 8,
        "decision": {"rule": "misclassifications", "value": 5, "expected_accuracy": "calibrate"},
        "forecast": {"method": "ridge", "window": 5},
    },
    "detector": {"kind": "detector", "every": 8, "detector": {"name": "adwin"}},
    "cost": COST,
    "cost of misclassifications": {**COST, "signal": "misclassifications", "regret_per_training_second": 3.0},
    "ensemble": {"kind": "ensemble", "policies": {"a": AMOUNT, "t": TIME, "d": DRIFT}, "rule": "majority"},
    "nested": {
        "kind": "ensemble",
        "policies": {
            "inner": {"kind": "ensemble", "policies": {"a": AMOUNT, "p": PERFORMANCE}, "rule": "all"},
            "t": {"kind": "cooldown", "policy": TIME, "duration": "20d"},
        },
        "rule": "any",
    },
    "budget": {"kind": "budget", "policy": AMOUNT, "per": "60d", "triggers": 3, "samples": 80, "seconds": 5},
    "budget of drift": {"kind": "budget", "policy": DRIFT, "per": "60d", "seconds": 3, "cost": {"fixed": 1.0}},
    "budget of an ensemble": {
        "kind": "budget",
        "policy": {"kind": "ensemble", "policies": {"a": AMOUNT, "t": TIME}, "rule": "any"},
        "per": "40d",
        "triggers": 2,
    },
    "cooldown": {"kind": "cooldown", "policy": AMOUNT, "samples": 20},
    "cooldown in time": {"kind": "cooldown", "policy": DRIFT, "duration": "30d"},
    "minimum_samples": {"kind": "minimum_samples", "policy": TIME, "samples": 9},
    "custom": {"kind": "custom", "factory": f"{USER_CODE}:EveryNth"},
    "custom in an ensemble": {
        "kind": "ensemble",
        "policies": {"c": {"kind": "custom", "factory": f"{USER_CODE}:EveryNth"}, "a": AMOUNT},
        "rule": "all",
    },
}


#: Kinds and wrappers that take long, beside others of their kind.
SLOW = {
    *("ensemble", "budget of drift", "budget of an ensemble", "cooldown in time", "drift by p-value", "nested"),
    *("performance, calibrated forecast", "cost of misclassifications"),
}


@pytest.mark.long
@represented("name", list(POLICIES), "laws-policies", *(POLICIES.keys() - SLOW))
def test_every_kind_obeys_the_laws(name):
    check_policy(POLICIES[name], samples=240)


def test_every_kind_of_block_is_among_them():
    kinds = TypeAdapter(TriggerSpec).json_schema()["discriminator"]["mapping"]
    assert set(kinds) == {policy["kind"] for policy in POLICIES.values()}


BROKEN = {
    user_policies.OncePerBatch: "other batches change no decision",
    user_policies.Forgetful: "saving and loading state changes no decision",
    user_policies.KeepsTuples: "a restored policy has the state it was given",
    user_policies.KeepsObjects: "state is JSON",
    user_policies.Rolls: "equal seeds agree",
    user_policies.LooksAhead: "decisions do not look ahead",
    user_policies.StandsStill: "points come in order",
    user_policies.BetweenSamples: "points are samples",
    user_policies.TrainsAgain: "every trigger lies after the one before",
    user_policies.RunsAhead: "no key lies after its point",
    user_policies.CountsQuestions: "asking again gives the same point",
}


@pytest.mark.parametrize("policy", BROKEN, ids=lambda policy: policy.__name__)
def test_a_policy_that_breaks_a_law_is_caught_by_it(policy):
    with pytest.raises(LawBroken) as caught:
        check_policy(policy)
    assert caught.value.law == BROKEN[policy]


def test_the_error_names_law_stream_and_the_decision_that_differs():
    with pytest.raises(LawBroken) as caught:
        check_policy(user_policies.Forgetful)
    error = caught.value
    assert (error.stream, error.decision) == ("regular", 2)
    assert str(error).startswith(
        "saving and loading state changes no decision: broken on the stream 'regular', decision 2: expected"
    )
    assert "fire=True" in str(error)
    assert "fire=False" in str(error)


def test_a_policy_that_never_decides_was_not_checked():
    with pytest.raises(ConfigError, match="no decision on any stream of 2y"):
        check_policy(user_policies.NeverDecides)


def test_a_function_and_its_class_and_a_block_are_all_taken():
    check_policy(user_policies.EveryNth, samples=100)
    check_policy(lambda: build_policy(AMOUNT), samples=100)
    check_policy(AMOUNT, samples=100)


def test_measurements_of_ones_own_are_asked_by_path_with_sample_numbers():
    asked = []

    def measure(path, need):
        asked.append((path, need))
        return Measured({"accuracy": 0.1, "n_samples": 8.0})

    check_policy({"kind": "ensemble", "policies": {"p": PERFORMANCE}, "rule": "any"}, samples=60, measure=measure)
    assert {path for path, _ in asked} == {"p"}
    assert all(-1 <= need.window.after < need.window.until < 60 for _, need in asked)


def test_other_seeds_try_other_streams():
    asked: dict[int, set[KeyRange]] = {0: set(), 1: set()}
    for seed, windows in asked.items():

        def measure(path, need, windows=windows):
            windows.add(need.current)
            return Measured({"m": 0.5, "k": 0.5})

        check_policy(DRIFT, samples=60, seed=seed, measure=measure)
    assert asked[0] != asked[1]
