import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.ingestion.formats import base as text_module
from modyn_dagster.ingestion.formats.base import Ranges, first_bad_byte, span_bytes, spans

#: Whole characters of every length, pieces of them, and bytes that stand nowhere.
PARTS = [
    b"a",
    "é".encode(),
    "€".encode(),
    "\U0001f600".encode(),
    b"\xc3",
    b"\xe2\x82",
    b"\x80",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join), st.integers(1, 9))
def test_the_first_byte_that_is_not_utf8_is_the_one_python_names(data: bytes, step: int) -> None:
    try:
        data.decode("utf-8")
        expected = None
    except UnicodeDecodeError as error:
        expected = error.start
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_module, "STEP", step)
        assert first_bad_byte(np.frombuffer(data, dtype=np.uint8)) == expected


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 60))
def test_runs_of_lines_hold_every_line_once_and_are_no_longer_than_allowed(sizes: list[int], limit: int) -> None:
    lengths = np.array(sizes, dtype=np.int64)
    lines = Ranges(np.cumsum(lengths + 1) - lengths - 1, lengths)
    found = spans(lines, limit)
    assert [line for span in found for line in range(span.start, span.stop)] == list(range(len(sizes)))
    data = np.zeros(int(lengths.sum()) + len(sizes), dtype=np.uint8)
    assert all(len(span_bytes(data, lines, span)) <= limit or span.stop - span.start == 1 for span in found)
