"""Budgets: examples, and records of suppressed fires."""

import json
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import Reach, SelectionSpec
from modyn_dagster.triggering import ModelTrained, build_policy, simulate
from modyn_dagster.triggering.build import pipeline_policy
from tests.triggering.laws import one_batch

WINDOW: TypeAdapter[Any] = TypeAdapter(Reach)
DECAY = {"keep": 0.1, "after": "40d"}
RTBS = {"kind": "rtbs", "n": 50, "decay": DECAY}
TRAINING = {"model": {"name": "mlp", "hidden": [4]}}
PIPELINE = {"name": "p", "dataset": "d", "training": TRAINING, "evaluation": {"intervals": {"kind": "tumbling", "every": "1d"}}}


def seconds(*values: int) -> np.ndarray:
    return np.array(values, dtype="datetime64[s]")


def amount(every: int) -> dict:
    return {"kind": "amount", "every": every}


def budget(policy: dict, **fields: object) -> dict:
    return {"kind": "budget", "policy": policy, **fields}


def fires(spec: dict, timestamps: np.ndarray, **options) -> list[int]:
    return [decision.index for decision in simulate(build_policy(spec), timestamps, **options) if decision.fire]


def test_no_more_triggers_than_the_cap_in_a_window():
    # A trigger at 0 s counts until just before 10 s.
    assert fires(budget(amount(1), per="10s", triggers=2), seconds(*range(25))) == [0, 1, 10, 11, 20, 21]


def test_a_suppressed_fire_is_recorded_with_its_reason():
    decisions = simulate(build_policy(budget(amount(1), per="1m", triggers=1)), seconds(0, 5))
    assert [decision.fire for decision in decisions] == [True, False]
    assert decisions[1].reason == (
        "suppressed by budget: 1 of 1 triggers used in the last 1m, a trigger now needs up to 1 (would fire: 1 samples)"
    )
    suppressed = json.loads(json.dumps(decisions[1].details))["suppressed"]
    assert {**suppressed, "why": ""} == {
        "by": "budget", "why": "", "cap": "triggers", "used": 1, "next": 1, "most": 1, "per": "1m"
    }  # fmt: skip


def test_score_and_threshold_of_a_suppressed_fire_stay():
    decision = simulate(build_policy(budget(amount(3), per="1m", triggers=1)), seconds(*range(6)))[1]
    assert (decision.fire, decision.index, decision.score, decision.threshold) == (False, 5, 3.0, 3.0)


def test_samples_since_the_last_trained_trigger_bound_the_next_training_set():
    # 4 + 4 samples fit; 12 do not while either counts. At 16 s 8 are left, but 8 have arrived: too many until 17 s, when
    # the first trigger (at 3 s) is 14 s old.
    spec = budget(amount(4), per="14s", samples=8)
    assert fires(spec, seconds(*range(16))) == [3, 7]
    assert fires(spec, seconds(*range(0, 160, 10))) == [3, 7, 11, 15]


def test_a_window_that_can_never_fit_says_what_to_do():
    decisions = simulate(build_policy(budget(amount(5), per="1m", samples=3)), seconds(*range(5)))
    assert "alone exceeds the cap, so set selection.limit or raise the cap" in decisions[0].reason


def test_the_selections_limit_bounds_the_next_training_set():
    policy = build_policy(budget(amount(5), per="1m", samples=3), limit=3)
    assert simulate(policy, seconds(*range(5)))[0].fire


@pytest.mark.parametrize(
    ("window", "bounds"),
    [("since_last_trigger", [4, 8]), ({"last_triggers": 2}, [4, 8]), ("run", [4, 8]), ("all", [4, 8])],
    ids=str,
)
def test_until_a_model_is_trained_every_window_grows(window, bounds):
    # Both trainings fail: no model_trained.
    policy = build_policy(budget(amount(4), per="1y", samples=10**6), window=WINDOW.validate_python(window))
    assert needed_samples(policy, 2, train=False) == bounds


@pytest.mark.parametrize(
    ("window", "bounds"),
    [("since_last_trigger", [4, 4, 4]), ({"last_triggers": 2}, [4, 8, 8]), ("run", [4, 8, 12]), ("all", [4, 8, 12])],
    ids=str,
)
def test_trained_triggers_bound_every_sort_of_window(window, bounds):
    policy = build_policy(budget(amount(4), per="1y", samples=10**6), window=WINDOW.validate_python(window))
    assert needed_samples(policy, 3, train=True) == bounds


def test_a_training_set_of_the_whole_run_leaves_out_what_came_before():
    policy: Any = build_policy(budget(amount(4), per="1y", samples=9), window="run", limit=7)
    assert policy.spending.upcoming(13, one_batch(seconds(*range(30)), origin=9)).samples == 4
    assert policy.spending.upcoming(20, one_batch(seconds(*range(30)), origin=9)).samples == 7


