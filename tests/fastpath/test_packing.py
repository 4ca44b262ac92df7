"""Packing small numbers: the kernel does what numpy does, number by number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.packing import BITS, pack_small


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
