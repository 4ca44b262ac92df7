"""Simulation: forms of scores, meaning of indices, and errors that name the right form."""

from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.triggering import ModelTrained, TriggeringPolicy, build_policy, simulate
from modyn_dagster.triggering.policies.amount import AmountPolicy
from tests.triggering.measured import BLOCKS, decide, drift, performance, scores_for

ABOVE_HALF = {"rule": "threshold", "value": 0.5}
TWO = {"a": {"metric": "mmd"}, "b": {"metric": "ks"}}
ONE = drift(ABOVE_HALF, every=2)


def ensemble(**policies: Any) -> dict[str, Any]:
    return {"kind": "ensemble", "policies": policies, "rule": "any"}


def test_every_decision_point_gives_one_decision_with_an_index_into_the_stream():
    made = decide(ONE, [9, 0.1, 0.9], n=7, batches=[3, 0, 4])
    assert [(one.index, one.fire, one.score, one.threshold) for one in made] == [
        (1, True, None, None),
        (3, False, 0.1, 0.5),
        (5, True, 0.9, 0.5),
    ]


def test_a_callable_gets_the_current_window_as_indices():
    windows = []

    def score(start: int, stop: int, labels: Any) -> float:
        windows.append((start, stop, labels))
        return 0.9 if start == 6 else 0.1

    block = drift(ABOVE_HALF, every=3, windows={"by": "amount", "reference": 9, "current": 4})
    made = simulate(build_policy(block), np.arange(13), scores=score, batches=[5, 8])
    assert windows == [(3, 6, None), (5, 9, None), (8, 12, None)]
    assert [one.fire for one in made] == [True, False, False, False]


def test_the_window_of_a_performance_policy_is_as_long_as_the_samples_it_judges():
    windows = []

    def score(start: int, stop: int, labels: Any) -> float:
        windows.append((start, stop, list(labels)))
        return 0.9

    made = simulate(build_policy(performance(ABOVE_HALF, every=2)), np.arange(6), [0, 1, 2, 3, 4, 5], score)
    assert windows == [(2, 4, [2, 3]), (4, 6, [4, 5])]
    assert [one.details for one in made[1:]] == [{"n_samples": 2.0}] * 2


def test_a_detector_is_given_the_samples_since_the_last_point():
    windows = []

    def count(start: int, stop: int, labels: Any) -> int:
        windows.append((start, stop))
        return 0

    simulate(build_policy({"kind": "detector", "every": 3, "detector": {"name": "ddm"}}), np.arange(10), scores=count)
    assert windows == [(3, 6), (6, 9)]


def test_several_metrics_are_given_by_name():
    expected = decide(drift(ABOVE_HALF, metrics=TWO, aggregate="all"), {"a": [0, 0.9, 0.9], "b": [0, 0.1, 0.9]}, n=3)
    assert [one.fire for one in expected] == [True, False, True]
    mixed = {"a": lambda start, stop, labels: 0.9, "b": [0, 0.1, 0.9]}

    def together(start, stop, labels):
        return {"a": 0.9, "b": 0.1 if stop == 2 else 0.9}

    for scores in (mixed, together):
        assert decide(drift(ABOVE_HALF, metrics=TWO, aggregate="all"), scores, n=3) == expected


def test_members_are_given_by_name_and_count_their_own_points():
    block = ensemble(slow=drift(ABOVE_HALF, every=4), fast=drift(ABOVE_HALF, every=2), other={"kind": "amount", "every": 6})
    made = decide(block, {"slow": [0, 0.9, 0.1], "fast": {"mmd": [0, 0.1, 0.1, 0.1, 0.1, 0.9]}}, n=12)
    assert [(one.index, one.fire) for one in made] == [(1, True), (3, False), (5, True), (7, True), (9, False), (11, True)]


def test_members_of_members_are_nested():
    inner = ensemble(x=drift(ABOVE_HALF, every=2, metrics=TWO, aggregate="any"))
    made = decide(ensemble(outer=inner), {"outer": {"x": {"a": [0, 0.1], "b": [0, 0.9]}}}, n=4)
    assert [one.fire for one in made] == [True, True]


def test_a_callable_stands_for_all_members_below_it():
    block = ensemble(one=ONE, two=ensemble(x=ONE))
    made = decide(block, {"one": [0, 0.1], "two": lambda start, stop, labels: 0.9}, n=4)
    assert made[1].fire


def test_wrappers_pass_names_and_scores_through():
    wrapped = {"kind": "cooldown", "samples": 5, "policy": ONE}
    assert [one.fire for one in decide(wrapped, [0, 0.9, 0.9, 0.9], n=8)] == [True, False, False, True]


