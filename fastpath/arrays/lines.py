"""Where the lines of a text begin and end, without a Python object per line."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpath.kernels._scan import contains, count_breaks
from fastpath.kernels._scan import find_lines as _find_lines

__all__ = ["Lines", "contains", "find_lines"]

ByteArray = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a text that hold at least one byte.

    Attributes:
        offsets: where each begins, ``int64[n]``.
        lengths: in bytes without the break behind it, ``int64[n]``.
        bad_quote: position of the first quote that stands where none may; None.
        unclosed_quote: position of the last quote if it opens a field that is never closed; None.
    """

    offsets: Int64Array
    lengths: Int64Array
    bad_quote: int | None = None
    unclosed_quote: int | None = None


def find_lines(data: ByteArray, start: int = 0, delimiter: str | None = None) -> Lines:
    """Lines of ``data[start:]``; LF, CR and CR LF end one.

    Args:
        data: ``uint8[n]``, contiguous; may be read-only.
        start: where the text begins.
        delimiter: an ASCII character; then quotes stand around whole fields, a quote inside is written twice, and a break
            inside ends no line (RFC 4180). None: quotes mean nothing.

    Raises:
        ValueError: ``start`` lies outside, or ``delimiter`` is no ASCII character.
    """
    if not 0 <= start <= len(data):
        raise ValueError(f"start must be in 0 .. {len(data)}, not {start}")
    if delimiter is not None and not (len(delimiter) == 1 and delimiter.isascii()):
        raise ValueError(f"the delimiter must be one ASCII character, not {delimiter!r}")
    room = count_breaks(data, start) + 1
    offsets, lengths = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    found = _find_lines(data, start, -1 if delimiter is None else ord(delimiter), offsets, lengths)
    n, bad, unclosed = found
    return Lines(_trimmed(offsets, n), _trimmed(lengths, n), *(None if at < 0 else at for at in (bad, unclosed)))


def _trimmed(values: Int64Array, n: int) -> Int64Array:
    """The first n; copied where a view would hold much more than it shows."""
    return values[:n] if n > len(values) * 3 // 4 else values[:n].copy()
