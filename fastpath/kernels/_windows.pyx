# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Keyed marks of all windows of 16 bytes, held against a filter. ``fastpath.arrays.windows`` has checked the arguments."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    WIDTH = 16


cdef struct Filter:
    uint64_t offset         # the mark of a window (a, b) is the upper half of offset + a * first + b * second
    uint64_t first
    uint64_t second
    const uint8_t* bits     # 2 ** (32 - shift) of them
    int shift


cdef inline bint _has(const Filter* filter, uint32_t place) noexcept nogil:
    return filter.bits[place >> 3] >> (place & 7) & 1


cdef inline uint32_t _mark(const uint8_t* window, const Filter* filter) noexcept nogil:
    cdef uint64_t a, b
    memcpy(&a, window, 8)
    memcpy(&b, window + 8, 8)
    return <uint32_t>((filter.offset + a * filter.first + b * filter.second) >> 32)


cdef Py_ssize_t _candidates(
    const uint8_t* data,        # IN
    Py_ssize_t* at,             # IN/OUT: first window that was not looked at
    Py_ssize_t stop,
    const Filter* filter,
    int64_t* positions,         # OUT
    uint32_t* marks,            # OUT
    Py_ssize_t room,
) noexcept nogil:
    cdef Py_ssize_t i = at[0], n = 0
    cdef uint32_t mark
    while i < stop and n < room:
        mark = _mark(data + i, filter)
        # The second bit is looked up for the few windows that have the first.
        if _has(filter, mark >> filter.shift) and _has(filter, (mark * <uint32_t>0x9E3779B1u) >> filter.shift):
            positions[n], marks[n] = i, mark
            n += 1
        i += 1
    at[0] = i
    return n


def candidates(
    const uint8_t[::1] data,
    Py_ssize_t start,
    const uint64_t[::1] key,
    const uint8_t[::1] bits,
    int shift,
    int64_t[::1] positions,
    uint32_t[::1] marks,
):
    """Fill ``positions`` and ``marks`` with windows of ``data[start:]`` that pass; returns their number and where to go on."""
    cdef Filter filter
    cdef Py_ssize_t at = start, stop = data.shape[0] - WIDTH + 1, n = 0
    if at >= stop:
        return 0, at
    filter.offset, filter.first, filter.second = key[0], key[1], key[2]
    filter.bits, filter.shift = &bits[0], shift
    with nogil:
        n = _candidates(&data[0], &at, stop, &filter, &positions[0], &marks[0], positions.shape[0])
    return n, at
