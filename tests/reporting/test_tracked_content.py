"""Names, parameters and tags stay within MLflow's limits."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mlflow.entities import Param

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.content import flatten
from modyn_dagster.reporting.mlflow.stream_time import StreamTime, interval_table, interval_tags, milliseconds
from modyn_dagster.spec.intervals import TumblingIntervals
from tests.examples import examples
from tests.reporting.story import year

# Postgres has no NUL in text, so a spec has none either.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NAMES = TEXT | st.sampled_from(["/", "..", "a/../b", "n" * 300])
SETTINGS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.just("long " * 2000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(tree=st.dictionaries(NAMES, SETTINGS, max_size=4))
def test_mlflow_takes_every_setting_as_it_is(mlflow_uri: str, tree: dict[str, Any]) -> None:
    client, flat = open_client(mlflow_uri), flatten(tree)
    run_id = client.create_run("0").info.run_id
    client.log_batch(run_id, params=[Param(name, value) for name, value in flat.items()])
    assert client.get_run(run_id).data.params == flat


def test_settings_keep_their_names_and_values() -> None:
    tree = {"a": {"b": {"c": 1}, "d": "text"}, "e": [1, "x"], "f": None, "g": True, "h": {}, "i(j)": 0.5}
    flat = flatten(tree)
    assert flat == {"a.b.c": "1", "a.d": "text", "e": '[1, "x"]', "f": "null", "g": "true", "h": "{}", "i_j_": "0.5"}
    assert json.loads(flat["e"]) == [1, "x"]


MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9990, 1, 1), timezones=st.just(UTC))


@given(first=MOMENTS, later=st.timedeltas(min_value=timedelta(), max_value=timedelta(days=3650)))
def test_timestamps_are_never_negative_and_keep_day_and_time(first: datetime, later: timedelta) -> None:
    time = StreamTime.beginning(first)
    assert time.timestamp(first) >= 0
    assert time.timestamp(first + later) - time.timestamp(first) == milliseconds(first + later) - milliseconds(first)
    if first.year < 9000:
        shown = datetime.fromtimestamp(time.timestamp(first) // 1000, UTC)
        assert (shown.year - first.year, shown.timetuple()[1:7]) == (400 * time.cycles, first.timetuple()[1:7])
        assert time.cycles == 0 or first.year < 1970


@given(first=MOMENTS, seconds=st.integers(32, 10 * 366 * 86_400), n=st.integers(2, 30))
def test_steps_grow_with_time_and_regular_intervals_have_steps_of_their_own(first: datetime, seconds: int, n: int) -> None:
    assume(first.year < 9600)
    time = StreamTime.beginning(first, TumblingIntervals(every=seconds))
    steps = [time.step(first + i * timedelta(seconds=seconds)) for i in range(n)]
    assert steps == sorted(set(steps))
    assert abs(steps[0] / time.scale - first.year) <= 1


def test_steps_are_years_where_intervals_are_longer_than_a_year() -> None:
    time = StreamTime.beginning(year(0), TumblingIntervals(every="5y"))
    assert [time.step(year(5 * n)) for n in range(25)] == [1900 + 5 * n for n in range(25)]
    assert StreamTime.beginning(year(0), TumblingIntervals(every="1y")).step(year(0.5)) == 1900_500
    assert StreamTime.beginning(year(0), TumblingIntervals(every="1h")).step(year(0)) == 1900_000_000


def test_milliseconds_round_down_on_both_sides_of_1970() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = [-1001, -1000, -1, 0, 1, 999, 1000]
    assert [milliseconds(epoch + timedelta(microseconds=n)) for n in microseconds] == [-2, -1, -1, 0, 0, 0, 1]


def test_every_step_has_its_interval() -> None:
    intervals = [(year(0), year(1)), (year(3), year(4))]
    assert interval_table(intervals, StreamTime()) == [
        {"step": 1900_000, "start": year(0).isoformat(), "end": year(1).isoformat()},
        {"step": 1903_000, "start": year(3).isoformat(), "end": year(4).isoformat()},
    ]
    assert interval_tags(intervals)["modyn/time_shift"] == "400 years later"
    assert "modyn/time_shift" not in interval_tags([(year(80), year(81))])
