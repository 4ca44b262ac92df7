"""Planes: words to planes of bytes, planes of small numbers packed, pixels to planes of channels.

Trained weights share their exponents and move little: byte planes put repeated bytes side by side, and the difference to an
earlier version leaves the high planes almost empty. Every function is exact for every bit pattern.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray
from fastpath.kernels import _packing, _words
from fastpath.kernels._planes import three_planes


def to_planes(pixels: ByteArray, out: ByteArray) -> None:
    """Transpose ``uint8[h, w, c]`` to ``uint8[c, h, w]``, without the GIL; fastest for three channels in contiguous memory.

    >>> out = np.empty((2, 1, 3), np.uint8)
    >>> to_planes(np.array([[[1, 2], [3, 4], [5, 6]]], np.uint8), out)
    >>> out.tolist()
    [[[1, 3, 5]], [[2, 4, 6]]]
    """
    height, width, channels = pixels.shape
    if out.shape != (channels, height, width):
        raise ValueError(f"out must have the shape {(channels, height, width)}, not {out.shape}")
    contiguous = pixels.flags.c_contiguous and out.flags.c_contiguous and out.flags.writeable
    if channels == 3 and pixels.size and contiguous and pixels.dtype == out.dtype == np.uint8:
        three_planes(pixels.reshape(-1), out.reshape(3, -1))
    else:
        out[...] = pixels.transpose(2, 0, 1)


#: Contiguous bytes.
Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

#: Bytes of a word that the kernels support.
WIDTHS: Final = (1, 2, 4, 8)


class Mode(IntEnum):
    """Transformation of a word before its bytes are split."""

    #: None.
    PLAIN = 0
    #: Rotation of the sign from the top to the bottom, so that the exponent fills the top byte.
    ROTATE = 1
    #: Exclusive or with the base's word.
    XOR = 2
    #: Difference to the base's word as integers, with its sign at the bottom.
    SUBTRACT = 3
    #: Difference of integers in the order of the floats, with its sign at the bottom.
    SUBTRACT_FLOAT = 4

    @property
    def needs_base(self) -> bool:
        """True if the words of a base take part."""
        return self >= Mode.XOR


def split_into(planes: ByteArray, words: Buffer, base: Buffer | None, mode: Mode) -> None:
    """Fill ``uint8[width, n]``: plane k gets byte k (lowest first) of each of the n transformed words.

    Raises ``ValueError`` for buffers that do not fit together, and for planes that are not contiguous.
    """
    width = planes.shape[0]
    if planes.shape != (width, _n_words(words, base, mode, width)) or not planes.flags.c_contiguous:
        raise ValueError(f"contiguous planes for {_n_bytes(words)} bytes in words of {width} are needed, not {planes.shape}")
    if planes.size:
        _words.split(words, words if base is None else base, mode, width, planes)


def join(planes: Sequence[Buffer], base: Buffer | None, mode: Mode, width: int, out: Buffer) -> None:
    """Inverse of ``split_into``: fill ``out`` with the words."""
    n = _n_words(out, base, mode, width)
    if len(planes) != width or any(_n_bytes(plane) != n for plane in planes):
        raise ValueError(f"{width} planes of {n} bytes are needed")
    if n:
        _words.join(list(planes), out if base is None else base, mode, width, out)


def _n_words(words: Buffer, base: Buffer | None, mode: Mode, width: int) -> int:
    n_bytes = _n_bytes(words)
    if width not in WIDTHS or n_bytes % width:
        raise ValueError(f"{n_bytes} bytes are no words of {width} bytes")
    if mode.needs_base != (base is not None) or (base is not None and _n_bytes(base) != n_bytes):
        raise ValueError(f"mode {mode.name} with a base of {None if base is None else _n_bytes(base)} bytes")
    return n_bytes // width


def _n_bytes(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview | np.ndarray) else len(buffer)


#: Bits of a packed number that the kernel supports.
BITS: Final = (2, 4)


def pack_small(plane: ByteArray, bits: int) -> tuple[ByteArray, ByteArray]:
    """Pack ``uint8[n]`` with ``bits`` a number, the first one lowest; numbers of ``2**bits - 1`` and above follow apart.

    The last byte is filled up with zeros. Raises ``ValueError`` for other numbers of bits and for other arrays.

    >>> packed, large = pack_small(np.array([1, 2, 9, 0], np.uint8), 2)
    >>> packed.tolist(), large.tolist()
    ([57], [9])
    """
    if bits not in BITS or plane.ndim != 1 or plane.dtype != np.uint8:
        raise ValueError(f"{plane.dtype}{list(plane.shape)} by {bits} bits: bytes in one dimension and 2 or 4 bits are needed")
    per = 8 // bits
    missing = -plane.size % per
    whole = np.ascontiguousarray(plane if not missing else np.concatenate([plane, np.zeros(missing, np.uint8)]))
    packed, large = np.empty(whole.size // per, np.uint8), np.empty(whole.size, np.uint8)
    n_large = _packing.pack(whole, bits, packed, large) if whole.size else 0
    return packed, large[:n_large]


def unpack_small(packed: ByteArray, bits: int, large: ByteArray, n: int) -> ByteArray | None:
    """Inverse of ``pack_small``, ``uint8[n]``; None for bytes that ``pack_small`` cannot have returned."""
    if bits not in BITS or packed.size != -(-n * bits // 8):
        return None
    plane = np.empty(n, np.uint8)
    if not n:
        return None if large.size else plane
    return plane if _packing.unpack(packed, bits, large, plane) else None


def count_large(plane: ByteArray) -> dict[int, int]:
    """Count the numbers of ``uint8[n]`` that do not fit, by bits of a packed number."""
    return dict(zip(BITS, _packing.at_least(plane), strict=True))
