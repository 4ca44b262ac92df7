import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import gather_into, gather_ranges
from fastpath.array_types import ByteArray, Int64Array


@st.composite
def ranges(draw: st.DrawFn) -> tuple[ByteArray, Int64Array, Int64Array]:
    source = np.frombuffer(draw(st.binary(max_size=200)), dtype=np.uint8)
    pairs = draw(st.lists(st.tuples(st.integers(0, len(source)), st.integers(0, 50)), max_size=30))
    offsets = np.array([offset for offset, _ in pairs], dtype=np.int64)
    lengths = np.array([min(length, len(source) - offset) for offset, length in pairs], dtype=np.int64)
    return source, offsets, lengths


def gather_twin(source: ByteArray, offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
    parts = [source[offset : offset + length] for offset, length in zip(offsets, lengths)]
    return np.concatenate([*parts, np.empty(0, np.uint8)]), np.concatenate(([0], np.cumsum(lengths)))


@given(ranges())
def test_ranges_come_one_after_the_other(case: tuple[ByteArray, Int64Array, Int64Array]) -> None:
    buffer, offsets = gather_ranges(*case)
    expected_buffer, expected_offsets = gather_twin(*case)
    np.testing.assert_array_equal(buffer, expected_buffer)
    np.testing.assert_array_equal(offsets, expected_offsets)


@given(ranges(), st.data())
def test_ranges_go_where_they_are_sent_and_touch_nothing_else(
    case: tuple[ByteArray, Int64Array, Int64Array], data: st.DataObject
) -> None:
    source, offsets, lengths = case
    places = np.concatenate(([0], np.cumsum(lengths + 1))).astype(np.int64)
    order = np.array(data.draw(st.permutations(range(len(lengths)))), dtype=np.int64)
    out = np.full(int(places[-1]) + 3, 255, dtype=np.uint8)
    expected = out.copy()
    for i in order:
        expected[places[i] : places[i] + lengths[i]] = source[offsets[i] : offsets[i] + lengths[i]]
    gather_into(source, offsets[order], lengths[order], out, places[:-1][order])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 1), (0, 11), (10, 1), (11, 0), (3, -1), (2**62, 2**62), (1, 2**63 - 1)], ids=str
)
def test_a_range_outside_the_source_is_refused(offset: int, length: int) -> None:
    source = np.arange(10, dtype=np.uint8)
    with pytest.raises(ValueError, match="range 1"):
        gather_ranges(source, np.array([0, offset]), np.array([1, length]))


def test_a_place_outside_the_output_is_refused() -> None:
    source, out = np.arange(10, dtype=np.uint8), np.zeros(4, dtype=np.uint8)
    with pytest.raises(ValueError, match="lies outside out of 4 bytes"):
        gather_into(source, np.array([0]), np.array([3]), out, np.array([2]))
    assert not out.any()


def test_as_many_places_as_ranges_are_needed() -> None:
    source, out = np.arange(10, dtype=np.uint8), np.zeros(4, dtype=np.uint8)
    with pytest.raises(ValueError, match="offsets and lengths"):
        gather_into(source, np.array([0, 1]), np.array([1, 1]), out, np.array([0]))


def test_a_read_only_source_is_enough() -> None:
    source = np.frombuffer(b"abcdef", dtype=np.uint8)
    buffer, _ = gather_ranges(source, np.array([4, 0]), np.array([2, 1]))
    assert buffer.tobytes() == b"efa"
