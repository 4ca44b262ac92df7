# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Samples of any length, copied one behind the other. ``fastpath.rows.requests`` has checked the arguments."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from fastpath.kernels._crew cimport PARTS_OF_A_THREAD, together
from fastpath.kernels._gathering cimport Places, address_of, fastpath_copy, fastpath_prefetch
from fastpath.kernels._guard cimport ready


cdef enum:
    AHEAD = 48                    # samples between the prefetch of one and its copy
    PART = 262144                 # least bytes of a part that another thread may copy, on average


cdef struct Ranges:
    Places places                 # IN
    const int64_t* out_offset     # IN  [n + 1] offset of each in out, its separator included
    const uint8_t* separator      # IN
    int64_t separator_bytes       # IN
    uint8_t* out                  # OUT


cdef inline int64_t _length(const Ranges* ranges, int64_t i) noexcept nogil:
    return ranges.out_offset[i + 1] - ranges.out_offset[i] - ranges.separator_bytes


cdef void _copy_ranges(void* arguments) noexcept nogil:
    cdef Ranges* ranges = <Ranges*>arguments
    cdef const Places* places = &ranges.places
    cdef int64_t i, length
    for i in range(min(AHEAD, places.n)):
        fastpath_prefetch(address_of(places, i), _length(ranges, i))
    for i in range(places.n):
        if i + AHEAD < places.n:
            fastpath_prefetch(address_of(places, i + AHEAD), _length(ranges, i + AHEAD))
        length = _length(ranges, i)
        fastpath_copy(ranges.out + ranges.out_offset[i], address_of(places, i), length)
        fastpath_copy(ranges.out + ranges.out_offset[i] + length, ranges.separator, ranges.separator_bytes)


def copy_ranges(
    const uint64_t[::1] bases,
    const int32_t[::1] file,
    const int64_t[::1] offset,
    const int64_t[::1] out_offsets,
    const uint8_t[::1] separator,
    uint8_t[::1] out,
    int64_t threads,
):
    """Copy sample i and a separator to ``out[out_offsets[i]:out_offsets[i + 1]]`` in up to ``threads`` threads.

    Returns 0, or an address that could not be read.
    """
    cdef int64_t n = out_offsets.shape[0] - 1
    cdef int64_t samples, parts, i
    cdef Ranges* ranges
    cdef Ranges* part
    cdef uint64_t fault
    if n <= 0 or out.shape[0] == 0:
        return 0
    parts = max(min(threads * PARTS_OF_A_THREAD, n, (out_offsets[n] - out_offsets[0]) // PART), 1) if threads > 1 else 1
    samples = (n + parts - 1) // parts
    parts = (n + samples - 1) // samples
    ready()
    ranges = <Ranges*>malloc(parts * sizeof(Ranges))
    if ranges == NULL:
        raise MemoryError("the parts of a copy")
    for i in range(parts):
        part = ranges + i
        part.places.base, part.places.file, part.places.offset = &bases[0], &file[i * samples], &offset[i * samples]
        part.places.n, part.out_offset, part.out = min(samples, n - i * samples), &out_offsets[i * samples], &out[0]
        part.separator = &separator[0] if separator.shape[0] else NULL
        part.separator_bytes = separator.shape[0]
    with nogil:
        fault = together(_copy_ranges, ranges, sizeof(Ranges), parts, threads)
    free(ranges)
    return fault


def first_outside(
    const int32_t[::1] file, const int64_t[::1] offset, const int64_t[::1] length, const int64_t[::1] sizes
):
    """First range that is not inside its file; -1 when all are. Without the GIL."""
    cdef int64_t n = file.shape[0]
    cdef int64_t i, found = -1
    with nogil:
        for i in range(n):
            # Subtracted, not added: a sum could overflow.
            if offset[i] < 0 or length[i] < 0 or length[i] > sizes[file[i]] or offset[i] > sizes[file[i]] - length[i]:
                found = i
                break
    return found
