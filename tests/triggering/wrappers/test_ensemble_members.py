"""Ensembles of every kind of policy, the reference system's faults, and brute force over members that do not measure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.triggering import build_policy, simulate
from tests.triggering import user_policies
from tests.triggering.wrappers.test_ensemble import amount, drift, ensemble, fires, seconds

USER_CODE = user_policies.__name__
MEMBERS = {
    "amount": amount(10),
    "time": {"kind": "time", "every": "10s"},
    "drift": drift(10),
    "performance": {"kind": "performance", "every": 10, "decision": {"rule": "threshold", "value": 0.5}},
    "misclassifications": {
        "kind": "performance",
        "every": 10,
        "decision": {"rule": "misclassifications", "value": 5, "expected_accuracy": 0.9},
    },
    "detector": {"kind": "detector", "every": 10, "detector": {"name": "adwin"}},
    "cost": {"kind": "cost", "every": 10, "signal": "latency", "regret_per_training_second": 1.0},
    "ensemble": ensemble("any", inner=amount(10)),
    "budget": {"kind": "budget", "policy": amount(10), "per": "1y", "triggers": 5},
    "cooldown": {"kind": "cooldown", "policy": amount(10), "samples": 5},
    "minimum_samples": {"kind": "minimum_samples", "policy": amount(10), "samples": 5},
    "custom": {"kind": "custom", "factory": f"{USER_CODE}:EveryNth", "config": {"every": 10}},
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_every_policy_can_be_a_member_unlike_in_the_reference_system(kind):
    # Modyn's ensembles refuse performance, cost and ensemble children (facts: faults of the reference system, 8).
    spec = ensemble("any", member=MEMBERS[kind], other=amount(1000))
    assert fires(spec, seconds(*range(30)), scores={"member": lambda start, stop, labels: 0.0})[0] == 9


def test_sample_counts_and_seconds_reach_the_members_unlike_in_the_reference_system():
    # A member's forecast learns from every training of the ensemble: 3 s each here, so that waiting costs as much after
    # 3 sample-seconds. Modyn's ensembles tell their children neither samples nor seconds.
    cost = {"kind": "cost", "every": 5, "signal": "latency", "regret_per_training_second": 1.0}
    decisions = simulate(build_policy(ensemble("all", cost=cost, a=amount(5))), seconds(*range(20)), training_seconds=3.0)
    thresholds = [decision.details["members"]["cost"]["threshold"] for decision in decisions[1:]]
    assert thresholds == [3.0, 3.0, 3.0]
    assert [decision.fire for decision in decisions] == [True, True, True, True]


@st.composite
def voters(draw):
    """Members that neither measure nor care for triggers, with the rule's number of votes."""
    policies = draw(st.lists(st.one_of(st.integers(1, 9).map(amount), st.integers(2, 30).map(ticks)), min_size=1, max_size=4))
    needed = draw(st.integers(1, len(policies)))
    return {f"m{i}": policy for i, policy in enumerate(policies)}, needed


def ticks(every: int) -> dict:
    return {"kind": "time", "every": f"{every}s"}


def own_votes(policy: dict, reached: np.ndarray) -> list[tuple[int, int]]:
    """Points and keys, as indices, where a member would fire on its own; written out independently of the policies."""
    every = int(str(policy["every"]).removesuffix("s"))
    if policy["kind"] == "amount":
        return [(i, i) for i in range(every - 1, len(reached), every)]
    passed = (reached - reached[0]) // every
    return [(i, i - 1) for i in range(1, len(reached)) if passed[i] > passed[i - 1]]


@given(voters(), st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_any_number_of_votes_agrees_with_brute_force(members, offsets):
    policies, needed = members
    reached = np.maximum.accumulate(offsets)
    votes = {name: dict(own_votes(policy, reached)) for name, policy in policies.items()}
    expected: list[int] = []
    latched: dict[str, int] = {}
    last = -1
    for i in range(len(reached)):
        came = {name: keys[i] for name, keys in votes.items() if i in keys and keys[i] > last}
        latched |= {name: max(key, latched.get(name, -1)) for name, key in came.items()}
        if came and len(latched) >= needed:
            last = max(latched.values())
            expected.append(last)
            latched = {}
    assert fires(ensemble({"at_least": needed}, **policies), seconds(*offsets)) == expected
