import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.data.rows.row_decoding import CsvDecoder
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats import csv as csv_module
from modyn_dagster.ingestion.formats import jsonl as jsonl_module
from modyn_dagster.ingestion.formats.csv import Csv
from modyn_dagster.ingestion.formats.jsonl import Jsonl
from modyn_dagster.spec.formats import CsvFormat, JsonlFormat
from tests.ingestion.formats.loading import columns, converted, loaded, reread

FORMAT = Csv(CsvFormat(kind="csv"))
JSONL = Jsonl(JsonlFormat(kind="jsonl"))
NAN = float("nan")

#: Everything that CSV finds hard, and some letters.
TEXT = st.text(alphabet="ab\",;\r\n \t'é€\U0001f600\\0", max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], bytes]:
    """Rows of text, written as RFC 4180 allows: quotes where needed and sometimes elsewhere, any line end, blank lines."""
    width = draw(st.integers(1, 4))
    cell = TEXT if width > 1 else TEXT.filter(bool)
    rows = draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=12))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines = [",".join(f"c{i}" for i in range(width))]
    for row in rows:
        lines.append(",".join(_quoted(text, draw(st.booleans())) for text in row))
        lines += [""] * draw(st.integers(0, 1))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return rows, (bom + newline.join(lines) + draw(st.sampled_from(["", newline]))).encode()


def _quoted(text: str, wanted: bool) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if wanted or any(c in text for c in '",\r\n') else text


@given(tables())
def test_cells_are_those_that_the_csv_module_reads(case: tuple[list[list[str]], bytes]) -> None:
    rows, data = case
    oracle = [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")) if row][1:]
    assert oracle == rows
    settled = columns(**{f"c{i}": "string" for i in range(len(rows[0]))})
    assert converted(FORMAT, data, settled) == {column.name: list(cells) for column, cells in zip(settled, zip(*rows))}


@given(tables(), st.data())
def test_rows_read_by_place_are_the_rows_of_the_file_in_any_order(
    case: tuple[list[list[str]], bytes], data: st.DataObject
) -> None:
    rows, content = case
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    settled = columns(**{f"c{i}": "string" for i in range(len(rows[0]))})
    found = reread(CsvDecoder(","), content, FORMAT.open(loaded(content)), settled, wanted)
    assert found == {column.name: [rows[row][i] for row in wanted] for i, column in enumerate(settled)}


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans()), min_size=1))
def test_numbers_come_back_to_the_bit(rows: Sequence[tuple[int, float, bool]]) -> None:
    data = ("i,f,b\n" + "".join(f"{i},{f!r},{str(b).lower()}\n" for i, f, b in rows)).encode()
    settled = columns(i="int64", f="float64", b="bool")
    found = converted(FORMAT, data, settled)
    assert (found["i"], found["b"]) == ([row[0] for row in rows], [row[2] for row in rows])
    np.testing.assert_array_equal(found["f"], [row[1] for row in rows])
    again = reread(CsvDecoder(","), data, FORMAT.open(loaded(data)), settled, range(len(rows)))
    assert (again["i"], again["b"]) == (found["i"], found["b"])
    np.testing.assert_array_equal(again["f"], found["f"])


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", "-2"], "int64", [1, -2]),
        (["1", "2.5"], "float64", [1.0, 2.5]),
        (["1", ""], "float64", [1.0, NAN]),
        (["", "NA"], "float64", [NAN, NAN]),
        (["true", "FALSE"], "bool", [True, False]),
        (["1", "x"], "string", ["1", "x"]),
        (["2020-01-01", "2020-01-02"], "string", ["2020-01-01", "2020-01-02"]),
        (["12:30:00", "13:30:00"], "string", ["12:30:00", "13:30:00"]),
        (["x", ""], "string", ["x", ""]),
        (["x", "NA"], "string", ["x", "NA"]),
    ],
    ids=str,
)
def test_dtypes_are_inferred(cells: list[str], dtype: str, values: list[Any]) -> None:
    data = ("a,b\n" + "".join(f"{cell},1\n" for cell in cells)).encode()
    assert FORMAT.open(loaded(data)).find_columns()[0].resolved().dtype == dtype
    np.testing.assert_array_equal(converted(FORMAT, data)["a"], values)