@pytest.mark.parametrize(
    ("block", "scores", "message"),
    [
        (ONE, None, r"scores: is missing: the policy measures \(mmd\); give an array with one score for each decision point"),
        (ONE, [0.0], "scores: too short: the policy's decision point 1, counted from 0, at sample 3 needs the score of mmd"),
        (ONE, [[0.0, 1.0]], r"scores: must have shape \[n\], one score for each decision point \(found 'shape \[1, 2\]'"),
        (ONE, 0.5, r"scores: must have shape \[n\]"),
        (ONE, "high", "scores: must be an array of numbers or a callable"),
        (ONE, {"ks": [0, 1]}, "scores: needs an entry for mmd"),
        (ONE, {"mmd": [0, 1], "ks": [0, 1]}, r"scores: has entries that nothing asks for; asked for: mmd \(found \['ks'\]"),
        (ONE, lambda start, stop, labels: "high", "scores: must be a number or None"),
        (drift(ABOVE_HALF, metrics=TWO), [0, 1, 1], "scores: must be a dict with one entry for each of a, b"),
        (drift(ABOVE_HALF, metrics=TWO), lambda *_: 1.0, "scores: the callable must return a dict with a, b"),
        (drift(ABOVE_HALF, metrics=TWO), lambda *_: {"a": 1.0}, "scores: the callable's answer lacks b"),
        (ensemble(one=ONE), [0, 1], r"scores: must be a dict with an entry for member 'one'"),
        (ensemble(one=ONE), {"two": [0, 1]}, r"scores: needs an entry for member 'one' \(mmd\)"),
        (ensemble(one=ONE), {"one": None}, "scores.one: is missing"),
        (ensemble(one=ensemble(x=ONE)), {"one": [0, 1]}, "scores.one: must be a dict with an entry for member 'x'"),
        (ensemble(one=ONE), {"one": [0]}, "scores.one: too short"),
        (
            performance({"rule": "misclassifications", "value": 1, "expected_accuracy": "calibrate"}, every=2),
            [0, 1],
            "must be a dict with one entry for each of accuracy, expected_accuracy",
        ),
    ],
    ids=[
        "none",
        "too short",
        "two dimensions",
        "a number",
        "text",
        "another metric",
        "one metric too many",
        "a callable of text",
        "an array for two metrics",
        "a callable for two metrics",
        "a callable that lacks one",
        "an array for members",
        "another member",
        "none for a member",
        "an array for members of a member",
        "too short for a member",
        "no accuracy to expect",
    ],
)
def test_errors_say_which_scores_to_give(block, scores, message):
    with pytest.raises(ConfigError, match=message):
        decide(block, scores, n=4)


@pytest.mark.parametrize(
    ("times", "options", "error", "message"),
    [
        (np.zeros((2, 2), dtype=int), {}, ConfigError, r"timestamps: must have shape \[n\]"),
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), {}, ConfigError, "every sample needs a time"),
        (np.array([0.5, 1.5]), {}, TypeError, "datetime64 or whole seconds, not float64"),
        (np.arange(3), {"labels": [0, 1]}, ConfigError, "labels: must be one for each of the 3 samples"),
        (np.arange(3), {"batches": [2, 2]}, ValueError, "batches hold 4 samples, timestamps 3"),
        (np.arange(3), {"batches": [4, -1]}, ValueError, "give lengths that add up"),
    ],
    ids=["shape", "no time", "fractions", "labels", "too long", "negative"],
)
def test_impossible_streams_are_refused(times, options, error, message):
    with pytest.raises(error, match=message):
        simulate(build_policy({"kind": "amount", "every": 1}), times, **options)


def test_an_empty_stream_has_no_decisions():
    assert simulate(build_policy(ONE), np.array([], dtype=int)) == []
    assert simulate(build_policy(ONE), np.array([], dtype=int), batches=[]) == []


class Told(AmountPolicy):
    """Remembers the models reported to it."""

    def __init__(self) -> None:
        super().__init__(3)
        self.models: list[ModelTrained] = []

    def model_trained(self, trained: ModelTrained) -> None:
        self.models.append(trained)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, [0.0] * 3), (2.5, [2.5] * 3), (lambda n: 10.0 * n, [30.0] * 3)], ids=["none", "all", "by n"]
)
def test_models_are_trained_on_what_came_since_the_last_trigger(seconds, expected):
    policy = Told()
    simulate(policy, np.arange(10), training_seconds=seconds)
    assert [one.n_samples for one in policy.models] == [3, 3, 3]
    assert [one.seconds for one in policy.models] == expected
    assert [one.key for one in policy.models] == [2, 5, 8]


def test_timestamps_may_be_seconds_or_any_datetime64():
    block: dict[str, Any] = {"kind": "time", "every": "1d"}
    seconds = np.array([0, 100_000, 200_000])
    expected = simulate(build_policy(block), seconds)
    assert [one.index for one in expected] == [0, 1]
    for unit in ("s", "ms", "us", "ns"):
        assert simulate(build_policy(block), seconds.astype("datetime64[s]").astype(f"datetime64[{unit}]")) == expected
    assert simulate(build_policy(block), list(seconds)) == expected


def test_arguments_come_in_the_documented_order():
    policy: TriggeringPolicy = build_policy(performance(ABOVE_HALF, every=2))
    made = simulate(policy, np.arange(4), np.zeros(4), [0, 0.1], [1, 3], 5.0)
    assert [one.fire for one in made] == [True, True]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_used_policy_begins_anew(name: str) -> None:
    block, policy = BLOCKS[name], build_policy(BLOCKS[name])
    times = np.arange(60).astype("datetime64[D]")
    first, second = (simulate(policy, times, scores=scores_for(block, 60, seed=7), training_seconds=2.0) for _ in range(2))
    assert first
    assert second == first
