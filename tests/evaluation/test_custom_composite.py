"""Composite models of the user's own by import path: built-in ones written anew, their errors and laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.evaluation import currently_active, currently_trained
from modyn_dagster.evaluation.composite.custom import check_composite_code, currently_chosen
from modyn_dagster.evaluation.conformance import check_composite
from modyn_dagster.spec.evaluation import CompositeSpec
from tests.evaluation import user_composites

ENDS = np.array([10, 20, 30], dtype="datetime64[us]")
ANCHORS = np.array([5, 15, 40], dtype="datetime64[us]")


def own(name: str, **config: Any) -> CompositeSpec:
    return CompositeSpec(name="own", factory=f"{user_composites.__name__}:{name}", config=config)


@given(st.lists(st.integers(0, 50), max_size=8).map(sorted), st.lists(st.integers(-5, 60), max_size=8))
def test_built_in_composites_written_anew_choose_the_same(ends: list[int], anchors: list[int]) -> None:
    times, at = np.array(ends, dtype="datetime64[us]"), np.array(anchors, dtype="datetime64[us]")
    assert currently_chosen(own("active"), times, at).tolist() == currently_active(times, at).tolist()
    assert currently_chosen(own("trained"), times, at).tolist() == currently_trained(times, at).tolist()


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ([0, 1], r"must return an index per interval, int\[3\], not int64\[2\]"),
        ([0.0, 1.0, 2.0], r"not float64\[3\]"),
        (None, "must return an index per interval"),
        ([0, 3, 0], "chose model 3 for interval 1; there are 3, from 0 on, and -1 for none"),
        ([0, 0, -2], "chose model -2 for interval 2"),
    ],
)
def test_anything_but_an_index_of_a_model_per_interval_is_an_error(value: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as raised:
        currently_chosen(own("returning", value=value), ENDS, ANCHORS)
    assert f"{user_composites.__name__}:returning" in str(raised.value)


@pytest.mark.parametrize(("name", "rule"), [("failing", "failed: KeyError"), ("writing", "read-only")])
def test_a_function_that_fails_or_writes_is_an_error(name: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        currently_chosen(own(name), ENDS, ANCHORS)


def test_check_calls_the_factory() -> None:
    with pytest.raises(ImportPathError, match=r"evaluation\.composite\.factory"):
        check_composite_code(own("absent"), source="pipeline p")
    with pytest.raises(ConfigError, match=r"evaluation\.composite\.config"):
        check_composite_code(own("active", days=3), source="pipeline p")
    with pytest.raises(ImportPathError, match="must return a function"):
        check_composite_code(CompositeSpec(name="own", factory=f"{__name__}:own", config={"name": "active"}), source="pipeline p")
    check_composite_code(None, source="pipeline p")


@pytest.mark.parametrize("name", ["active", "trained", "served"])
def test_names_of_other_composites_are_taken(name: str) -> None:
    with pytest.raises(ValidationError, match="must not be one of active, trained, served"):
        CompositeSpec(name=name, factory=f"{user_composites.__name__}:active")


@pytest.mark.parametrize("name", ["active", "trained", "before_last"])
def test_good_composites_obey_the_laws(name: str) -> None:
    for seed in range(3):
        check_composite(getattr(user_composites, name), seed=seed)


@pytest.mark.parametrize(
    ("name", "law"), [("by_chance", "equal calls agree"), ("counted", "equal calls agree"), ("in_turn", "its own anchor alone")]
)
def test_each_broken_law_is_named(name: str, law: str) -> None:
    with pytest.raises(LawBroken, match=law):
        check_composite(getattr(user_composites, name))