@pytest.mark.parametrize(
    ("selection", "reach", "most"),
    [
        ({"strategy": {"kind": "uniform", "size": 5}, "limit": 9}, "since_last_trigger", 9),
        ({"strategy": RTBS}, "run", 50),
        ({"strategy": RTBS, "limit": 9}, "run", 9),
        ({"strategy": RTBS, "window": "all"}, "all", 50),
        ({"strategy": RTBS, "warmup_triggers": 1}, "run", None),
        ({"strategy": RTBS | {"reset": "after_trigger"}}, "since_last_trigger", 50),
        ({"strategy": RTBS, "schedule": [{"from_trigger": 2, "strategy": {"kind": "gdumb", "n": 80}}]}, "run", 80),
        ({"schedule": [{"from_trigger": 2, "strategy": RTBS}]}, "run", None),
        ({"strategy": {"kind": "btbs", "decay": DECAY}}, "run", None),
        ({"strategy": {"kind": "ttbs", "decay": DECAY, "n": 50, "mean_batch_size": 50}}, "run", None),
        ({"strategy": {"kind": "mir", "n": 50, "k": 5}}, "run", None),
        ({"strategy": {"kind": "sliding_window", "span": "1d"}}, "run", None),
    ],
    ids=str,
)
def test_strategies_that_follow_the_stream_take_what_they_ever_saw(selection, reach, most):
    """Training sets of such selections are bounded by the number of samples up to the trigger."""
    found = SelectionSpec.model_validate(selection)
    assert (found.reach, found.most) == (reach, most)


def test_a_budget_expects_of_a_sample_of_the_stream_what_it_can_hold():
    """Ten samples came since the last trigger, but the sampler has 45: a cap of 20 must hold."""
    content = PIPELINE | {"selection": {"strategy": RTBS}, "trigger": budget(amount(5), per="1y", samples=20)}
    policy: Any = pipeline_policy(PipelineSpec.model_validate(content))
    stream = one_batch(seconds(*range(100)))
    for key in (14, 34):
        policy.triggered(key)
        policy.model_trained(ModelTrained(key, key + 1, 0.0))
    assert policy.spending.upcoming(44, stream).samples == 45
    assert policy.spending.upcoming(99, stream).samples == 50


def needed_samples(policy: Any, n: int, *, train: bool) -> list[int]:
    """Expected cost of the first n triggers of ``policy``, from its bill."""
    stream, cursor, found = one_batch(seconds(*range(4 * n))), ORIGIN, []
    for _ in range(n):
        cursor = policy.next_point(cursor, stream)
        decision = policy.decide(cursor)
        found.append(policy.spending.upcoming(decision.key, stream).samples)
        policy.triggered(decision.key)
        if train:
            policy.model_trained(ModelTrained(decision.key, 1, 0.0))
    return found


def test_all_counts_what_arrived_before_the_run_began():
    policy = build_policy(budget(amount(4), per="1y", samples=9), window="all")
    stream = one_batch(seconds(*range(30)), origin=9)
    assert policy.next_point(9, stream) == 13
    assert "needs up to 14" in policy.decide(13).reason


def test_actual_numbers_replace_the_bound():
    # The window holds 4 samples, but 2 of them were deleted: 2 + 4 fit a cap of 6, 4 + 4 would not.
    policy = build_policy(budget(amount(4), per="1m", samples=6))
    stream = one_batch(seconds(*range(8)))
    assert policy.next_point(ORIGIN, stream) == 3
    assert policy.decide(3).fire
    policy.triggered(3)
    policy.model_trained(ModelTrained(3, 2, 0.0))
    assert policy.next_point(3, stream) == 7
    assert policy.decide(7).fire


def test_a_failed_training_counts_with_what_was_expected_of_it():
    policy = build_policy(budget(amount(4), per="1m", samples=11))
    stream = one_batch(seconds(*range(8)))
    assert policy.next_point(ORIGIN, stream) == 3
    assert policy.decide(3).fire
    policy.triggered(3)
    # Nothing was trained: the next window holds 8.
    assert policy.next_point(3, stream) == 7
    assert "4 of 11 samples used in the last 1m, a trigger now needs up to 8" in policy.decide(7).reason


def test_triggers_by_hand_count():
    policy = build_policy(budget(amount(4), per="1m", triggers=1))
    stream = one_batch(seconds(*range(8)))
    policy.triggered(1)
    assert policy.next_point(ORIGIN, stream) == 3
    assert not policy.decide(3).fire


def test_seconds_by_the_cost_model():
    # 2 s each: the third would make 6.
    spec = budget(amount(10), per="1h", seconds=5, cost={"fixed": 1.0, "per_sample": 0.1})
    assert fires(spec, seconds(*range(40)), training_seconds=1000.0) == [9, 19]


def test_seconds_by_the_forecast_from_measured_ones():
    # Nothing is known before the first training; then one costs 3 s each time: two more fit into 9 s.
    assert fires(budget(amount(10), per="1h", seconds=9), seconds(*range(60)), training_seconds=3.0) == [9, 19, 29]


def test_the_first_cap_that_would_be_exceeded_is_named():
    decisions = simulate(build_policy(budget(amount(2), per="1h", triggers=5, samples=3)), seconds(*range(4)))
    assert "2 of 3 samples" in decisions[1].reason


def test_a_suppressed_policy_is_not_told_of_a_trigger():
    # The cost policy's regret goes on growing while its fires are suppressed.
    cost = {
        "kind": "cost", "every": 2, "signal": "latency", "regret_per_training_second": 1.0, "seconds": {"fixed": 1.0}
    }  # fmt: skip
    decisions = simulate(build_policy(budget(cost, per="1h", triggers=1)), seconds(*range(8)))
    scores = [decision.score or 0.0 for decision in decisions[1:]]
    assert scores == sorted(scores)
    assert len(set(scores)) == 3


@pytest.mark.parametrize(
    "fields",
    [{}, {"triggers": 0}, {"samples": -1}, {"seconds": 0}, {"per": "10", "triggers": 1}],
    ids=["caps nothing", "no trigger", "negative", "no second", "no unit"],
)
def test_impossible_budgets_are_refused(fields):
    with pytest.raises(ConfigError):
        build_policy(budget(amount(1), **{"per": "1d", **fields}))
