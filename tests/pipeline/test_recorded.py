"""Measurements as rows: plain values, and names of what was asked for."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.measurement_rows import json_measurement, needs_digest
from modyn_dagster.spec.triggers.detector import AdwinSpec
from modyn_dagster.spec.triggers.drift import FeaturesSpec, MMDMetric
from modyn_dagster.triggering import DetectorNeed, DriftNeed, Measured, PerformanceNeed
from modyn_dagster.triggering.measurement import Need
from modyn_dagster.values.json_values import json_number, json_values_of

DRIFT = DriftNeed(3, KeyRange(-1, 5), KeyRange(5, 9), {"mmd": MMDMetric(metric="mmd")}, FeaturesSpec(of="columns"))
OTHERS: list[Need] = [
    replace(DRIFT, ordinal=4),
    replace(DRIFT, reference=KeyRange(-1, 4)),
    replace(DRIFT, current=KeyRange(5, 10)),
    replace(DRIFT, metrics={"mmd": MMDMetric(metric="mmd", block=7)}),
    replace(DRIFT, features=FeaturesSpec(of="outputs")),
    replace(DRIFT, p_values=True),
    PerformanceNeed(3, KeyRange(5, 9), "accuracy"),
    PerformanceNeed(3, KeyRange(5, 9), "accuracy", calibrate=KeyRange(-1, 5)),
    DetectorNeed(3, KeyRange(5, 9), 7, AdwinSpec(name="adwin")),
    DetectorNeed(3, KeyRange(5, 9), 7, AdwinSpec(name="adwin"), "scores"),
]


def test_equal_needs_have_equal_names_and_others_have_others():
    same = DriftNeed(3, KeyRange(-1, 5), KeyRange(5, 9), {"mmd": MMDMetric(metric="mmd")}, FeaturesSpec(of="columns"))
    assert needs_digest({"": DRIFT}) == needs_digest({"": same})
    names = [needs_digest({"": need}) for need in (DRIFT, *OTHERS)]
    assert len(set(names)) == len(names)
    assert needs_digest({"a": DRIFT}) != needs_digest({"": DRIFT})
    assert needs_digest({"a": DRIFT, "b": OTHERS[0]}) == needs_digest({"b": OTHERS[0], "a": DRIFT})


def test_a_need_of_something_without_a_json_form_is_refused():
    with pytest.raises(TypeError, match="a need holds a object"):
        needs_digest({"": replace(DRIFT, metrics={"x": object()})})  # type: ignore[dict-item]  # what is to be refused


@given(st.floats())
def test_a_number_survives_json_to_the_last_bit_or_is_none(value):
    plain = json_number(value)
    assert (plain is None) is not math.isfinite(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_details_of_any_kind_become_json():
    details: dict[Any, Any] = {
        "a": np.float32(0.5),
        "b": np.arange(2),
        3: (1, float("inf")),
        "c": np.bool_(True),
        "d": KeyRange(1, 2),
    }
    plain = json_values_of(details)
    assert plain == {"a": 0.5, "b": [0, 1], "3": [1, None], "c": True, "d": "KeyRange(after=1, until=2)"}
    json.dumps(plain, allow_nan=False)
    [found] = json_measurement({"": Measured({"x": float("nan")}, details)}).values()
    assert (found.values, found.details) == ({"x": None}, plain)
