"""Decision criteria: every rule against brute force, and false alarms on scores without drift."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.triggers.decision import DriftDecisionSpec
from modyn_dagster.spec.triggers.measured import P_VALUE_TESTS
from modyn_dagster.triggering import build_policy
from modyn_dagster.triggering.criteria import Criterion, build_criterion
from modyn_dagster.triggering.drift.backends import evidently
from tests.triggering.measured import MMD, decide, drift, performance

_RULE = TypeAdapter(DriftDecisionSpec)

scores = st.lists(st.integers(-4, 4).map(lambda n: n / 4), min_size=1, max_size=40)
windows = st.integers(1, 8)
fractions = st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.9])
directions = st.sampled_from(["higher", "lower"])


def criterion(**rule) -> Criterion:
    return build_criterion(_RULE.validate_python(rule), "higher")


def fires(judge: Criterion, values: list[float | None]) -> list[bool]:
    return [judge.judge("x", value).fire for value in values]


def test_a_threshold_fires_at_or_above_its_value():
    assert fires(criterion(rule="threshold", value=0.5), [0.4, 0.5, 0.6]) == [False, True, True]


def test_a_lower_threshold_fires_at_or_below_its_value():
    assert fires(criterion(rule="threshold", value=0.5, direction="lower"), [0.4, 0.5, 0.6]) == [True, True, False]


def test_a_p_value_fires_at_or_below_alpha():
    assert fires(criterion(rule="p_value", alpha=0.05), [0.04, 0.05, 0.06]) == [True, True, False]


@given(scores, windows, fractions, directions)
def test_a_dynamic_quantile_agrees_with_numpy(values, window, quantile, direction):
    judge = criterion(rule="quantile", window=window, quantile=quantile, direction=direction)
    for index, value in enumerate(values):
        before, verdict = values[max(0, index - window) : index], judge.judge("x", value)
        if index < window:
            assert (verdict.fire, verdict.threshold) == (False, None)
        elif direction == "higher":
            assert verdict.threshold == np.quantile(before, 1 - quantile)
            assert verdict.fire == (value > verdict.threshold)
        else:
            assert verdict.threshold == np.quantile(before, quantile)
            assert verdict.fire == (value < verdict.threshold)


@given(scores, st.integers(4, 8), st.sampled_from([0.25, 0.5, 0.9]), directions)
def test_a_calibrated_quantile_fires_by_rank_and_ties_count_against_it(values, window, quantile, direction):
    judge = criterion(rule="quantile", window=window, quantile=quantile, direction=direction, calibrated=True)
    for index, value in enumerate(values):
        before, verdict = values[max(0, index - window) : index], judge.judge("x", value)
        rank = 1 + sum(old >= value if direction == "higher" else old <= value for old in before)
        assert verdict.fire == (index >= window and rank <= quantile * (window + 1))


@given(scores, windows, st.sampled_from([0.1, 0.5, 1.0]), st.booleans(), directions)
def test_a_rolling_mean_agrees_with_brute_force(values, window, deviation, relative, direction):
    judge = criterion(rule="rolling_mean", window=window, deviation=deviation, relative=relative, direction=direction)
    sign = 1 if direction == "higher" else -1
    for index, value in enumerate(values):
        verdict = judge.judge("x", value)
        if index < window:
            assert (verdict.fire, verdict.threshold) == (False, None)
            continue
        mean = np.mean(values[index - window : index])
        allowed = deviation * (abs(mean) if relative else 1)
        assert verdict.threshold == pytest.approx(mean + sign * allowed)
        if value != pytest.approx(verdict.threshold):
            assert verdict.fire == (sign * (value - mean) > allowed)


def test_a_relative_deviation_from_zero_is_any_at_all():
    judge = criterion(rule="rolling_mean", window=2, deviation=0.5, relative=True)
    assert fires(judge, [0.0, 0.0, 0.0, 0.001]) == [False, False, False, True]


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "threshold", "value": -1e9},
        {"rule": "p_value", "alpha": 0.99},
        {"rule": "quantile", "window": 2, "quantile": 0.5},
        {"rule": "rolling_mean", "window": 2, "deviation": 0.1},
    ],
    ids=lambda rule: rule["rule"],
)
def test_an_undefined_score_never_fires_and_is_not_remembered(rule, nothing):
    judge, without = criterion(**rule), criterion(**rule)
    values: list[float | None] = [0.1, 0.2, 0.3, 0.4]
    assert fires(judge, [nothing]) == [False]
    assert [one for value in values for one in fires(judge, [value, nothing])[:1]] == fires(without, values)
    assert judge.state_dict() == without.state_dict()


@given(scores, st.integers(1, 5))
def test_state_goes_through_json(values, window):
    judge, rule = None, {"rule": "quantile", "window": window, "quantile": 0.4}
    without = criterion(**rule)
    for value in values:
        restored = criterion(**rule)
        restored.load_state_dict(json.loads(json.dumps(judge.state_dict())) if judge else {})
        judge = restored
        assert judge.judge("x", value) == without.judge("x", value)


def false_alarms(window: int, quantile: float, *, calibrated: bool) -> float:
    """Share of decisions that fire on independent scores of one distribution, over windows that do not overlap."""
    n = 20_000
    judge = criterion(rule="quantile", window=window, quantile=quantile, calibrated=calibrated)
    fired = 0
    for row in rng_for(7, "false alarms", window).normal(size=(n, window + 1)).tolist():
        judge.load_state_dict({"scores": row[:-1]})
        fired += judge.judge("x", row[-1]).fire
    return fired / n


@pytest.mark.soak("laws-policies")
@pytest.mark.long
def test_the_false_alarm_rate_of_autodrift_is_about_twice_what_its_quantile_says():
    # The 0.95 quantile of 15 scores lies at 0.3 between the two largest ones, so that half of the scores which come second
    # among the 16 go beyond it, and more: not .05.
    assert false_alarms(15, 0.05, calibrated=False) == pytest.approx(0.098, abs=0.007)


@pytest.mark.parametrize(("window", "quantile", "rate"), [(19, 0.05, 0.05), (15, 0.0625, 0.0625), (15, 0.15, 0.125)])
def test_the_false_alarm_rate_of_the_calibrated_rule_is_the_whole_ranks_within_its_quantile(window, quantile, rate):
    assert false_alarms(window, quantile, calibrated=True) == pytest.approx(rate, abs=4 * np.sqrt(rate / 20_000))


@pytest.mark.parametrize(("window", "quantile"), [(15, 0.05), (18, 0.05), (3, 0.2)])
def test_a_calibrated_rule_that_could_never_fire_is_refused(window, quantile):
    with pytest.raises(ValidationError, match="could never fire"):
        criterion(rule="quantile", window=window, quantile=quantile, calibrated=True)


@pytest.mark.parametrize(("window", "quantile", "rank"), [(19, 0.05, 1), (48, 1 / 49, 1), (99, 0.29, 29), (99, 0.07, 7)])
def test_products_just_off_a_whole_number_are_that_number(window, quantile, rank):
    # 1 / 49 * 49 and 0.29 * 100 are below the whole numbers they mean, 0.07 * 100 is above.
    judge = criterion(rule="quantile", window=window, quantile=quantile, calibrated=True)
    judge.load_state_dict({"scores": list(range(window))})
    assert judge.judge("x", 1000.0).threshold == window - rank


RELATIVE = {"rule": "rolling_mean", "deviation": 0.1, "relative": True}


@pytest.mark.parametrize(
    "block",
    [
        drift(RELATIVE),
        drift(RELATIVE, metrics={"k": {"metric": "ks"}, "l": {"metric": "lsdd"}}),
        drift(RELATIVE, metrics={"e": {"metric": "energy"}}),
        drift(RELATIVE, metrics={"a": {"backend": "alibi", "metric": "mmd"}}),
        performance(RELATIVE, metric="r2"),
    ],
    ids=["mmd", "lsdd", "energy", "alibi", "r2"],
)
def test_a_share_of_the_mean_is_refused_for_metrics_that_can_be_negative(block):
    with pytest.raises(ConfigError, match=r"decision\.relative: divides by the mean, and .*can be zero or below"):
        build_policy(block)


def test_a_share_of_the_mean_is_fine_for_other_metrics():
    build_policy(drift(RELATIVE, metrics={"k": {"metric": "ks"}}))
    build_policy(performance(RELATIVE))


def test_the_default_direction_is_the_one_of_drift_and_of_worse_models():
    threshold = {"rule": "threshold", "value": 0.5}

    def fires_at(block: dict) -> list[bool]:
        return [one.fire for one in decide(block, [0.0, 0.1, 0.9])[1:]]

    assert fires_at(drift(threshold)) == [False, True]
    assert fires_at(drift(threshold, metrics={"mmd": {"metric": "ks", "reduce": "p_value"}})) == [True, False]
    for test in ({"backend": "evidently", "metric": "ks"}, {"backend": "alibi", "metric": "ks", "reduce": "p_value"}):
        assert fires_at(drift(threshold, metrics={"mmd": test})) == [True, False]
    assert fires_at(drift(threshold, metrics={"mmd": {"backend": "alibi", "metric": "ks"}})) == [False, True]
    assert fires_at(performance(threshold)) == [True, False]
    assert fires_at(performance(threshold, metric="log_loss")) == [False, True]
    assert fires_at(performance({**threshold, "direction": "higher"})) == [False, True]


def test_the_specification_knows_which_tests_of_evidently_answer_p_values():
    assert set(evidently.P_VALUES) == P_VALUE_TESTS


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"rule": "threshold", "value": 0.05}, "mmd 0.081 >= 0.05"),
        ({"rule": "threshold", "value": 0.08100001}, "mmd 0.081 < 0.08100001"),
        ({"rule": "p_value", "alpha": 0.1}, "mmd p 0.081 <= 0.1"),
        ({"rule": "quantile", "window": 2}, "mmd 0.081: 0 of 2 scores so far"),
    ],
    ids=str,
)
def test_reasons_say_what_was_compared(rule, reason):
    assert decide(drift(rule, metrics=MMD), [0.0, 0.081])[1].reason == reason


def test_the_reason_of_a_dynamic_threshold_says_where_it_comes_from():
    quantile = decide(drift({"rule": "quantile", "window": 2, "quantile": 0.5}), [0.0, 0.1, 0.3, 0.4])[3].reason
    assert quantile == "mmd 0.4 > 0.2 (quantile 0.5 of the last 2 scores)"
    mean = decide(drift({"rule": "rolling_mean", "window": 2, "deviation": 0.25}), [0.0, 0.1, 0.3, 0.4])[3].reason
    assert mean == "mmd 0.4 < 0.45 (0.25 above the mean 0.2 of the last 2)"
