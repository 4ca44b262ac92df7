import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.data.rows.row_decoding import JsonlDecoder
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats import jsonl as jsonl_module
from modyn_dagster.ingestion.formats.jsonl import Jsonl
from modyn_dagster.spec.formats import JsonlFormat
from tests.ingestion.formats.loading import columns, converted, loaded, reread

FORMAT = Jsonl(JsonlFormat(kind="jsonl"))
SETTLED = columns(i="int64", f="float64", s="string", b="bool")

TEXT = st.text(alphabet='ab"\\{}\r\n\té€\U0001f600,:', max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**63), 2**63 - 1),
            "f": st.floats(allow_nan=False, allow_infinity=False),
            "s": TEXT,
            "b": st.booleans(),
        }
    ),
    min_size=1,
    max_size=10,
)


def lines(rows: list[dict[str, Any]], *, ascii_only: bool, indent: str = "") -> bytes:
    return "".join(f"{indent}{json.dumps(row, ensure_ascii=ascii_only)}{indent}\n{indent}\r\n" for row in rows).encode()


@given(ROWS, st.booleans(), st.sampled_from(["", " ", "\t "]), st.data())
def test_values_are_those_that_the_json_module_reads(
    rows: list[dict[str, Any]], ascii_only: bool, indent: str, data: st.DataObject
) -> None:
    content = lines([dict(data.draw(st.permutations(list(row.items())))) for row in rows], ascii_only=ascii_only, indent=indent)
    expected = {name: [row[name] for row in rows] for name in "ifsb"}
    assert converted(FORMAT, content, SETTLED) == expected
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    found = reread(JsonlDecoder(), content, FORMAT.open(loaded(content)), SETTLED, wanted)
    assert found == {name: [rows[row][name] for row in wanted] for name in "ifsb"}


def test_dtypes_are_inferred_and_dates_stay_text() -> None:
    data = lines(
        [{"i": 1, "f": 1, "d": "2020-01-01", "b": True}, {"i": 2, "f": 2.5, "d": "2020-01-02", "b": False}], ascii_only=True
    )
    found = [column.resolved() for column in FORMAT.open(loaded(data)).find_columns()]
    assert found == columns(i="int64", f="float64", d="string", b="bool")


def test_a_field_that_some_objects_lack_is_missing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_module, "CHUNK_BYTES", 40)
    data = lines([{"i": 1}] * 5 + [{"i": 2, "x": 3, "s": "t"}] + [{"x": None, "i": 4}] * 5, ascii_only=True)
    found = [column.resolved() for column in FORMAT.open(loaded(data)).find_columns()]
    assert found == columns(i="int64", x="float64", s="string")
    np.testing.assert_array_equal(converted(FORMAT, data)["x"], [np.nan] * 5 + [3.0] + [np.nan] * 5)
    assert converted(FORMAT, data)["s"] == [""] * 5 + ["t"] + [""] * 5


BAD: dict[str, tuple[bytes, int | None, str | None, str]] = {
    "empty": (b"\n \r\n", None, None, "the file is empty"),
    "no object": (b'{"i":1}\n[1]\n', 2, None, "not one JSON object"),
    "half an object": (b'{"i":1}\n\n{"i":\n2}\n', 2, None, "not one JSON object"),
    "two objects": (b'{"i":1}\n{"i":1}{"i":2}\n', 2, None, "not one JSON object"),
    "no JSON": (b'{"i":1}\n{"i":x}\n', 2, None, "not one JSON object"),
    "a field twice": (b'{"i":1}\n{"i":1,"i":2}\n', 2, "i", "twice"),
    "a nested object": (b'{"i":1}\n{"i":{"x":1}}\n', 2, "i", "nested"),
    "nested throughout": (b'{"i":[1]}\n{"i":[2]}\n', None, "i", "nested"),
    "mixed types": (b'{"i":1}\n{"i":"x"}\n', 2, "i", "'x' is not float64"),
    "not UTF-8": (b'{"i":1}\n{"i":"\xe9"}\n', 2, None, "byte 0xe9 is not UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_line_is_named_with_row_and_column(name: str) -> None:
    data, row, column, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        converted(FORMAT, data)
    assert (caught.value.row, caught.value.column) == (row, column)


BAD_VALUES: dict[str, tuple[bytes, int, str, str]] = {
    "text": (b'{"a":1,"b":1}\n{"a":2,"b":"x"}\n', 2, "b", "'x' is not float64"),
    "a missing integer": (b'{"a":1,"b":1}\n{"b":2}\n', 2, "a", "the value is missing"),
    "a null integer": (b'{"a":1,"b":1}\n{"a":null,"b":2}\n', 2, "a", "the value is missing"),
    "nested": (b'{"a":1,"b":1}\n{"a":[1],"b":2}\n', 2, "a", "nested"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_value_is_named_with_row_and_column(name: str) -> None:
    data, row, column, message = BAD_VALUES[name]
    with pytest.raises(DataError, match=message) as caught:
        converted(FORMAT, data, columns(a="int64", b="float64"))
    assert (caught.value.row, caught.value.column) == (row, column)


MISMATCHES: dict[str, tuple[bytes, str, str]] = {
    "a field more": (b'{"a":1,"b":2,"c":3}\n', "a, b", "a, b, c"),
    "a field less": (b'{"a":1}\n', "a, b", "a"),
    "numbers with a fraction for integers": (b'{"a":1,"b":1}\n{"a":1.5,"b":1}\n', "a int64", "a float64"),
    "text for numbers": (b'{"a":1,"b":"x"}\n', "b float64", "b string"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_other_fields_than_the_datasets_are_refused_naming_both(name: str) -> None:
    data, expected, found = MISMATCHES[name]
    with pytest.raises(SchemaMismatch) as caught:
        converted(FORMAT, data, columns(a="int64", b="float64"))
    assert (caught.value.expected, caught.value.found) == (expected, found)


def test_integers_are_fine_where_the_dataset_says_float64() -> None:
    assert converted(FORMAT, b'{"a":1}\n{"a":2}\n', columns(a="float64")) == {"a": [1.0, 2.0]}