def test_a_dtype_is_that_of_the_whole_file_not_of_its_first_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "CHUNK_BYTES", 64)
    data = ("a,b\n" + "1,1\n" * 50 + "2.5,\n" + "3,\n" * 50).encode()
    assert [found.resolved() for found in FORMAT.open(loaded(data)).find_columns()] == columns(a="float64", b="float64")
    assert converted(FORMAT, data)["a"] == [1.0] * 50 + [2.5] + [3.0] * 50


CELLS = {
    "integers": ["1", "-2", "007"],
    "fractions": ["0.5", "-1e3", "3"],
    "minus zero": ["-0", "2.5", "NaN"],
    "gaps": ["1", "", "NA"],
    "truth": ["true", "0", "1"],
    "days": ["2020-01-01", "2020-01-02", "NA"],
    "moments": ["2020-01-01T05:06:07", "2020-01-01 00:00", ""],
    "texts": ["x", "1", "NULL"],
}


@given(st.data(), st.integers(1, 60))
def test_columns_kept_while_they_are_found_are_those_that_are_parsed(data: st.DataObject, chunk: int) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=4, unique=True))
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(CELLS[kind]) for kind in kinds)), min_size=1, max_size=12))
    content = "\n".join([",".join(kinds), *(",".join(f'"{cell}"' for cell in row) for row in rows)]).encode()
    keep = data.draw(st.sets(st.sampled_from(kinds)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(csv_module, "CHUNK_BYTES", chunk)
        first = FORMAT.open(loaded(content))
        settled = [found.resolved() for found in first.find_columns(keep)]
        found = first.convert(settled, keep)
    expected = FORMAT.open(loaded(content)).convert(settled, keep)
    assert {name: repr(values.to_pylist()) for name, values in found.items()} == {
        name: repr(values.to_pylist()) for name, values in expected.items()
    }


def test_a_dtype_does_not_depend_on_where_a_file_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "CHUNK_BYTES", 64)
    data = ("a,b\n" + "1,x\n" * 50 + "true,2\n" * 50).encode()
    assert [found.resolved() for found in FORMAT.open(loaded(data)).find_columns()] == columns(a="bool", b="string")


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_missing_value_is_named_by_its_row_in_the_file_and_the_first_such_column(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = {"csv": csv_module, "jsonl": jsonl_module}[format]
    monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    rows: list[tuple[int | None, int | None]] = [(1, 2)] * 99
    rows[40], rows[70] = (1, None), (None, 2)
    lines = ["a,b"] + [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    objects = [json.dumps(dict(zip("ab", row))) for row in rows]
    opened = (FORMAT if format == "csv" else JSONL).open(loaded("\n".join(lines if format == "csv" else objects).encode()))
    with pytest.raises(DataError, match="the value is missing") as caught:
        opened.convert(columns(a="int64", b="int64"), ["b"])
    assert (caught.value.row, caught.value.column) == (71, "a")


def test_a_row_longer_than_a_block_is_read() -> None:
    long = "x" * 3_000_000
    data = f'a,b\n1,short\n2,"{long}\n{long}"\n3,end\n'.encode()
    assert converted(FORMAT, data)["b"] == ["short", f"{long}\n{long}", "end"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_the_specs(delimiter: str) -> None:
    data = f"a{delimiter}b\n1,5{delimiter}x,y\n".encode()
    assert converted(Csv(CsvFormat(kind="csv", delimiter=delimiter)), data) == {"a": ["1,5"], "b": ["x,y"]}


BAD: dict[str, tuple[bytes, int | None, str | None, str]] = {
    "empty": (b"", None, None, "the file is empty"),
    "only line breaks": (b"\r\n\n", None, None, "the file is empty"),
    "no rows": (b"a,b\n", None, None, "no rows"),
    "a column twice": (b"a,a\n1,2\n", None, "a", "twice"),
    "a column without a name": (b"a,\n1,2\n", None, None, "without a name"),
    "too few fields": (b"a,b\n1,2\n3\n", 2, None, "1 fields, the header has 2"),
    "too many fields": (b"a,b\n1,2\n\n3,4,5\n", 2, None, "3 fields, the header has 2"),
    "too many fields, quoted": (b'a,b\n"1,2",3\n"3,4",4,"5\n"\n', 2, None, "3 fields, the header has 2"),
    "a quote inside": (b'a,b\n1,2\n1,x"y\n', 2, "b", "bad quote"),
    "text after a quote": (b'a,b\n"x" ,2\n', 1, "a", "bad quote"),
    "an open quote": (b'a,b\n1,2\n3,"x\n5,6\n', 2, "b", "never closed"),
    "an open quote, then a good one": (b'a,b\n1,"x\n5,"6"\n', 1, "b", "bad quote"),
    "not UTF-8": (b"a,b\n1,2\n2,caf\xe9\n", 2, "b", "byte 0xe9 is not UTF-8"),
    "not UTF-8 in the header": (b"a,\xe9\n1,2\n", None, None, "in the header"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), None, None, "not UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_file_is_named_with_row_and_column(name: str) -> None:
    data, row, column, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        converted(FORMAT, data)
    assert (caught.value.file, caught.value.row, caught.value.column) == ("f.csv", row, column)


BAD_CELLS: dict[str, tuple[str, int, str, str]] = {
    "text": ("1,1,true\n2,2,true\n3,x,true\n", 3, "b", "'x' is not float64"),
    "text, quoted, over lines": ('1,1,true\n2,"x\n,y",true\n', 2, "b", r"'x\\n,y' is not float64"),
    "a missing integer": ("1,1,true\n,2,true\n", 2, "a", "the value is missing"),
    "a missing truth value": ("1,1,true\n2,2,\n", 2, "c", "the value is missing"),
    "digits and letters": ("1,1,true\n12abc,2,true\n", 2, "a", "is not int64"),
}


@pytest.mark.parametrize("name", BAD_CELLS)
def test_a_bad_cell_is_named_with_row_and_column(name: str) -> None:
    text, row, column, message = BAD_CELLS[name]
    with pytest.raises(DataError, match=message) as caught:
        converted(FORMAT, f"a,b,c\n{text}".encode(), columns(a="int64", b="float64", c="bool"))
    assert (caught.value.row, caught.value.column) == (row, column)


@given(st.integers(1, 60), st.data())
def test_the_first_bad_cell_is_found_among_any_number_of_rows(n: int, data: st.DataObject) -> None:
    bad = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3))
    rows = ["x" if i in bad else str(i) for i in range(n)] + ["0"]
    with pytest.raises(DataError) as caught:
        converted(FORMAT, ("a,b\n" + "".join(f"{row},1\n" for row in rows)).encode(), columns(a="int64", b="int64"))
    assert (caught.value.row, caught.value.column) == (min(bad) + 1, "a")


MISMATCHES: dict[str, tuple[bytes, str, str]] = {
    "another name": (b"a,c\n1,2\n", "a, b", "a, c"),
    "another order": (b"b,a\n1,2\n", "a, b", "b, a"),
    "a column more": (b"a,b,c\n1,2,3\n", "a, b", "a, b, c"),
    "a column less": (b"a\n1\n", "a, b", "a"),
    "numbers with a fraction for integers": (b"a,b\n1,2\n1.5,3\n", "a int64", "a float64"),
    "text for numbers": (b"a,b\n1,x\n2,y\n", "b float64", "b string"),
    "truth values for numbers": (b"a,b\n1,true\n2,false\n", "b float64", "b bool"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_other_columns_than_the_datasets_are_refused_naming_both(name: str) -> None:
    data, expected, found = MISMATCHES[name]
    with pytest.raises(SchemaMismatch) as caught:
        converted(FORMAT, data, columns(a="int64", b="float64"))
    assert (caught.value.expected, caught.value.found) == (expected, found)


def test_integers_are_fine_where_the_dataset_says_float64() -> None:
    assert converted(FORMAT, b"a\n1\n2\n", columns(a="float64")) == {"a": [1.0, 2.0]}
