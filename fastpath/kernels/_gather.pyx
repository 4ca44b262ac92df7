# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Copies of byte ranges. ``fastpath.arrays.ranges`` has checked the arguments."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


cdef void _copy_ranges(
    const uint8_t* source,        # IN
    const int64_t* offset,        # IN  [n] start of each range in source
    const int64_t* length,        # IN  [n]
    const int64_t* out_offset,    # IN  [n] offset of each range in out
    Py_ssize_t n,
    uint8_t* out,                 # OUT
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(out + out_offset[i], source + offset[i], <size_t>length[i])


def copy_ranges(
    const uint8_t[::1] source,
    const int64_t[::1] offsets,
    const int64_t[::1] lengths,
    const int64_t[::1] out_offsets,
    uint8_t[::1] out,
):
    """Set ``out[out_offsets[i]:][:lengths[i]] = source[offsets[i]:][:lengths[i]]`` for every i, without the GIL."""
    cdef Py_ssize_t n = offsets.shape[0]
    if n == 0 or out.shape[0] == 0:
        return
    with nogil:
        _copy_ranges(&source[0], &offsets[0], &lengths[0], &out_offsets[0], n, &out[0])
