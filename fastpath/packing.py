"""Planes of small numbers, two or four to a byte."""

from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath import _packing

Plane = npt.NDArray[np.uint8]

#: Bits of a number that the kernel knows.
BITS: Final = (2, 4)


def pack_small(plane: Plane, bits: int) -> tuple[Plane, Plane]:
    """``uint8[n]`` by ``bits`` a number, the first one lowest, and the numbers of ``2**bits - 1`` and above, in order.

    The last byte is filled up with zeros. Raises ``ValueError`` for other numbers of bits and for what is no plane.
    """
    if bits not in BITS or plane.ndim != 1 or plane.dtype != np.uint8:
        raise ValueError(f"{plane.dtype}{list(plane.shape)} by {bits} bits: bytes in one dimension and 2 or 4 bits are needed")
    per = 8 // bits
    missing = -plane.size % per
    whole = np.ascontiguousarray(plane if not missing else np.concatenate([plane, np.zeros(missing, np.uint8)]))
    packed, large = np.empty(whole.size // per, np.uint8), np.empty(whole.size, np.uint8)
    n_large = _packing.pack(whole, bits, packed, large) if whole.size else 0
    return packed, large[:n_large]


def unpack_small(packed: Plane, bits: int, large: Plane, n: int) -> Plane | None:
    """``uint8[n]`` that ``pack_small`` makes ``packed`` and ``large`` of; None if there is none."""
    if bits not in BITS or packed.size != -(-n * bits // 8):
        return None
    plane = np.empty(n, np.uint8)
    if not n:
        return None if large.size else plane
    return plane if _packing.unpack(packed, bits, large, plane) else None


def count_large(plane: Plane) -> dict[int, int]:
    """How many numbers of ``uint8[n]`` do not fit, by bits of a number."""
    return dict(zip(BITS, _packing.at_least(plane), strict=True))
