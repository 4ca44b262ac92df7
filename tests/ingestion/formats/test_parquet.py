import io
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import gather_ranges
from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import ParquetDecoder
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.parquet import Parquet, encode_table
from modyn_dagster.spec.formats import ParquetFormat
from tests.ingestion.formats.loading import columns, loaded

FORMAT = Parquet(ParquetFormat(kind="parquet"))


def parquet(content: dict[str, Any] | pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(content if isinstance(content, pa.Table) else pa.table(content), out)
    return out.getvalue()


def table(data: bytes, settled: list[Column] | None = None) -> tuple[list[Column], pa.Table]:
    opened = FORMAT.open(loaded(data, "f.parquet"))
    chosen = settled or [found.resolved() for found in opened.find_columns()]
    return chosen, opened.table(chosen)


def reread(settled: list[Column], content: pa.Table, rows: list[int]) -> dict[str, list[Any]]:
    """Through the bytes of a shard, as a reader does it."""
    parts, width = encode_table(settled, content)
    shard = np.concatenate(parts)

    def fetch(offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
        return gather_ranges(shard, offsets, lengths)

    buffer, offsets = gather_ranges(shard, width * np.array(rows, dtype=np.int64), np.full(len(rows), width))
    return {name: values.tolist() for name, values in ParquetDecoder().decode(settled, buffer, offsets, fetch).items()}


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(), st.text(max_size=5), st.text(max_size=5)
        ),
        min_size=1,
        max_size=12,
    ),
    st.data(),
)
def test_values_survive_the_shard_in_any_order(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    content = dict(zip("ifbst", (list(column) for column in zip(*rows))))
    settled, converted = table(parquet(content))
    assert settled == columns(i="int64", f="float64", b="bool", s="string", t="string")
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    assert reread(settled, converted, wanted) == {name: [cells[row] for row in wanted] for name, cells in content.items()}


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (pa.array([1, 2], pa.int8()), "int64", [1, 2]),
        (pa.array([1, 2], pa.uint32()), "int64", [1, 2]),
        (pa.array([1.5, 2], pa.float32()), "float64", [1.5, 2.0]),
        (pa.array([1, None], pa.int32()), "float64", [1.0, np.nan]),
        (pa.array([None, None], pa.null()), "float64", [np.nan, np.nan]),
        (pa.array(["a", "b"]).dictionary_encode(), "string", ["a", "b"]),
        (pa.array(["a", None], pa.large_string()), "string", ["a", ""]),
        (pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("ns", "UTC")), "timestamp", [datetime(2020, 1, 1)] * 2),
        (pa.array([date(2020, 1, 1)] * 2), "timestamp", [datetime(2020, 1, 1)] * 2),
    ],
    ids=str,
)
def test_types_of_parquet_become_those_of_the_dataset(values: pa.Array, dtype: str, expected: list[Any]) -> None:
    settled, converted = table(parquet(pa.table({"a": values})))
    assert settled == [Column("a", dtype)]
    np.testing.assert_array_equal(reread(settled, converted, [0, 1])["a"], expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([[1]]), "list"),
        (pa.array([{"x": 1}]), "struct"),
        (pa.array([b"x"]), "binary"),
        (pa.array([2**63], pa.uint64()), "int64"),
    ],
    ids=["list", "struct", "binary", "too large"],
)
def test_types_without_a_place_in_a_row_are_refused(values: pa.Array, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        table(parquet(pa.table({"a": values})))
    assert caught.value.column == "a"


def test_the_order_of_columns_does_not_matter() -> None:
    settled, converted = table(parquet({"b": [1.0], "a": [1]}), columns(a="int64", b="float64"))
    assert reread(settled, converted, [0]) == {"a": [1], "b": [1.0]}


@pytest.mark.parametrize(
    ("content", "expected", "found"),
    [({"a": [1.5]}, "a int64", "a float64"), ({"a": ["x"]}, "a int64", "a string"), ({"b": [1]}, "a", "b")],
    ids=str,
)
def test_other_columns_than_the_datasets_are_refused_naming_both(content: dict[str, Any], expected: str, found: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        table(parquet(content), columns(a="int64"))
    assert (caught.value.expected, caught.value.found) == (expected, found)


def test_a_missing_integer_is_named_with_its_row() -> None:
    with pytest.raises(DataError, match="the value is missing") as caught:
        table(parquet({"a": [1, 2, None]}), columns(a="int64"))
    assert (caught.value.row, caught.value.column) == (3, "a")


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", parquet({"a": [1] * 100})[:-20], parquet({"a": pa.array([], pa.int64())})], ids=len
)
def test_a_broken_or_empty_file_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"Parquet|no rows"):
        table(data)
