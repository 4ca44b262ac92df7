"""Planes of words are a bijection of the words, and what they hold is what the names say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.arrays.planes import WIDTHS, Buffer, Mode, join, split_into

DTYPES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def split(words: Buffer, base: Buffer | None, mode: Mode, width: int) -> np.ndarray:
    planes = np.empty((width, len(words) // width), np.uint8)
    split_into(planes, words, base, mode)
    return planes


def ordered(words: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats with these bits, by the definition."""
    lowest = np.iinfo(words.dtype).min
    return np.where(words < 0, ~words ^ lowest, words)


def zigzag(difference: np.ndarray, width: int) -> np.ndarray:
    wide = [2 * int(d) if d >= 0 else -2 * int(d) - 1 for d in difference]
    return np.array(wide, dtype=f"u{width}")


def expected_words(words: bytes, base: bytes, mode: Mode, width: int) -> np.ndarray:
    x, b = np.frombuffer(words, DTYPES[width]), np.frombuffer(base, DTYPES[width])
    bits: np.ndarray = x.view(f"u{width}")
    with np.errstate(over="ignore"):
        match mode:
            case Mode.ROTATE:
                rotated: np.ndarray = np.bitwise_or(bits << np.array(1, bits.dtype), bits >> np.array(8 * width - 1, bits.dtype))
                return rotated
            case Mode.XOR:
                different: np.ndarray = np.bitwise_xor(x, b)
                return different.view(bits.dtype)
            case Mode.SUBTRACT:
                return zigzag(x - b, width)
            case Mode.SUBTRACT_FLOAT:
                return zigzag(ordered(x) - ordered(b), width)
            case _:
                return bits


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mode", Mode)
@given(st.data())
def test_planes_hold_the_bytes_of_the_transformed_words_and_give_them_back(mode, width, data):
    n = data.draw(st.integers(0, 40) | st.sampled_from([1023, 1024, 1025, 2600]))
    words, base = (np.random.default_rng(data.draw(st.integers(0, 99))).bytes(n * width) for _ in range(2))
    planes = split(words, base if mode.needs_base else None, mode, width)
    expected = expected_words(words, base, mode, width).view(np.uint8).reshape(n, width).T
    assert np.array_equal(planes, expected)
    out = bytearray(n * width)
    join(list(planes), base if mode.needs_base else None, mode, width, out)
    assert bytes(out) == words


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=30))
def test_floats_that_are_neighbours_differ_by_one(values):
    here = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        # The largest float's neighbour is infinite.
        there = np.nextafter(here, np.float32(np.inf))
    planes = split(there.view(np.uint8), here.view(np.uint8), Mode.SUBTRACT_FLOAT, 4)
    steps = planes.T.copy().view(np.uint32)[:, 0]
    # Two patterns stand for zero.
    assert set(steps[(here != 0) & (there != 0) & np.isfinite(here)].tolist()) <= {2}


@pytest.mark.parametrize(
    ("words", "base", "mode", "width"),
    [
        (b"123", None, Mode.PLAIN, 2),
        (b"12", b"1", Mode.XOR, 1),
        (b"12", None, Mode.XOR, 1),
        (b"12", b"12", Mode.PLAIN, 1),
        (b"123", None, Mode.PLAIN, 3),
    ],
)
def test_what_does_not_fit_together_is_refused(words, base, mode, width):
    with pytest.raises(ValueError, match="bytes"):
        split(words, base, mode, width)


def test_planes_of_another_number_or_length_are_refused():
    for planes in ([b"12"], [b"12", b"1"], [b"12", b"12", b"12"]):
        with pytest.raises(ValueError, match="2 planes of 2 bytes"):
            join(planes, None, Mode.PLAIN, 2, bytearray(4))


@pytest.mark.parametrize(
    "planes",
    [
        np.empty((4, 3), np.uint8),
        np.empty((3, 4), np.uint8),
        np.empty((4, 8), np.uint8)[:, ::2],
        np.empty((4, 4), np.uint8).T[::-1],
    ],
    ids=["few", "other width", "apart", "backwards"],
)
def test_planes_of_another_shape_are_not_filled(planes):
    before = planes.copy()
    with pytest.raises(ValueError, match=r"planes for 16 bytes|no words of"):
        split_into(planes, bytes(range(16)), None, Mode.PLAIN)
    assert np.array_equal(planes, before)
