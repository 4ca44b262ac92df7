"""Lines of a text, found without a Python object per line."""

from dataclasses import dataclass

import numpy as np

from fastpath.array_types import ByteArray, Int64Array
from fastpath.kernels import _scan


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a text that hold at least one byte.

    Attributes:
        offsets: first byte of each line, ``int64[n]``.
        lengths: bytes without the line break, ``int64[n]``.
        bad_quote: position of the first misplaced quote, if any.
        unclosed_quote: position of the last quote if it opens a field that is never closed.
    """

    offsets: Int64Array
    lengths: Int64Array
    bad_quote: int | None = None
    unclosed_quote: int | None = None


def find_lines(data: ByteArray, start: int = 0, delimiter: str | None = None) -> Lines:
    """Find the lines of ``data[start:]``, which end with LF, CR or CR LF.

    Quoting follows RFC 4180.

    Args:
        data: ``uint8[n]``, contiguous; may be read-only.
        start: first byte of the text.
        delimiter: an ASCII character; then quotes stand around whole fields, a quote inside a field is doubled, and a break
            inside ends no line. None: quotes have no meaning.

    Raises:
        ValueError: ``start`` lies outside, or ``delimiter`` is no ASCII character.

    >>> lines = find_lines(np.frombuffer(b"a,1\n\nbc,2", np.uint8))
    >>> lines.offsets.tolist(), lines.lengths.tolist()
    ([0, 5], [3, 4])
    """
    if not 0 <= start <= len(data):
        raise ValueError(f"start must be in 0 .. {len(data)}, not {start}")
    if delimiter is not None and not (len(delimiter) == 1 and delimiter.isascii()):
        raise ValueError(f"the delimiter must be one ASCII character, not {delimiter!r}")
    room = _scan.count_breaks(data, start) + 1
    offsets, lengths = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    n, bad, unclosed = _scan.find_lines(data, start, -1 if delimiter is None else ord(delimiter), offsets, lengths)
    return Lines(_trimmed(offsets, n), _trimmed(lengths, n), *(None if at < 0 else at for at in (bad, unclosed)))


def contains(data: ByteArray, byte: int) -> bool:
    """True if a byte occurs in contiguous ``uint8[n]``.

    >>> contains(np.frombuffer(b"abc", np.uint8), ord("c"))
    True
    """
    return _scan.contains(data, byte)


def _trimmed(values: Int64Array, n: int) -> Int64Array:
    """The first n values; copied where a view would hold much more memory than it shows."""
    return values[:n] if n > len(values) * 3 // 4 else values[:n].copy()
