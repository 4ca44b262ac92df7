"""Cuts of history into batches: by file, or by time or count over all samples in order."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from fastpath.array_types import Int64Array, TimeArray
from modyn_dagster.catalog.registration.batches import Announcement
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.values.digest import bytes_digest

_FORMS: Final = "must be file, time:<duration> (time:30d) or count:<n> (count:5000)"


@dataclass(frozen=True, slots=True)
class Cut:
    """Rule by which history becomes batches; ``size`` is microseconds for ``time``, samples for ``count``."""

    by: Literal["file", "time", "count"] = "file"
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> "Cut":
        """Parse ``file``, ``time:<duration>`` or ``count:<n>``. Raises ``ConfigError`` for any other text.

        >>> Cut.parse("time:30d").size // 86_400_000_000, Cut.parse("count:5000").size, Cut.parse("file").by
        (30, 5000, 'file')
        """
        by, _, size = text.partition(":")
        if by == "file" and not size:
            return cls()
        try:
            if by == "time":
                return cls("time", seconds_of(size) * 1_000_000)
            if by == "count" and int(size) > 0:
                return cls("count", int(size))
        except ValueError:
            pass
        raise ConfigError("import", "by", text, _FORMS)


@dataclass(frozen=True)
class History:
    """All samples of an import.

    Attributes:
        paths: files, in natural order.
        unit_of: file, directory or manifest that announced each file.
        path_of: index into ``paths`` of each sample, ``int64[n]``, ascending.
        rows: row in its file of each sample, ``int64[n]``.
        times: ``datetime64[us][n]``.
    """

    paths: Sequence[str]
    unit_of: Sequence[str]
    path_of: Int64Array
    rows: Int64Array
    times: TimeArray


def cut_history(history: History, cut: Cut) -> list[Announcement]:
    """Cut history into batches of consecutive samples in (time, file, row) order.

    By time, slices begin at whole multiples of the duration after midnight (UTC) of the first sample's day, and empty ones are
    left out; the key of a slice is its first moment. By count, all slices but the last have the same size, and keys count
    from 1.
    """
    order = np.argsort(history.times, kind="stable")
    starts = _starts(history.times[order], cut)
    identity = _identity(history, cut)
    bounds = [*starts, len(order)]
    return [
        _announcement(history, order, start, stop, key, identity)
        for start, stop, key in zip(bounds, bounds[1:], _keys(history.times[order], starts, cut))
    ]


def _starts(times: TimeArray, cut: Cut) -> list[int]:
    if cut.by == "count":
        return list(range(0, len(times), cut.size))
    slots = _slots(times, cut)
    return [int(start) for start in np.flatnonzero(np.concatenate(([True], slots[1:] != slots[:-1])))]


def _slots(times: TimeArray, cut: Cut) -> Int64Array:
    origin = times[0].astype("datetime64[D]").astype("datetime64[us]").astype(np.int64)
    slots: Int64Array = (times.astype(np.int64) - origin) // cut.size
    return slots


def _keys(times: TimeArray, starts: Sequence[int], cut: Cut) -> list[str]:
    if cut.by == "count":
        width = len(str(len(starts)))
        return [f"part_{number:0{width}d}" for number in range(1, len(starts) + 1)]
    origin = times[0].astype("datetime64[D]").astype("datetime64[us]")
    moments = origin + (_slots(times, cut)[list(starts)] * cut.size).astype("timedelta64[us]")
    whole_days = cut.size % 86_400_000_000 == 0
    return [str(moment.astype("datetime64[D]" if whole_days else "datetime64[s]")) for moment in moments]


def _announcement(history: History, order: Int64Array, start: int, stop: int, key: str, identity: str) -> Announcement:
    used = np.unique(history.path_of[order[start:stop]])
    units = {str(history.unit_of[path]) for path in used}
    source = {
        "paths": sorted(units, key=natural_key),
        "files": [history.paths[path] for path in used],
        "begin": _place(history, order[start]),
        "end": _place(history, order[stop]) if stop < len(order) else None,
        "import": identity,
    }
    return Announcement(key, source)


def _place(history: History, sample: int) -> list[int | str]:
    return [int(history.times[sample].astype(np.int64)), history.paths[history.path_of[sample]], int(history.rows[sample])]


def _identity(history: History, cut: Cut) -> str:
    """Name of an import, the same for all of its slices."""
    text = json.dumps([cut.by, cut.size, list(history.paths), len(history.times)])
    return bytes_digest(text.encode(), 8)
