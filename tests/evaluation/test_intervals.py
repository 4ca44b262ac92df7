from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import Interval, closed_intervals, generate_intervals
from modyn_dagster.spec.intervals import TumblingIntervals

DAY = 86_400


def day(text: str) -> np.datetime64:
    return np.datetime64(text, "us")


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6), st.integers(5_000, 10**5))
def test_tumbling_intervals_cover_every_time_once_from_start_to_end(start: int, length: int, every: int) -> None:
    found = generate_intervals({"kind": "tumbling", "every": f"{every}s"}, start, start + length)
    edges = [start, *(i.end for i in found)]
    assert [i.start for i in found] == edges[:-1]
    assert edges[-1] == start + length
    assert all(i.end - i.start == every for i in found[:-1])
    assert all(0 < i.end - i.start <= every for i in found)
    assert all(i.anchor == i.start and i.model is None for i in found)


@given(st.integers(0, 10**6), st.integers(-(10**6), 2 * 10**6), st.integers(1, 10**6), st.integers(10_000, 10**6))
def test_with_a_start_every_time_from_it_on_lies_in_the_interval_of_the_grid(
    first: int, origin: int, length: int, every: int
) -> None:
    start = datetime.fromtimestamp(origin, UTC)
    found = generate_intervals({"every": f"{every}s", "start": start}, first, first + length)
    for time in {first, first + length // 2, first + length - 1}:
        holding = [i for i in found if i.start <= time < i.end]
        if time < origin:
            assert holding == []
        else:
            assert [i.start for i in holding] == [origin + (time - origin) // every * every]
    assert all(i.end > first for i in found)


def test_datetimes_and_seconds_give_the_same_intervals() -> None:
    spec = {"kind": "tumbling", "every": "20y"}
    times = generate_intervals(spec, day("1900-07-01"), day("2024-07-01") + np.timedelta64(1, "us"))
    seconds = generate_intervals(
        spec, int(day("1900-07-01").astype(int)) // 10**6, int(day("2024-07-01").astype(int)) // 10**6 + 1
    )
    assert len(times) == len(seconds) == 7
    assert [i.start.astype("datetime64[s]").astype(int) for i in times] == [i.start for i in seconds]
    assert times[0] == Interval(day("1900-07-01"), day("1900-07-01") + np.timedelta64(20 * 365, "D"), day("1900-07-01"))
    assert times[-1].end == day("2024-07-01") + np.timedelta64(1, "us")


@pytest.mark.parametrize(
    "start",
    [date(2020, 1, 1), datetime(2020, 1, 1), "2020-01-01", datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))],
)
def test_a_start_is_utc_unless_it_names_a_zone(start: object) -> None:
    found = generate_intervals({"every": "1d", "start": start}, day("2020-01-02T06:00"), day("2020-01-03T06:00"))
    assert [i.start for i in found] == [day("2020-01-02"), day("2020-01-03")]


def test_a_parsed_spec_is_taken_too() -> None:
    assert generate_intervals(TumblingIntervals(every="1d"), 0, 2 * DAY) == generate_intervals({"every": "1d"}, 0, 2 * DAY)


def test_without_time_there_are_no_intervals() -> None:
    assert generate_intervals({"every": "1d"}, 5, 5) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"kind": "sliding_window", "every": "1d"},
            "kind: must be one of tumbling, sliding, periodic, .*, offsets",
        ),
        ({"kind": "sliding", "every": "1d"}, "length: .*[Rr]equired"),
        ({"kind": "sliding", "every": "0d", "length": "1d"}, "every: .*whole number and a unit"),
        ({"every": 0}, "every: "),
        ({"every": True}, "every: "),
        ({"every": "1d", "anchor": "middle"}, "anchor: .*start.*center.*end"),
        ({"kind": "periodic", "every": "1d", "before": 0, "after": 0}, ".*before and after must not both be 0"),
        ({"kind": "fixed", "intervals": []}, "intervals: "),
        ({"kind": "fixed", "intervals": [[3, 3]]}, ".*the start 3 must lie before the end 3"),
        ({"kind": "offsets", "offsets": []}, "offsets: "),
        ({"kind": "offsets", "offsets": ["1x"]}, "offsets.0: must be inf, -inf, 0, or a duration"),
        ({"kind": "offsets", "offsets": ["1d", "+1d"]}, ".*offsets must not repeat"),
        ({"kind": "between_triggers", "every": "1d"}, "every: is not a field here"),
        ({"every": "1 day"}, "every: .*whole number and a unit"),
        ({"every": "1d", "lenght": "2d"}, "lenght: is not a field here"),
        ({}, "every: .*[Rr]equired"),
    ],
)
def test_an_impossible_spec_is_refused_naming_the_field(spec: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"intervals: {message}"):
        generate_intervals(spec, 0, 10)


def test_times_must_be_of_one_kind_and_be_times() -> None:
    with pytest.raises(ConfigError, match="must be of the same kind as the start"):
        generate_intervals({"every": "1d"}, 0, day("2020-01-01"))  # type: ignore[type-var]  # what is to be refused
    with pytest.raises(ConfigError, match="must be a time"):
        generate_intervals({"every": "1d"}, np.datetime64("NaT", "s"), day("2020-01-01"))
    with pytest.raises(ConfigError, match="end: must be a datetime64 or integer seconds"):
        generate_intervals({"every": "1d"}, 0, 1.5)  # type: ignore[type-var]  # what is to be refused
    with pytest.raises(ConfigError, match=r"training.1: must be of the same kind"):
        generate_intervals({"kind": "between_triggers"}, 0, 9, [(0, 3), (day("2020-01-01"), day("2020-01-02"))])  # type: ignore[type-var]  # what is to be refused
    with pytest.raises(ConfigError, match=r"training.0: the first sample's time must not lie after the last one's"):
        generate_intervals({"kind": "between_triggers"}, 0, 9, [(3, 2)])


def test_an_interval_is_closed_when_stream_time_has_reached_its_end_or_the_run_is_finished() -> None:
    intervals = generate_intervals({"every": "10s"}, 0, 25)
    assert closed_intervals(intervals, 9, finished=False) == []
    assert closed_intervals(intervals, 10, finished=False) == intervals[:1]
    assert closed_intervals(intervals, 24, finished=False) == intervals[:2]
    assert closed_intervals(intervals, 24, finished=True) == intervals
    assert closed_intervals(intervals, None, finished=False) == []
