import json
import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.attributes import as_bytes, json_objects

ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(alphabet='ab"\\\n\t\x01é€\U0001f600/', max_size=6)
    ),
    min_size=1,
    max_size=10,
)


@given(ROWS, st.text(min_size=1, max_size=5))
def test_objects_hold_what_the_columns_hold(rows: list[tuple[int, float, bool, str]], odd_name: str) -> None:
    ints, floats, bools, texts = (list(column) for column in zip(*rows))
    columns = {f"{odd_name}1": pa.array(ints), "f": pa.array(floats), "b": pa.array(bools), "s": pa.array(texts)}
    objects = json_objects(columns, "f.csv")
    expected = [
        {f"{odd_name}1": i, "f": f if math.isfinite(f) else None, "b": b, "s": s}
        for i, f, b, s in zip(ints, floats, bools, texts)
    ]
    assert [json.loads(text) for text in objects.to_pylist()] == expected
    offsets, data = as_bytes(objects)
    assert [data[start:stop].tobytes().decode() for start, stop in pairwise(offsets)] == objects.to_pylist()


def test_bytes_of_a_part_of_the_objects_are_those_of_the_part() -> None:
    objects = json_objects({"a": pa.array(range(10))}, "f")[3:5]
    offsets, data = as_bytes(objects)
    assert data[offsets[0] : offsets[-1]].tobytes() == b'{"a": 3}{"a": 4}'


def test_timestamps_are_text() -> None:
    [text] = json_objects({"t": pa.array([1_500_000], pa.timestamp("us"))}, "f").to_pylist()
    assert json.loads(text) == {"t": "1970-01-01 00:00:01.500000"}


def test_a_null_character_is_refused_with_its_row() -> None:
    with pytest.raises(DataError, match="null character") as caught:
        json_objects({"s": pa.array(["a", "b\0"])}, "f")
    assert (caught.value.row, caught.value.column) == (2, "s")
