"""Drift metrics of the user's own by import path: their numbers, p-values, errors and laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.spec.triggers.measured import DriftTriggerSpec
from modyn_dagster.triggering.conformance import check_metric
from modyn_dagster.triggering.user_code import user_code_errors
from tests.examples import examples
from tests.triggering import user_metrics
from tests.triggering.drift.drifting import measured, normal, score, statistic


def custom(name: str, permutations: int = 20, **config: Any) -> dict[str, Any]:
    return {
        "metric": "custom",
        "factory": f"{user_metrics.__name__}:{name}",
        "config": config,
        "permutations": permutations,
    }


ENERGY = {"metric": "energy", "permutations": 20}


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 999), st.integers(2, 15), st.integers(2, 15), st.sampled_from([0.0, 1.0]))
def test_a_metric_written_anew_has_statistic_and_p_value_of_the_built_in_one(seed: int, n: int, m: int, shift: float) -> None:
    windows = normal(seed, n, m, 3, shift=shift)
    own, built_in = (statistic(spec, *windows, p_values=True) for spec in (custom("energy"), ENERGY))
    assert own["statistic"] == pytest.approx(built_in["statistic"], abs=1e-9)
    assert own["p_value"] == built_in["p_value"]


def test_random_numbers_belong_to_seed_and_point() -> None:
    windows = normal(0, 20, 20, 2)
    first = score(custom("drawn"), *windows)
    assert score(custom("drawn"), *windows) == first
    assert score(custom("drawn"), *windows, seed=2) != first
    assert score(custom("drawn"), *windows, ordinal=1) != first


@pytest.mark.parametrize("name", ["nothing", "not_a_number", "infinite", "dividing"])
def test_a_distance_that_is_no_finite_number_is_undefined_with_its_reason(name: str) -> None:
    for p_values in (False, True):
        found = measured(custom(name), *normal(0, 5, 5, 2), p_values=p_values)
        assert found.values == {"it": None}
        assert found.details["statistics"]["it"]["why"]


@pytest.mark.parametrize("value", ["far", True, [1.0]], ids=repr)
def test_anything_but_a_number_is_an_error_that_names_the_metric(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"must return a number, not .*user_metrics:returning"):
        score(custom("returning", value=value), *normal(0, 5, 5, 2))


def test_a_function_that_fails_is_named_with_the_windows_and_its_error() -> None:
    with pytest.raises(ConfigError, match=r"failed on windows float64\[5, 2\] and float64\[4, 2\]: KeyError: 'no such column'"):
        score(custom("failing"), *normal(0, 5, 4, 2))


def test_a_function_cannot_change_the_windows_of_the_other_metrics() -> None:
    reference, current = normal(0, 5, 4, 2)
    before = reference.copy()
    with pytest.raises(ConfigError, match="read-only"):
        score(custom("scaling"), reference, current)
    assert np.array_equal(reference, before)
    reference += 1


def block(metric: dict[str, Any]) -> DriftTriggerSpec:
    windows = {"by": "amount", "reference": 10, "current": 10}
    decision = {"rule": "threshold", "value": 1.0}
    content = {"kind": "drift", "every": 10, "windows": windows, "metrics": {"own": metric}, "decision": decision}
    return DriftTriggerSpec.model_validate(content)


@pytest.mark.parametrize(
    ("metric", "field", "rule"),
    [
        (custom("nowhere"), "factory", "nowhere"),
        (custom("energy", power=2), "config", "refused it: TypeError"),
        (custom("no_function"), "factory", "must return a function of two windows and a generator, not str"),
    ],
    ids=["no such name", "config", "no function"],
)
def test_a_check_names_the_field_before_anything_runs(metric: dict[str, Any], field: str, rule: str) -> None:
    [error] = user_code_errors(block(metric), source="pipeline shop")
    assert isinstance(error, ConfigError)
    assert (error.source, error.field) == ("pipeline shop", f"trigger.metrics.own.{field}")
    assert rule in str(error)
    if field == "factory":
        assert isinstance(error, ImportPathError)


@pytest.mark.parametrize("name", ["energy", "drawn"])
def test_metrics_that_obey_the_laws_pass(name: str) -> None:
    check_metric(getattr(user_metrics, name))


@pytest.mark.parametrize(
    ("name", "config", "law"),
    [
        ("counting", {}, "equal seeds agree"),
        ("drawing", {"library": "random"}, "no global random state is used"),
        ("drawing", {"library": "numpy"}, "no global random state is used"),
        ("drawing", {"library": "torch"}, "no global random state is used"),
        ("scaling", {}, "the windows are not changed"),
        ("closeness", {}, "the distance grows with drift"),
        ("returning", {}, "the distance grows with drift"),
    ],
)
def test_metrics_that_break_a_law_are_told_which(name: str, config: dict[str, Any], law: str) -> None:
    with pytest.raises(LawBroken, match=law):
        check_metric(getattr(user_metrics, name), config)


def test_a_metric_that_fails_or_never_has_a_distance_is_no_metric() -> None:
    with pytest.raises(ConfigError, match="no such column"):
        check_metric(user_metrics.failing)
    with pytest.raises(ConfigError, match="undefined for all windows"):
        check_metric(user_metrics.nothing)
