"""Gathering of byte ranges of one buffer into another, in any order and with repetitions."""

import numpy as np

from fastpath.array_types import ByteArray, Int64Array
from fastpath.kernels._gather import copy_ranges


def gather_ranges(source: ByteArray, offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
    """Copy ranges of ``source`` one after the other.

    Args:
        source: ``uint8[m]``, contiguous; may be a read-only mapping.
        offsets: start of each range, ``int64[n]``.
        lengths: bytes of each range, ``int64[n]``; 0 is allowed.

    Returns:
        ``(buffer, out_offsets)``: range i is ``buffer[out_offsets[i]:out_offsets[i + 1]]``, with ``out_offsets`` of length n + 1.

    Raises:
        ValueError: a range does not lie inside ``source``, or shapes differ.

    >>> buffer, bounds = gather_ranges(np.frombuffer(b"abcdef", np.uint8), np.array([4, 0]), np.array([2, 3]))
    >>> buffer.tobytes(), bounds.tolist()
    (b'efabc', [0, 2, 5])
    """
    out_offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out_offsets[1:])
    _check_ranges("source", source, offsets, lengths)
    out = np.empty(int(out_offsets[-1]), dtype=np.uint8)
    copy_ranges(source, offsets, lengths, out_offsets[:-1], out)
    return out, out_offsets


def gather_into(source: ByteArray, offsets: Int64Array, lengths: Int64Array, out: ByteArray, out_offsets: Int64Array) -> None:
    """Copy ranges of ``source`` into a given buffer: range i goes to ``out[out_offsets[i]:]``.

    Raises:
        ValueError: a range does not lie inside ``source`` or ``out``, or shapes differ.
    """
    _check_ranges("source", source, offsets, lengths)
    _check_ranges("out", out, out_offsets, lengths)
    copy_ranges(source, offsets, lengths, out_offsets, out)


def _check_ranges(name: str, buffer: ByteArray, offsets: Int64Array, lengths: Int64Array) -> None:
    if offsets.shape != lengths.shape or offsets.ndim != 1:
        raise ValueError(f"offsets and lengths must be int64[n] each, not {offsets.shape} and {lengths.shape}")
    if len(lengths) == 0:
        return
    # Written so that nothing overflows: offset + length may not fit 64 bits, size - offset does.
    outside = (offsets < 0) | (lengths < 0) | (offsets > len(buffer)) | (lengths > len(buffer) - offsets)
    if outside.any():
        i = int(np.argmax(outside))
        raise ValueError(f"range {i}, {lengths[i]} bytes at {offsets[i]}, lies outside {name} of {len(buffer)} bytes")
