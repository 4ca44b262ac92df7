from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.array_types import TimeArray
from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.times import parse_times

MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def parsed(values: Any, format: str | None = None, unit: Any = "s") -> TimeArray:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return parse_times(array, format=format, unit=unit, file="f.csv", column="time")


@given(st.lists(st.tuples(MOMENTS, st.one_of(st.none(), ZONES), st.sampled_from("T ")), min_size=1, max_size=20))
def test_iso_texts_with_and_without_a_zone_are_utc(rows: list[tuple[datetime, timezone | None, str]]) -> None:
    moments = [moment.replace(tzinfo=zone) for moment, zone, _ in rows]
    found = parsed([moment.isoformat(sep) for moment, (_, _, sep) in zip(moments, rows)])
    expected = [(m.astimezone(UTC).replace(tzinfo=None) if m.tzinfo else m) for m in moments]
    np.testing.assert_array_equal(found, np.array(expected, dtype="datetime64[us]"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1900-07-01", "1900-07-01"),
        ("1900-07-01T12:30", "1900-07-01T12:30"),
        ("2020-01-01T00:00:00Z", "2020-01-01"),
        ("2020-01-01 00:00:00.25+0130", "2019-12-31T22:30:00.25"),
        ("2020-01-01T00:00:00.123456789", "2020-01-01T00:00:00.123456"),
        ("20200101", "2020-01-01"),
        ("2020-W02-1", "2020-01-06"),
    ],
)
def test_other_forms_of_iso_8601_are_read_too(text: str, expected: str) -> None:
    assert parsed(["2001-01-01", text])[1] == np.datetime64(expected, "us")


FORMATS = [
    "%Y-%m-%d %H:%M:%S",
    "%d.%m.%Y",
    "%Y%m%d",
    "%m/%d/%y",
    "%d %b %Y %I:%M %p",
    "%Y-%j",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%d.%m.%Y %z",
]


@given(
    st.sampled_from(FORMATS), st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2060, 1, 1)), min_size=1, max_size=10), ZONES
)
def test_a_format_reads_what_strptime_reads(format: str, moments: list[datetime], zone: timezone) -> None:
    texts = [moment.replace(tzinfo=zone).strftime(format) for moment in moments]
    expected = [datetime.strptime(text, format) for text in texts]
    naive = [moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment for moment in expected]
    np.testing.assert_array_equal(parsed(texts, format), np.array(naive, dtype="datetime64[us]"))


def test_texts_of_either_arrow_type_are_the_same_times() -> None:
    texts = ["1900-07-01", "20200101"]
    np.testing.assert_array_equal(parsed(pa.array(texts, pa.large_string())), parsed(pa.array(texts)))


def test_numbers_are_read_by_a_format_as_the_text_they_are() -> None:
    np.testing.assert_array_equal(parsed([1900, 2024], "%Y"), np.array(["1900-01-01", "2024-01-01"], dtype="datetime64[us]"))


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
@given(numbers=st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_numbers_count_their_unit_since_1970(unit: str, factor: int, numbers: list[int]) -> None:
    expected = (np.array(numbers) * factor).astype("datetime64[us]")
    np.testing.assert_array_equal(parsed(numbers, unit=unit), expected)
    np.testing.assert_array_equal(parsed([float(number) for number in numbers], unit=unit), expected)


def test_fractions_of_a_second_are_kept_to_the_microsecond() -> None:
    np.testing.assert_array_equal(parsed([1.25, -0.000_001_4]).astype(np.int64), [1_250_000, -1])


def test_timestamps_of_any_resolution_are_taken_as_they_are() -> None:
    for unit in ("s", "ms", "us", "ns"):
        assert parsed(pa.array([10**9], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit)))[0] == np.datetime64(
            10**15, "us"
        )


BAD: dict[str, tuple[Any, str | None, int, str]] = {
    "no time": (["2020-01-01", "soon"], None, 2, "'soon' does not match ISO 8601"),
    "no day": (["2020-01-01", "2020-02-30"], None, 2, "'2020-02-30' does not match ISO 8601"),
    "empty": (["2020-01-01", ""], None, 2, "the time is missing"),
    "null": (["2020-01-01", None], None, 2, "the time is missing"),
    "another format": (["2020", "20"], "%Y", 2, "'20' does not match the format '%Y'"),
    "no day in a format": (["28.02.2001", "30.02.2001"], "%d.%m.%Y", 2, "'30.02.2001' does not match"),
    "space around": (["2001", "2002 "], "%Y", 2, "does not match the format"),
    "an unknown directive": (["a"], "%Q", 1, "does not match the format"),
    "NaN": ([1.0, float("nan")], None, 2, "the time is missing"),
    "infinite": ([1.0, float("inf")], None, 2, "not in the years 1 to 9999"),
    "too late": ([1, 2**62], None, 2, "not in the years 1 to 9999"),
    "too early": ([1, -(2**62)], None, 2, "not in the years 1 to 9999"),
    "year 0": (["2020-01-01", "0000-05-01"], None, 2, "not in the years 1 to 9999"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_time_that_cannot_be_is_named_with_its_row(name: str) -> None:
    values, format, row, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        parsed(values, format)
    assert (caught.value.file, caught.value.row, caught.value.column) == ("f.csv", row, "time")


def test_truth_values_are_no_times() -> None:
    with pytest.raises(DataError, match="no times"):
        parsed([True])


@given(MOMENTS)
def test_postgres_gets_the_same_moment(moment: datetime) -> None:
    assert as_timestamp(np.datetime64(moment, "us")) == moment.replace(tzinfo=UTC)
