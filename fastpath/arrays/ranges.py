"""Byte ranges of one buffer, in any order and as often as asked, into another."""

import numpy as np
import numpy.typing as npt

from fastpath.kernels._gather import copy_ranges

ByteArray = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]


def gather_ranges(source: ByteArray, offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
    """Ranges of ``source`` one after the other.

    Args:
        source: ``uint8[m]``, contiguous; may be a read-only mapping.
        offsets: ``int64[n]``, where each range starts.
        lengths: ``int64[n]``, in bytes; 0 is allowed.

    Returns:
        ``(buffer, out_offsets)``: range i is ``buffer[out_offsets[i]:out_offsets[i + 1]]``, with ``out_offsets`` of length n + 1.

    Raises:
        ValueError: a range does not lie inside ``source``, or shapes differ.
    """
    out_offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out_offsets[1:])
    _check_ranges("source", source, offsets, lengths)
    out = np.empty(int(out_offsets[-1]), dtype=np.uint8)
    copy_ranges(source, offsets, lengths, out_offsets[:-1], out)
    return out, out_offsets


def gather_into(source: ByteArray, offsets: Int64Array, lengths: Int64Array, out: ByteArray, out_offsets: Int64Array) -> None:
    """The same into places of a buffer that is there: range i goes to ``out[out_offsets[i]:]``.

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
