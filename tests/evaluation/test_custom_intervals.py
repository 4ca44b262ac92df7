"""Intervals of the user's own by import path: the same as built-in ones written anew, their errors and laws."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.evaluation import Interval, anchor_of, generate_intervals
from modyn_dagster.evaluation.conformance import check_intervals
from modyn_dagster.evaluation.intervals.custom import check_interval_code
from modyn_dagster.spec.intervals import CustomIntervals
from tests.evaluation import user_intervals
from tests.evaluation.test_interval_kinds import SECONDS, SPAN, trainings

Pair = tuple[int, int]


def custom(name: str, *, follows_models: bool = False, anchor: str = "start", **config: Any) -> dict[str, Any]:
    factory = f"{user_intervals.__name__}:{name}"
    return {"kind": "custom", "factory": factory, "config": config, "follows_models": follows_models, "anchor": anchor}


@given(SPAN, SECONDS, st.sampled_from(["start", "center", "end"]))
def test_tumbling_intervals_written_anew_are_the_built_in_ones(span: Pair, every: int, anchor: str) -> None:
    own = generate_intervals(custom("tumbling", seconds=every, anchor=anchor), *span, cut=False)
    assert own == generate_intervals({"every": every, "anchor": anchor}, *span, cut=False)
    moments = (np.datetime64(span[0], "s"), np.datetime64(span[1], "s"))
    own_moments = generate_intervals(custom("tumbling", seconds=every, anchor=anchor), *moments, cut=False)
    assert own_moments == generate_intervals({"every": every, "anchor": anchor}, *moments, cut=False)


@given(SPAN, trainings())
def test_those_that_follow_models_get_their_trainings_and_others_none(span: Pair, models: list[Pair]) -> None:
    own = generate_intervals(custom("between_triggers", follows_models=True), *span, models)
    built_in = generate_intervals({"kind": "between_triggers"}, *span, models)
    assert own == [interval for interval in built_in if interval.start < interval.end]
    assert generate_intervals(custom("n_trainings"), *span, models) == []


def test_calendar_months_are_as_long_as_they_are() -> None:
    start, end = np.datetime64("2023-12-20", "us"), np.datetime64("2024-03-02", "us")
    found = generate_intervals(custom("months"), start, end)
    assert [(str(i.start)[:10], (i.end - i.start).astype("timedelta64[D]").astype(int)) for i in found] == [
        ("2023-12-01", 31),
        ("2024-01-01", 31),
        ("2024-02-01", 29),
        ("2024-03-01", 31),
    ]
    block = CustomIntervals.model_validate(custom("months", anchor="end"))
    assert anchor_of(block, found[0].start, found[0].end) == np.datetime64("2024-01-01", "us")


def test_moments_may_be_dates_and_datetimes_with_a_zone() -> None:
    span = np.datetime64("2020-01-01", "us"), np.datetime64("2020-02-01", "us")
    pair = [(date(2020, 1, 1), datetime(2020, 1, 2, 12, tzinfo=UTC))]
    [found] = generate_intervals(custom("returning", value=pair), *span)
    assert found == Interval(span[0], np.datetime64("2020-01-02T12", "us"), span[0], None)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ([(1, 1)], r"interval 0 of its function, \(1, 1\): its start must lie before its end"),
        ([(0, 5), (7, 6)], r"interval 1 of its function, \(7, 6\): its start must lie before"),
        ([(0, 5), (0, 5)], "interval 1 .*it is there twice"),
        ([(0, "5")], r"interval 0 .*must be a pair of two moments, integers \(seconds\)"),
        ([(0, 5, 9)], "must be a pair of two moments"),
        ([3], "must be a pair of two moments"),
        ([(0, 2**70)], None),
    ],
)
def test_anything_but_pairs_of_moments_is_an_error_that_names_the_interval(value: Any, rule: str | None) -> None:
    block = custom("returning", value=value)
    if rule is None:
        assert generate_intervals(block, 0, 10)[0].end == 2**70
        return
    with pytest.raises(ConfigError, match=rule) as raised:
        generate_intervals(block, 0, 10)
    assert user_intervals.__name__ in str(raised.value)


@pytest.mark.parametrize("value", [(np.datetime64("NaT", "us"), np.datetime64("2020-01-01")), (1, 2), (None, None)])
def test_moments_of_another_type_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="datetime64, datetime or date"):
        generate_intervals(custom("returning", value=[value]), np.datetime64(0, "us"), np.datetime64(9, "us"))


def test_a_function_that_fails_or_never_ends_is_an_error() -> None:
    with pytest.raises(ConfigError, match="failed: KeyError: 'no calendar'"):
        generate_intervals(custom("failing"), 0, 10)
    with pytest.raises(ConfigError, match="more than 1,000,000 intervals"):
        generate_intervals(custom("endless"), 0, 10)


@pytest.mark.parametrize(
    ("block", "error", "field"),
    [
        (custom("absent"), ImportPathError, "evaluation.intervals.factory"),
        (custom("months", weeks=3), ConfigError, "evaluation.intervals.config"),
        (
            {"kind": "custom", "factory": f"{user_intervals.__name__}:SECOND.astype"},
            ImportPathError,
            "evaluation.intervals.factory",
        ),
    ],
)
def test_check_calls_the_factory(block: dict[str, Any], error: type[ConfigError], field: str) -> None:
    spec = CustomIntervals.model_construct(**{"config": {}} | block)
    with pytest.raises(error, match=field):
        check_interval_code(spec, source="pipeline p")


@pytest.mark.parametrize(
    ("name", "config", "follows_models"),
    [
        ("months", {}, False),
        ("months", {"every": 3}, False),
        ("tumbling", {"seconds": 30 * 86_400}, False),
        ("between_triggers", {}, True),
    ],
)
def test_good_generators_obey_the_laws(name: str, config: dict[str, Any], follows_models: bool) -> None:
    for seed in range(2):
        check_intervals(getattr(user_intervals, name), config, follows_models=follows_models, seed=seed)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("cut", "stays the same"),
        ("looking_back", "stays the same|is there before it closes"),
        ("by_chance", "equal calls agree"),
        ("counted", "equal calls agree"),
    ],
)
def test_each_broken_law_is_named(name: str, law: str) -> None:
    with pytest.raises(LawBroken, match=law):
        check_intervals(getattr(user_intervals, name))


def test_a_generator_without_intervals_is_refused() -> None:
    with pytest.raises(ConfigError, match="returns no interval"):
        check_intervals(user_intervals.nothing)
