"""Guess of the column with the time of a sample, and of how its values are written."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.array_types import TimeArray
from modyn_dagster.cli.init.look import LISTED, Look, Rows, listed, refused
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.formats.times import Unit, parse_times
from modyn_dagster.spec.reading.complaints import probable

#: Names that say it, the surest first.
NAMES: Final = ("time", "timestamp", "datetime", "date_time", "event_time", "date", "ts", "day", "created_at", "created", "year")
#: A part of other names of times. Numbers are times only under such a name, as anything may be a number.
_PART: Final = re.compile(r"time|date|stamp|year|month|(^|_)(ts|day|at|when|epoch)($|_)", re.IGNORECASE)
_DATES: Final = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%b %d, %Y")
_CLOCKS: Final = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
_FORMATS: Final = ("%Y-%m", *(date + clock for date, clock in product(_DATES, _CLOCKS)))
#: Whole numbers that are written like a date, by their digits.
_DIGITS: Final[Mapping[int, Sequence[str]]] = {4: ("%Y",), 6: ("%Y%m",), 8: ("%Y%m%d",), 14: ("%Y%m%d%H%M%S",)}
#: Numbers since 1970 that lie in the years 1973 to 2100 in one unit lie in no such year in another.
_SINCE: Final[Mapping[Unit, tuple[float, float]]] = {"s": (1e8, 4.2e9), "ms": (1e11, 4.2e12), "us": (1e14, 4.2e15)}
#: Values that a way of writing is tried on before all are.
_FIRST: Final = 50


@dataclass(frozen=True)
class TimeColumn:
    """A column of times, with how they are written, and the reason why it was chosen."""

    column: str
    format: str | None
    unit: Unit
    reason: str

    def read(self, rows: Rows) -> TimeArray:
        """Times of n rows, ``datetime64[us][n]``. Raises ``DataError``."""
        values = rows.values[self.column] if self.format is None else rows.written(self.column)
        return parse_times(values, format=self.format, unit=self.unit, file="--from", column=self.column)


def time_columns(look: Look) -> dict[str, list[TimeColumn]]:
    """Columns that read as times, with every way of reading them; numbers only under a name that says so."""
    found: dict[str, list[TimeColumn]] = {}
    for column in look.first.columns:
        is_named = column.name.casefold() in NAMES or _PART.search(column.name) is not None
        if column.dtype not in ("int64", "float64") or is_named:
            ways = list(_ways(look, column.name))
            if ways:
                found[column.name] = ways
    return found


def best_named(names: Sequence[str]) -> list[str]:
    """Column whose name says most surely that it is the time; all of them where none does."""
    ranks = {name: NAMES.index(name.casefold()) for name in names if name.casefold() in NAMES}
    if not ranks:
        return list(names)
    best = min(ranks.values())
    return [name for name in names if ranks.get(name) == best]


def choose_time(look: Look, given: str | None, format: str | None) -> TimeColumn:
    """Choose the column of the time: the given one, or the only one that reads as times, or the one with the surest name.

    Raises ``ConfigError``, naming column and option, where there is none, or several or several ways to read it.
    """
    if given is not None and given not in look.names:
        raise refused("--time", given, f"must be a column of the data, one of {listed(look.names)}{probable(given, look.names)}")
    if format is not None:
        return _in_format(look, given, format)
    if given is not None:
        ways, reason = list(_ways(look, given)), "named by --time"
    else:
        found = time_columns(look)
        best = best_named([*found])
        if len(best) != 1:
            raise _undecided(look, best)
        given, ways = best[0], found[best[0]]
        reason = "the only column that reads as times" if len(found) == 1 else "reads as times, and its name is the surest"
    if not ways:
        raise _unreadable(look, given)
    _require_header(look, given, ways[0])
    if len(ways) > 1:
        forms = " and as ".join(repr(way.format) for way in ways)
        example = look.first.written(given)[0].as_py()
        raise refused("--time-format", example, f"column {given!r} reads as {forms}: say which with --time-format")
    return TimeColumn(given, ways[0].format, ways[0].unit, f"{reason}; {ways[0].reason}")


def _require_header(look: Look, name: str, way: TimeColumn) -> None:
    """Refuse a column of texts whose name is a time as they are: the first row stands where names should."""
    if pa.types.is_string(look.first.values[name].type) and any(_that_reads(pa.array([name]), name, way.format, way.unit, "")):
        raise refused(
            "--from", look.names[:LISTED], "the first line has values, no names of columns: give the file a header line"
        )


def _ways(look: Look, name: str) -> Iterator[TimeColumn]:
    values = look.first.values[name]
    if pa.types.is_temporal(values.type):
        yield from _that_reads(values, name, None, "s", "timestamps")
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        iso = list(_that_reads(values, name, None, "s", "ISO 8601"))
        yield from iso
        if not iso:
            for format in _FORMATS:
                yield from _that_reads(values, name, format, "s", f"read as {format}")
    elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        low, high = pc.min_max(values).as_py().values()
        for unit in get_args(Unit):
            if low is not None and _SINCE[unit][0] <= low and high <= _SINCE[unit][1]:
                yield from _that_reads(values, name, None, unit, f"numbers of {unit} since 1970")
        if pa.types.is_integer(values.type):
            texts = look.first.written(name)
            lengths = pc.unique(pc.utf8_length(texts)).to_pylist()
            for format in _DIGITS.get(lengths[0], ()) if len(lengths) == 1 else ():
                yield from _that_reads(texts, name, format, "s", f"read as {format}")


def _that_reads(values: pa.Array, name: str, format: str | None, unit: Unit, reason: str) -> Iterator[TimeColumn]:
    """The way of reading, if all values can be read so, and lie in the years 1600 to 2200."""
    try:
        for part in (values.slice(0, _FIRST), values):
            times = parse_times(part, format=format, unit=unit, file="", column=name)
            if not ((times >= np.datetime64("1600")) & (times < np.datetime64("2200"))).all():
                return
    except DataError:
        return
    yield TimeColumn(name, format, unit, reason)


def _in_format(look: Look, given: str | None, format: str) -> TimeColumn:
    if given is None:
        raise refused("--time-format", format, "needs the column that is written so: give --time too")
    try:
        chosen = TimeColumn(given, format, "s", f"named by --time, read as {format}")
        chosen.read(look.first)
    except DataError as error:
        raise refused("--time-format", format, f"column {given!r}, row {error.row}: {error.message}") from error
    return chosen


def _undecided(look: Look, found: Sequence[str]) -> ConfigError:
    if found:
        rule = f"columns {listed(found)} read as times: say with --time which is that of a sample"
        return refused("--time", found[:LISTED], rule)
    rule = "no column reads as times: name it with --time, and how it is written with --time-format"
    return refused("--time", look.names[:LISTED], f"{rule}; if these names are values, give the file a header line")


def _unreadable(look: Look, name: str) -> ConfigError:
    try:
        parse_times(look.first.values[name], format=None, unit="s", file="--from", column=name)
        problem = "it has numbers that are no times of the years 1973 to 2100"
    except DataError as error:
        problem = f"{error.message}" + (f" in row {error.row}" if error.row else "")
    remedy = "say how it is written with --time-format, or name another with --time"
    rule = f"column {name!r} cannot be read as times: {problem}; {remedy}"
    return refused("--time", name, rule)
