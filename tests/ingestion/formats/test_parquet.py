import io
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath import gather_ranges
from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import ParquetDecoder
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.parquet import Parquet, encode_table
from modyn_dagster.spec.formats import ParquetFormat
from tests.examples import examples
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
        (pa.array([b"x"]), "binary"),
        (pa.array([2**63], pa.uint64()), "int64"),
    ],
    ids=["list", "binary", "too large"],
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


def test_fields_of_structs_are_columns_by_dotted_path() -> None:
    place = pa.array([{"city": "rome", "at": {"x": 1.5}}, None, {"city": None, "at": {"x": 2}}])
    settled, converted = table(parquet({"id": [1, 2, 3], "place": place, "end": [True, False, True]}))
    assert settled == columns(**{"id": "int64", "place.city": "string", "place.at.x": "float64", "end": "bool"})
    found = reread(settled, converted, [2, 0, 1])
    assert found["place.city"] == ["", "rome", ""]
    assert str(found["place.at.x"]) == "[2.0, 1.5, nan]"


def test_a_field_and_a_column_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="the file has a column twice") as caught:
        table(parquet({"a.b": [1], "a": pa.array([{"b": 2}])}))
    assert caught.value.column == "a.b"


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@settings(max_examples=examples(40))
@given(rows=st.integers(1, 6), width=st.integers(1, 5), single=st.booleans(), data=st.data())
def test_lists_of_numbers_survive_the_shard(kind: str, rows: int, width: int, single: bool, data: st.DataObject) -> None:
    number = pa.float32() if single else pa.float64()
    types = {"list": pa.list_(number), "large": pa.large_list(number), "fixed": pa.list_(number, width)}
    values = np.random.default_rng(rows).normal(size=(rows, width)).astype("f4" if single else "f8")
    content = pa.table({"name": pa.array(["n"] * rows), "vector": pa.array(values.tolist(), types[kind])})
    settled, converted = table(parquet(content))
    assert settled == columns(name="string", vector=f"({width},){'<f4' if single else '<f8'}")
    wanted = data.draw(st.lists(st.integers(0, rows - 1), max_size=8))
    assert reread(settled, converted, wanted)["vector"] == values[wanted].tolist()


def test_a_missing_number_of_a_list_is_nan() -> None:
    settled, converted = table(parquet({"v": pa.array([[1.0, None], [2.0, 3.0]])}))
    assert str(reread(settled, converted, [0, 1])["v"]) == "[[1.0, nan], [2.0, 3.0]]"


@pytest.mark.parametrize(
    ("values", "problem", "row"),
    [
        (pa.array([[1.0], [1.0, 2.0]]), "the list has 2 numbers, that of row 1 has 1; all need the same number", 2),
        (pa.array([[1.0], None]), "the list is missing", 2),
        (pa.array([[]], pa.list_(pa.float64())), "the list is empty", 1),
        (pa.array([["a"]]), "columns of type list<.*string> are not supported", None),
        (pa.array([[{"a": 1}]]), "columns of type list<.*> are not supported", None),
    ],
)
def test_lists_that_no_record_can_hold_are_refused(values: pa.Array, problem: str, row: int | None) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        table(parquet({"v": values}))
    assert (caught.value.column, caught.value.row) == ("v", row)


def test_lists_of_another_length_than_those_of_the_dataset_are_refused() -> None:
    settled, _ = table(parquet({"v": pa.array([[1.0, 2.0]])}))
    with pytest.raises(SchemaMismatch, match=r"v \(2,\)<f8.*v \(3,\)<f8"):
        table(parquet({"v": pa.array([[1.0, 2.0, 3.0]])}), settled)
    with pytest.raises(SchemaMismatch, match=r"v \(2,\)<f8.*v nothing"):
        table(parquet({"v": pa.array([None])}), settled)


def test_a_list_is_no_time_label_id_or_attribute() -> None:
    opened = FORMAT.open(loaded(parquet({"v": pa.array([[1.0, 2.0]])}), "f.parquet"))
    with pytest.raises(DataError, match="lists of numbers cannot be a time, label, id or attribute"):
        opened.convert([found.resolved() for found in opened.find_columns()], ["v"])


def test_structs_that_are_nested_without_end_are_refused() -> None:
    deep = pa.array([1])
    for _ in range(40):
        deep = pa.StructArray.from_arrays([deep], ["a"])
    with pytest.raises(DataError, match="structs are nested more than 32 deep"):
        table(parquet({"a": deep}))
