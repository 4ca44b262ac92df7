from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import FixedRowsDecoder
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.fixed_rows import FixedRows
from modyn_dagster.spec.formats import FixedRowsFormat
from tests.ingestion.formats.loading import loaded, never

FIELDS = [
    ("t", "<i8"),
    ("x", "(2,3)>f4"),
    ("big", ">i4"),
    ("u", "u1"),
    ("ok", "?"),
    ("s", "S4"),
    ("when", "<M8[ms]"),
    ("w", "U2"),
]


def format_of(fields: list[tuple[str, str]], header_bytes: int = 0) -> FixedRows:
    return FixedRows(FixedRowsFormat(kind="fixed_rows", dtype=fields, header_bytes=header_bytes))


def records(n: int, fields: list[tuple[str, str]]) -> np.ndarray[Any, np.dtype[Any]]:
    dtype = np.dtype(fields)
    made = np.zeros(n, dtype=dtype)
    rng = np.random.default_rng(n)
    for name in dtype.names or ():
        kind = made[name].dtype.kind
        if kind in "iufM":
            made[name] = rng.integers(0, 100, made[name].shape).astype(made[name].dtype)
        elif kind == "b":
            made[name] = rng.integers(0, 2, n)
        else:
            made[name] = [f"r{i % 9}" for i in range(n)]
    return made


@pytest.mark.parametrize("header_bytes", [0, 5])
def test_records_come_back_in_any_order_with_their_own_dtypes(header_bytes: int) -> None:
    rows = records(50, FIELDS)
    data = b"h" * header_bytes + rows.tobytes()
    format = format_of(FIELDS, header_bytes)
    opened = format.open(loaded(data))
    settled = [found.resolved() for found in opened.find_columns()]
    order = np.random.default_rng(0).integers(0, 50, 80)
    assert opened.ranges is not None
    body = b"".join(data[opened.ranges.offsets[i] :][: opened.ranges.lengths[i]] for i in order)
    offsets = np.arange(81, dtype=np.int64) * rows.dtype.itemsize
    found = FixedRowsDecoder(rows.dtype).decode(settled, np.frombuffer(body, dtype=np.uint8), offsets, never)
    assert list(found) == [name for name, _ in FIELDS]
    for name, values in found.items():
        np.testing.assert_array_equal(values, rows[name][order])
        assert values.dtype == rows[name].dtype.newbyteorder("=")


def test_fields_that_have_a_role_are_converted() -> None:
    rows = records(10, FIELDS)
    opened = format_of(FIELDS).open(loaded(rows.tobytes()))
    found = opened.convert([], ["t", "big", "u", "ok", "s", "when", "w"])
    for name in ("t", "big", "u", "ok"):
        assert found[name].to_pylist() == rows[name].tolist()
    assert found["s"].to_pylist() == [text.decode() for text in rows["s"]]
    assert found["w"].to_pylist() == rows["w"].tolist()
    np.testing.assert_array_equal(found["when"].to_numpy(), rows["when"])


def test_columns_are_the_fields_as_the_spec_names_them() -> None:
    found = format_of(FIELDS).open(loaded(records(1, FIELDS).tobytes())).find_columns()
    assert [column.resolved() for column in found][:3] == [Column("t", "<i8"), Column("x", "(2, 3)>f4"), Column("big", ">i4")]
    assert np.dtype([(column.name, column.dtype) for column in found]) == np.dtype(FIELDS)


@pytest.mark.parametrize(("cut", "row"), [(1, 4), (15, 4), (17, 3)])
def test_a_truncated_file_names_the_record_that_is_cut(cut: int, row: int) -> None:
    fields = [("a", "<i8"), ("b", "<f8")]
    data = records(4, fields).tobytes()[:-cut]
    with pytest.raises(DataError, match="truncated") as caught:
        format_of(fields).open(loaded(data))
    assert caught.value.row == row


@pytest.mark.parametrize("size", [0, 3])
def test_a_file_without_records_is_empty(size: int) -> None:
    with pytest.raises(DataError, match="the file is empty"):
        format_of([("a", "<i8")], header_bytes=3).open(loaded(b"x" * size))


@pytest.mark.parametrize(
    ("code", "values"),
    [("(2,)f4", [[1, 2]]), ("<c8", [1j]), ("<u8", [2**63]), ("S2", [b"\xff"])],
    ids=["array", "complex", "u8", "bytes"],
)
def test_a_field_that_cannot_have_a_role_is_named(code: str, values: list[Any]) -> None:
    fields = [("a", code)]
    opened = format_of(fields).open(loaded(np.array(values).astype(np.dtype(fields)["a"].base).tobytes()))
    with pytest.raises(DataError) as caught:
        opened.convert([], ["a"])
    assert caught.value.column == "a"
