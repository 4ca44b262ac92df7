from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.catalog.registration.batches import Announcement
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.batches.assemble import Assembled, assemble
from modyn_dagster.ingestion.batches.piece import Piece
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.slices import Cut, History, cut_history

DAY = 86_400_000_000


def whole_of(times: dict[str, list[int]]) -> History:
    sizes = [len(rows) for rows in times.values()]
    return History(
        paths=list(times),
        unit_of=[path.partition("/")[0] for path in times],
        path_of=np.repeat(np.arange(len(times)), sizes),
        rows=np.concatenate([np.arange(size) for size in sizes]),
        times=np.concatenate([np.array(rows, dtype="datetime64[us]") for rows in times.values()]),
    )


def piece(path: str, times: list[int]) -> Piece:
    """Row r of a file lies at offset r, so that offsets tell which samples came through."""
    n = len(times)
    ranges = Ranges(np.arange(n, dtype=np.int64), np.ones(n, dtype=np.int64))
    column = np.array(times, dtype="datetime64[us]")
    return Piece((path,), column, None, None, None, np.ones(n, bool), ranges, None)


def samples(batch: Assembled) -> list[tuple[int, str, int]]:
    files = [batch.paths[number] for number in batch.file]
    return [(int(t), path, int(row)) for t, path, row in zip(batch.times.astype(np.int64), files, batch.offsets)]


def place(stored: Any) -> Any:
    return None if stored is None else tuple(stored)


def read(whole: dict[str, list[int]], announcement: Announcement) -> list[tuple[int, str, int]]:
    """A slice as ingestion reads it: all rows of its files, and those between its bounds kept."""
    source = announcement.source
    pieces = [piece(path, whole[path]) for path in source["files"]]
    return samples(assemble(pieces, (), place(source["begin"]), place(source["end"])))


TIMES = st.dictionaries(
    st.sampled_from(["a/1", "a/2", "a/10", "b/1", "b/2"]), st.lists(st.integers(0, 40), min_size=1, max_size=8), min_size=1
).map(lambda files: dict(sorted(files.items(), key=lambda item: ["a/1", "a/2", "a/10", "b/1", "b/2"].index(item[0]))))


@given(TIMES, st.one_of(st.builds(Cut, st.just("count"), st.integers(1, 9)), st.builds(Cut, st.just("time"), st.integers(1, 15))))
def test_slices_read_from_their_files_are_the_sorted_whole_cut_once(times: dict[str, list[int]], cut: Cut) -> None:
    names = list(times)
    everything = sorted((time, names.index(path), row) for path in times for row, time in enumerate(times[path]))
    announcements = cut_history(whole_of(times), cut)
    slices = [[(time, names.index(path), row) for time, path, row in read(times, item)] for item in announcements]
    assert [sample for part in slices for sample in part] == everything
    if cut.by == "count":
        assert {len(part) for part in slices[:-1]} <= {cut.size}
        assert 0 < len(slices[-1]) <= cut.size
    else:
        spans = sorted({time // cut.size for time, _, _ in everything})
        assert [{time // cut.size for time, _, _ in part} for part in slices] == [{span} for span in spans]


def test_slices_by_time_begin_at_multiples_after_the_first_midnight_and_are_named_after_it() -> None:
    hours = [9, 20, 24 + 1, 5 * 24, 8 * 24 + 23]
    start = int(np.datetime64("2020-03-01", "us").astype(np.int64))
    whole = whole_of({"a/1": [start + hour * 3_600_000_000 for hour in hours]})
    assert [item.partition_key for item in cut_history(whole, Cut("time", 3 * DAY))] == ["2020-03-01", "2020-03-04", "2020-03-07"]
    halves = [item.partition_key for item in cut_history(whole, Cut("time", DAY // 2))]
    assert halves == [
        "2020-03-01T00:00:00",
        "2020-03-01T12:00:00",
        "2020-03-02T00:00:00",
        "2020-03-06T00:00:00",
        "2020-03-09T12:00:00",
    ]


def test_slices_by_count_are_numbered_so_that_they_sort() -> None:
    keys = [item.partition_key for item in cut_history(whole_of({"a/1": list(range(10))}), Cut("count", 1))]
    assert keys == [f"part_{number:02d}" for number in range(1, 11)]


def test_slices_name_their_files_their_units_and_their_import() -> None:
    announcements = cut_history(whole_of({"a/1": [0, 3], "a/2": [1], "b/1": [2]}), Cut("count", 2))
    first, second = (dict(item.source) for item in announcements)
    assert first.pop("import") == second.pop("import")
    assert first == {"paths": ["a"], "files": ["a/1", "a/2"], "begin": [0, "a/1", 0], "end": [2, "b/1", 0]}
    assert second == {"paths": ["a", "b"], "files": ["a/1", "b/1"], "begin": [2, "b/1", 0], "end": None}


@pytest.mark.parametrize(
    "text", ["", "day", "file:3", "time", "time:", "time:3", "time:-3d", "count", "count:0", "count:-1", "count:x", "count:1.5"]
)
def test_another_way_to_cut_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be file, time:<duration>"):
        Cut.parse(text)


def test_a_batch_of_nothing_between_its_bounds_is_refused() -> None:
    with pytest.raises(DataError, match="no longer holds a sample of this slice"):
        assemble([piece("a", [1, 2])], (), (3, "a", 0), None)


def test_converted_rows_of_several_files_are_written_in_key_order() -> None:
    rows = [pa.table({"x": pa.array([10, 11])}), pa.table({"x": pa.array([20])})]
    pieces = [
        replace(piece(path, times), in_place=np.zeros(len(times), bool), ranges=None, payload=table)
        for path, times, table in zip("ab", ([5, 1], [3]), rows)
    ]
    batch = assemble(pieces, [Column("x", "int64")])
    assert np.concatenate(list(batch.shard or ())).view(np.int64).tolist() == [11, 20, 10]
    assert (batch.paths, set(batch.file), batch.lengths.tolist()) == ((), {0}, [8, 8, 8])
