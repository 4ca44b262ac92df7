"""Performance policies: evaluated windows, avoidable misclassifications, forecasts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyRange
from modyn_dagster.triggering import Measured, ModelTrained, PerformanceNeed, TriggeringPolicy, build_policy, simulate
from modyn_dagster.triggering.policies.forecasts import next_by_ridge, ridge
from tests.triggering.laws import one_batch
from tests.triggering.measured import decide, need_of, performance, point_of

BELOW_HALF = {"rule": "threshold", "value": 0.5}
STREAM = one_batch(np.arange(100).astype("datetime64[s]"))
accuracies = st.lists(st.integers(0, 10).map(lambda n: n / 10), min_size=1, max_size=30)


def after_triggers(block: dict[str, Any], *keys: int, window: Any = "since_last_trigger") -> TriggeringPolicy:
    """A policy after triggers that were all trained."""
    policy = build_policy(block, window=window)
    for key in keys:
        policy.triggered(key)
        policy.model_trained(ModelTrained(key, 1, 1.0))
    return policy


def needs_of(policy: TriggeringPolicy) -> PerformanceNeed:
    return need_of(policy, point_of(policy, -1, STREAM), PerformanceNeed)


def test_the_model_is_judged_on_what_came_since_the_last_point():
    policy = after_triggers(performance(BELOW_HALF, every=10, metric="f1"), 3)
    first = needs_of(policy)
    policy.decide(9, {"": Measured({"f1": 0.9, "n_samples": 6})})
    assert first == PerformanceNeed(0, KeyRange(3, 9), "f1")
    assert needs_of(policy) == PerformanceNeed(1, KeyRange(9, 19), "f1")


def test_nothing_that_was_trained_on_is_judged():
    policy = after_triggers(performance(BELOW_HALF, every=10), 3)
    policy.next_point(-1, STREAM)
    policy.decide(9, {"": Measured({"accuracy": 0.9, "n_samples": 6})})
    policy.triggered(14)
    assert needs_of(policy).window == KeyRange(14, 19)


def test_the_score_fires_when_it_is_low():
    made = decide(performance(BELOW_HALF, every=2), [0.0, 0.8, 0.5, 0.6], n=8)
    assert [(one.index, one.fire) for one in made] == [(1, True), (3, False), (5, True), (7, False)]
    assert [one.reason for one in made[1:3]] == ["accuracy 0.8 > 0.5", "accuracy 0.5 <= 0.5"]
    assert made[1].details == {"n_samples": 2.0}


def test_an_undefined_score_does_not_fire_and_says_so():
    made = decide(performance(BELOW_HALF), [0.0, np.nan, 0.1])
    assert [one.fire for one in made] == [True, False, True]
    assert made[1].reason == "accuracy is undefined here (1 samples judged)"


LIMIT = {"rule": "misclassifications", "value": 10, "expected_accuracy": 0.9}


@given(accuracies, st.booleans(), st.sampled_from([0.5, 0.9, 1.0]), st.integers(1, 30))
def test_avoidable_misclassifications_agree_with_brute_force(scores, reduction, expected, value):
    block = performance(
        {"rule": "misclassifications", "value": value, "expected_accuracy": expected, "allow_reduction": reduction}, every=10
    )
    made = decide(block, scores, n=10 * len(scores))
    # In tenths of a sample, so that sums are exact.
    total = 0
    for ordinal, (one, accuracy) in enumerate(zip(made, scores, strict=True)):
        if ordinal:
            wrong = 100 - round(100 * accuracy)
            avoidable = wrong - (100 - round(100 * expected))
            total += avoidable if reduction else max(0, avoidable)
            assert (one.fire, one.threshold) == (total >= 10 * value, value)
            assert one.score == pytest.approx(total / 10)
        total = 0 if one.fire else total


def test_the_avoidable_ones_are_counted_from_the_trigger_on():
    policy = after_triggers(performance(LIMIT, every=20), 0)
    fired = []
    for made in (False, False, True, False):
        point = point_of(policy, -1, STREAM)
        fired.append(policy.decide(point, {"": Measured({"accuracy": 0.6, "n_samples": 20})}).score)
        if made:
            policy.triggered(point)
    # A fire that was suppressed, the second, does not begin a new count.
    assert fired == [6, 12, 18, 6]


CALIBRATED = {**LIMIT, "expected_accuracy": "calibrate"}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("since_last_trigger", KeyRange(15, 18)),
        ({"last_triggers": 2}, KeyRange(11, 18)),
        ({"last_triggers": 9}, KeyRange(-1, 18)),
        ("run", KeyRange(-1, 18)),
        ("all", KeyRange(-1, 18)),
    ],
    ids=str,
)
def test_the_accuracy_to_expect_is_measured_on_the_last_training_window(window, expected):
    from modyn_dagster.spec.selection import LastTriggers

    chosen = window if isinstance(window, str) else LastTriggers(**window)
    policy = after_triggers(performance(CALIBRATED, every=20), 5, 11, 15, 18, window=chosen)
    assert needs_of(policy).calibrate == expected


def test_a_trigger_that_was_not_trained_is_not_calibrated_on():
    policy = after_triggers(performance(CALIBRATED, every=20), 5, 11)
    policy.triggered(15)
    assert needs_of(policy) == PerformanceNeed(0, KeyRange(15, 19), "accuracy", calibrate=KeyRange(5, 11))


def test_only_what_calibrates_asks_for_the_last_training_window():
    assert needs_of(after_triggers(performance(LIMIT, every=20), 5)).calibrate is None
    label_free = needs_of(after_triggers(performance(BELOW_HALF, every=20, label_free=True), 5))
    assert (label_free.label_free, label_free.calibrate, label_free.interval) == (True, KeyRange(-1, 5), None)
    careful = needs_of(after_triggers(performance(BELOW_HALF, every=20, metric="f1", label_free=True, interval=0.9), 5))
    assert (careful.metric, careful.interval) == ("f1", 0.9)


def test_the_measured_accuracy_to_expect_counts():
    made = decide(performance(CALIBRATED, every=20), {"accuracy": [0, 0.5, 0.5], "expected_accuracy": [0, 0.6, 1.0]}, n=60)
    assert [one.score for one in made] == [None, 2.0, 12.0]
    assert made[2].reason == "avoidable misclassifications 12 >= 10"


def test_without_an_accuracy_to_expect_nothing_fires_and_nothing_is_counted():
    made = decide(performance(CALIBRATED, every=20), {"accuracy": [0, 0.1, 0.5], "expected_accuracy": [0, None, 0.6]}, n=60)
    assert [(one.fire, one.score) for one in made[1:]] == [(False, None), (False, 2.0)]
    assert made[1].reason == "the accuracy to expect could not be measured"


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.01, 10))
def test_ridge_agrees_with_scikit_learn(values, alpha):
    x = np.arange(len(values))
    model = Ridge(alpha=alpha).fit(x[:, None], values)
    slope, intercept = ridge(x, values, alpha)
    assert [slope, intercept] == pytest.approx([model.coef_[0], model.intercept_], abs=1e-8)
    assert next_by_ridge(values) == pytest.approx(Ridge().fit(x[:, None], values).predict([[len(values)]])[0], abs=1e-8)


@given(accuracies, st.sampled_from(["ridge", "rolling_mean"]), st.integers(1, 6))
def test_a_forecast_is_made_from_the_last_scores_of_the_newest_model(scores, method, window):
    made = decide(performance(BELOW_HALF, forecast={"method": method, "window": window}), scores)
    seen: list[float] = []
    for one, score in zip(made[1:], scores[1:], strict=True):
        seen = [*seen, score][-window:]
        if method == "ridge":
            expected = np.clip(Ridge().fit(np.arange(len(seen))[:, None], seen).predict([[len(seen)]])[0], 0, 1)
        else:
            expected = np.mean(seen)
        assert one.score == pytest.approx(expected)
        assert one.details["measured"] == score
        if one.fire:
            seen = []


def test_a_forecast_stays_within_what_the_metric_can_be():
    falling = [0.9, 0.6, 0.3, 0.05]
    last = decide(performance({"rule": "threshold", "value": -1.0}, forecast={"method": "ridge"}), [0, *falling])[-1]
    assert last.score == 0.0
    free = performance({"rule": "threshold", "value": -100.0}, forecast={"method": "ridge"}, metric="r2")
    lowest = decide(free, [0, *(10 * score - 9 for score in falling)])[-1].score
    assert lowest is not None
    assert lowest < -9


def test_a_forecast_counts_the_misclassifications_of_the_next_stretch_in():
    block = performance(LIMIT, every=20, forecast={"method": "rolling_mean", "window": 3})
    made = decide(block, [0, 0.6, 0.8], n=60)
    # 6 and as many expected; then, after the trigger, 2 and 2.
    assert [(one.score, one.fire) for one in made[1:]] == [(12.0, True), (4.0, False)]
    assert made[1].reason == "avoidable misclassifications by the next point 12 >= 10"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"metric": "mae", "label_free": True},
            "label_free: accuracy, f1, log_loss and roc_auc can be estimated without labels, not mae",
        ),
        ({"interval": 0.95}, "interval: is that of an estimate, which needs `label_free: true`"),
        ({"metric": "mae", "decision": LIMIT}, "decision: misclassifications are counted from the metric accuracy"),
        ({"metric": "acuracy"}, "metric"),
    ],
    ids=str,
)
def test_impossible_blocks_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        build_policy({**performance(BELOW_HALF), **fields})


def test_labels_and_the_window_reach_a_callable():
    labels = np.arange(12) % 3

    def score(start: int, stop: int, window: Any) -> float:
        assert (stop - start, list(window)) == (4, [n % 3 for n in range(start, stop)])
        return 1 - start / 10

    made = simulate(build_policy(performance(BELOW_HALF, every=4)), np.arange(12), labels, score)
    assert [(one.score, one.fire) for one in made] == [(None, True), (0.6, False), (pytest.approx(0.2), True)]


def test_samples_whose_labels_are_not_known_yet_are_judged_at_a_later_point():
    block = performance(BELOW_HALF, every=10) | {"min_coverage": 0.6}
    policy = after_triggers(block, 3)
    assert needs_of(policy).window == KeyRange(3, 9)
    waiting = policy.decide(9, {"": Measured({"accuracy": 0.1, "n_samples": 2, "label_coverage": 0.25})})
    assert not waiting.fire
    assert waiting.reason == "labels of 25.0% of the samples are known, below min_coverage 60.0%"
    # A policy that is stopped here goes on waiting.
    restored = build_policy(block)
    restored.load_state_dict(policy.state_dict())
    assert needs_of(restored).window == KeyRange(3, 19)
    judged = restored.decide(19, {"": Measured({"accuracy": 0.1, "n_samples": 12, "label_coverage": 0.75})})
    assert judged.fire
    assert needs_of(restored).window == KeyRange(19, 29)


def test_a_trigger_ends_the_wait_for_labels():
    policy = after_triggers(performance(BELOW_HALF, every=10) | {"min_coverage": 0.6}, 3)
    needs_of(policy)
    policy.decide(9, {"": Measured({"accuracy": 0.1, "n_samples": 2, "label_coverage": 0.25})})
    policy.triggered(12)
    assert needs_of(policy).window == KeyRange(12, 19)


def test_without_a_measured_coverage_every_sample_has_its_label():
    made = decide(performance(BELOW_HALF, every=2) | {"min_coverage": 1.0}, [0.0, 0.8, 0.4], n=6)
    assert [one.fire for one in made] == [True, False, True]
    assert made[1].details == {"n_samples": 2.0, "label_coverage": 1.0}


@given(
    gaps=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    every=st.integers(1, 5),
    maturity=st.integers(1, 9),
    least=st.sampled_from([0, 0.5]),
    data=st.data(),
)
def test_every_sample_is_judged_once_it_and_all_before_it_are_mature(
    gaps: list[int], every: int, maturity: int, least: float, data: st.DataObject
):
    times = np.cumsum(gaps)
    # Late samples: a sample is as old as the running time says.
    arrived = np.maximum.accumulate(data.draw(st.permutations(times.tolist())))
    stream = one_batch(arrived.astype("datetime64[s]"))
    policy = build_policy(performance(BELOW_HALF, every=every) | {"maturity": f"{maturity}s", "min_coverage": least})
    point, judged, trained = -1, [], -1
    while (found := policy.next_point(point, stream)) is not None:
        point = found
        needs = policy.needs(point)
        mature = [key for key in range(trained + 1, point + 1) if arrived[point] - arrived[key] >= maturity]
        new = [key for key in mature if key not in judged]
        measured = {}
        coverage = data.draw(st.sampled_from([0.25, 1.0]))
        for path, need in needs.items():
            assert isinstance(need, PerformanceNeed)
            assert list(range(need.window.after + 1, need.window.until + 1)) == new
            measured[path] = Measured({"accuracy": data.draw(accuracies)[0], "n_samples": len(new), "label_coverage": coverage})
        assert bool(needs) == bool(new and trained >= 0)
        decision = policy.decide(point, measured)
        restored = build_policy(performance(BELOW_HALF, every=every) | {"maturity": f"{maturity}s", "min_coverage": least})
        restored.load_state_dict(policy.state_dict())
        policy = restored
        if trained >= 0:
            # No sample is skipped: the young ones are counted.
            assert decision.details["n_immature"] == point - trained - len(mature)
            if coverage >= least:
                judged += new
        if decision.fire:
            policy.triggered(point)
            policy.model_trained(ModelTrained(point, 1, 1.0))
            trained, judged = point, []


def test_without_mature_samples_the_policy_waits_and_says_how_many_are_younger():
    policy = after_triggers(performance(BELOW_HALF, every=10) | {"maturity": "15s"}, 3)
    assert policy.needs(point_of(policy, -1, STREAM)) == {}
    waiting = policy.decide(9)
    assert (waiting.fire, waiting.reason) == (False, "no new sample is 15s old, 6 are younger")
    assert needs_of(policy) == PerformanceNeed(1, KeyRange(3, 4), "accuracy", maturity="15s")


def test_estimates_judge_all_samples_and_are_calibrated_on_mature_ones():
    block = performance(BELOW_HALF, every=10) | {"maturity": "15s", "label_free": True}
    policy = after_triggers(block, 3)
    assert needs_of(policy) == PerformanceNeed(0, KeyRange(3, 9), "accuracy", True, KeyRange(-1, 3), maturity="15s")
