"""Numbers as planes of bytes, plain or as differences: what compressors that know no numbers compress well.

Trained weights share their exponents and move little: byte planes put what repeats side by side, and the difference to an
earlier version leaves the high planes almost empty. Every function is exact for every bit pattern.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath import _words

#: Bytes in one piece.
Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

#: Bytes of a word that the kernels know.
WIDTHS: Final = (1, 2, 4, 8)


class Mode(IntEnum):
    """What happens to a word before its bytes are parted."""

    #: Nothing.
    PLAIN = 0
    #: The sign goes from the top to the bottom, so that the exponent fills the top byte.
    ROTATE = 1
    #: Exclusive or with the base's word.
    XOR = 2
    #: Minus the base's word as integers, the sign of the difference at the bottom.
    SUBTRACT = 3
    #: The same on integers in the order of the floats.
    SUBTRACT_FLOAT = 4

    @property
    def needs_base(self) -> bool:
        """Whether words of another version take part."""
        return self >= Mode.XOR


def split(words: Buffer, base: Buffer | None, mode: Mode, width: int) -> npt.NDArray[np.uint8]:
    """``uint8[width, n]``: plane k holds byte k (lowest first) of each of the n transformed words.

    Raises ``ValueError`` for buffers that do not fit together.
    """
    planes = np.empty((width, _n_words(words, base, mode, width)), np.uint8)
    split_into(planes, words, base, mode)
    return planes


def split_into(planes: npt.NDArray[np.uint8], words: Buffer, base: Buffer | None, mode: Mode) -> None:
    """Fill ``uint8[width, n]`` with what ``split`` returns; ``ValueError`` when it has another shape or is not contiguous."""
    width = planes.shape[0]
    if planes.shape != (width, _n_words(words, base, mode, width)) or not planes.flags.c_contiguous:
        raise ValueError(f"contiguous planes for {_n_bytes(words)} bytes in words of {width} are needed, not {planes.shape}")
    if planes.size:
        _words.split(words, words if base is None else base, mode, width, planes)


def join(planes: Sequence[Buffer], base: Buffer | None, mode: Mode, width: int, out: Buffer) -> None:
    """Fill ``out`` with the words that ``split`` made these planes of."""
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
