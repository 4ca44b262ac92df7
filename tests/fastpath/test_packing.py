"""Packing small numbers: the kernel does what numpy does, number by number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.arrays.planes import BITS, count_large, pack_small, unpack_small


@given(st.binary(max_size=3000) | st.lists(st.integers(0, 16), max_size=3000).map(bytes), st.sampled_from(BITS))
def test_it_is_what_numpy_makes_of_it(content, bits):
    plane = np.frombuffer(content, np.uint8)
    top, per = 2**bits - 1, 8 // bits
    small = np.minimum(np.pad(plane, (0, -plane.size % per)), top).reshape(-1, per)
    expected = sum((small[:, k].astype(np.int64) << (bits * k) for k in range(per)), np.zeros(len(small), np.int64))
    packed, large = pack_small(plane, bits)
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(large, plane[plane >= top])


@pytest.mark.parametrize(
    ("plane", "bits"), [(np.zeros(4, np.uint8), 3), (np.zeros(4, np.int8), 2), (np.zeros((2, 2), np.uint8), 2)]
)
def test_what_is_no_plane_of_bytes_is_refused(plane, bits):
    with pytest.raises(ValueError, match="bits"):
        pack_small(plane, bits)


PLANES = st.binary(max_size=3000) | st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 14, 15, 255]), max_size=3000).map(bytes)


@given(PLANES, st.sampled_from(BITS))
def test_what_was_packed_comes_back(content, bits):
    plane = np.frombuffer(content, np.uint8)
    packed, large = pack_small(plane, bits)
    found = unpack_small(packed, bits, large, plane.size)
    assert found is not None
    np.testing.assert_array_equal(found, plane)


@given(st.binary(max_size=40), st.binary(max_size=4), st.integers(0, 60), st.sampled_from(BITS))
def test_what_comes_back_is_what_these_were_made_of(packed, large, n, bits):
    first, second = np.frombuffer(packed, np.uint8), np.frombuffer(large, np.uint8)
    plane = unpack_small(first, bits, second, n)
    if plane is not None:
        assert plane.size == n
        again, rest = pack_small(plane, bits)
        np.testing.assert_array_equal(again, first)
        np.testing.assert_array_equal(rest, second)


@pytest.mark.parametrize(
    ("packed", "bits", "large", "n"),
    [
        pytest.param([0b11], 2, [], 4, id="a large number is missing"),
        pytest.param([0], 2, [200], 4, id="one too many"),
        pytest.param([0b11], 2, [2], 4, id="it would have fitted"),
        pytest.param([0b0100], 2, [], 1, id="filled up with something"),
        pytest.param([0], 2, [], 5, id="too short"),
        pytest.param([0, 0], 4, [], 2, id="too long"),
        pytest.param([0], 3, [], 1, id="other bits"),
        pytest.param([], 2, [7], 0, id="numbers of nothing"),
    ],
)
def test_what_nothing_is_packed_to_is_not_unpacked(packed, bits, large, n):
    assert unpack_small(np.array(packed, np.uint8), bits, np.array(large, np.uint8), n) is None


@given(PLANES)
def test_large_numbers_are_counted(content):
    plane = np.frombuffer(content, np.uint8)
    assert count_large(plane) == {bits: np.count_nonzero(plane >= 2**bits - 1) for bits in BITS}
