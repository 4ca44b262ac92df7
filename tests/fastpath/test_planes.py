import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastpath.arrays.planes import to_planes

PIXELS = hnp.arrays(np.uint8, st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 3, 4])))


@given(PIXELS, st.booleans(), st.booleans())
def test_planes_are_the_transposed_pixels(pixels: npt.NDArray[np.uint8], reversed_rows: bool, in_a_window: bool) -> None:
    given_pixels = pixels[::-1] if reversed_rows else pixels
    expected = given_pixels.transpose(2, 0, 1)
    around = np.full((expected.shape[0], expected.shape[1] + 2, expected.shape[2] + 2), 7, dtype=np.uint8)
    out = around[:, 1:-1, 1:-1] if in_a_window else np.empty(expected.shape, dtype=np.uint8)
    to_planes(given_pixels, out)
    np.testing.assert_array_equal(out, expected)
    if in_a_window:
        around[:, 1:-1, 1:-1] = 7
        assert (around == 7).all()


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"out must have the shape \(3, 2, 4\), not \(3, 4, 2\)"):
        to_planes(np.zeros((2, 4, 3), np.uint8), np.zeros((3, 4, 2), np.uint8))
