"""Sample times, ``datetime64[us]`` in UTC: from columns of text or numbers, file names, manifests or modification times."""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.array_types import TimeArray
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.sources.files import FileState
from modyn_dagster.spec.sources import FileNameTime, ManifestTime, ModifiedTime

Unit = Literal["s", "ms", "us"]

_MICROSECONDS: Final[dict[Unit, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
#: One day inside the years 1 to 9999, so that every time can be shown in every time zone.
EARLIEST: Final = np.datetime64("0001-01-02", "us")
LATEST: Final = np.datetime64("9999-12-30", "us")

#: Forms of ISO 8601 that Arrow parses; others are parsed by ``datetime.fromisoformat``.
_ZONE: Final = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_TIME: Final = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_PLAIN: Final = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}({_TIME})?$"
_ZONED: Final = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_TIME}{_ZONE}$"


def parse_times(values: pa.Array, *, format: str | None, unit: Unit, file: str, column: str | None) -> TimeArray:
    """Parse the times of n rows, to ``datetime64[us][n]`` in UTC.

    Args:
        values: text (by ``format`` of ``strptime``, or else ISO 8601), numbers (in ``unit`` since 1970), or timestamps.
        format: of text; with a format, numbers are parsed as text.
        unit: of numbers.
        file: for errors.
        column: for errors.

    Raises:
        DataError: a time is missing, cannot be parsed, or lies outside the years 1 to 9999; names the row, from 1.

    >>> parse_times(pa.array(["2020-01-01", "2020-01-01T12:30+01:00"]), format=None, unit="s", file="a.csv", column="time")
    array(['2020-01-01T00:00:00.000000', '2020-01-01T11:30:00.000000'],
          dtype='datetime64[us]')
    """
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        times = _from_timestamps(values)
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or format is not None:
        times = _from_text(values.cast(pa.string()).fill_null(""), format, file, column)
    elif pa.types.is_boolean(values.type):
        raise DataError(file, "true and false are no times", column=column)
    else:
        times = _from_numbers(values, unit)
    outside = ~((times >= EARLIEST) & (times <= LATEST))
    if outside.any():
        row = int(np.argmax(outside))
        # As Arrow spells a date, for Python has none beyond these years.
        cell = values.slice(row, 1)
        value = (cell.cast(pa.string()) if pa.types.is_temporal(values.type) else cell)[0].as_py()
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        problem = "the time is missing" if missing else f"the time {value} is not in the years 1 to 9999"
        raise DataError(file, problem, row=row + 1, column=column)
    return times


def _from_timestamps(values: pa.Array) -> TimeArray:
    # Nanoseconds are truncated: sample times have microseconds.
    return np.asarray(values.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False), dtype="datetime64[us]")


def _from_numbers(values: pa.Array, unit: Unit) -> TimeArray:
    """Times of numbers; NaT where a number is missing or its time does not fit."""
    factor = _MICROSECONDS[unit]
    numbers = values.to_numpy(zero_copy_only=False)
    low, high = EARLIEST.astype(np.int64) // factor, LATEST.astype(np.int64) // factor
    inside = (numbers >= low) & (numbers <= high)
    if numbers.dtype.kind in "iu" and inside.all():
        whole: TimeArray = (numbers.astype(np.int64, copy=False) * factor).view("datetime64[us]")
        return whole
    scaled = np.where(inside, numbers, 0) * factor
    return np.where(inside, np.rint(scaled).astype(np.int64).view("datetime64[us]"), np.datetime64("NaT", "us"))


def _from_text(values: pa.Array, format: str | None, file: str, column: str | None) -> TimeArray:
    fast = _fast_iso(values) if format is None else _fast_format(values, format)
    times: TimeArray = fast.fill_null(0).to_numpy().view("datetime64[us]").copy()
    rest = np.flatnonzero(fast.is_null().to_numpy(zero_copy_only=False))
    slow = _slow_reader(format)
    parsed: dict[str, np.datetime64] = {}
    for row in rest:
        text: str = values[int(row)].as_py()
        if text not in parsed:
            try:
                parsed[text] = slow(text)
            except (ValueError, OverflowError):
                expected = "ISO 8601" if format is None else f"the format {format!r}"
                problem = f"the timestamp {text!r} does not match {expected}" if text else "the time is missing"
                raise DataError(file, problem, row=int(row) + 1, column=column) from None
        times[row] = parsed[text]
    return times


def _fast_iso(values: pa.Array) -> pa.Array:
    """Microseconds as int64; null for text of another form."""
    for type_ in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        # Usually all texts have one form, and no search for others is needed.
        with suppress(pa.ArrowInvalid):
            return values.cast(type_).cast(pa.int64())
    try:
        plain = _only(values, _PLAIN).cast(pa.timestamp("us")).cast(pa.int64())
        zoned = _only(values, _ZONED).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    except pa.ArrowInvalid:  # no day of the calendar; the slow path finds the row
        return pa.nulls(len(values), pa.int64())
    return pc.coalesce(plain, zoned)


def _only(values: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(values, pattern), values, pa.scalar(None, pa.string()))


def _fast_format(values: pa.Array, format: str) -> pa.Array:
    """Microseconds as int64; null where formatting the time does not give the text: Arrow reads 30 February as 2 March."""
    try:
        seconds = pc.strptime(values, format=format, unit="s", error_is_null=True)
        unchanged = pc.equal(pc.strftime(seconds, format=format), values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), pa.int64())
    micro = seconds.cast(pa.timestamp("us", tz=seconds.type.tz)).cast(pa.int64())
    return pc.if_else(unchanged, micro, pa.scalar(None, pa.int64()))


def _slow_reader(format: str | None) -> Callable[[str], np.datetime64]:
    def read(text: str) -> np.datetime64:
        moment = datetime.fromisoformat(text) if format is None else datetime.strptime(text, format)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return np.datetime64(moment, "us")

    return read


def time_of_file(
    spec: FileNameTime | ManifestTime | ModifiedTime, path: str, state: FileState, from_manifest: Mapping[str, np.datetime64]
) -> np.datetime64:
    """Time of a file that is a sample, or of all its rows, ``datetime64[us]`` in UTC.

    Raises ``DataError`` when the name does not match, or the store records no modification time.
    """
    match spec:
        case ManifestTime():
            return from_manifest[path]
        case FileNameTime():
            return _from_name(spec, path)
        case ModifiedTime():
            if state.mtime_ns is None:
                raise DataError(path, "its store records no modification time; take the time from elsewhere")
            return np.datetime64(state.mtime_ns // 1000, "us")


def _from_name(spec: FileNameTime, path: str) -> np.datetime64:
    match = re.search(spec.pattern, PurePosixPath(path).name)
    text = match["time"] if match is not None else None
    if text is None:
        raise DataError(path, f"the file name does not match {spec.pattern!r}, so the samples have no time")
    try:
        time: np.datetime64 = parse_times(pa.array([text]), format=spec.format, unit="s", file=path, column=None)[0]
    except DataError as error:
        raise DataError(path, f"in the file name {error.message}") from error
    return time
