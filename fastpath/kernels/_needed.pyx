# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Pages of the rows of mapped files, in ascending order."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset


cdef enum:
    DIGIT_BITS = 11


cdef void number_pages(
    const Rows* rows,             # IN
    uint64_t apart,               # IN  numbers left out between two files
    uint64_t* starts,             # OUT [n_files + 1] the number of each file's first page, then the end
) noexcept nogil:
    # One sequence over all files: few bits to sort by, and no span can reach from one file into the next.
    cdef Py_ssize_t f
    cdef uint64_t end = 0, last
    for f in range(rows.n_files):
        starts[f] = end
        if rows.bases[f] != 0 and rows.sizes[f] > 0:
            last = rows.bases[f] + <uint64_t>rows.sizes[f] - 1
            end += (last >> rows.page_bits) - (rows.bases[f] >> rows.page_bits) + 1 + apart
    starts[rows.n_files] = end


cdef uint64_t* needed_spans(
    const Rows* rows,             # IN
    const uint64_t* starts,       # IN  [n_files + 1]
    uint64_t* spans,              # OUT [n]
    uint64_t* spare,              # OUT [n]
    Py_ssize_t* n,                # OUT rows that have bytes in a mapping: the length of the result
) noexcept nogil:
    # One span per row, ascending by their first pages; the result is in one of the two buffers.
    cdef Py_ssize_t i
    cdef int32_t f
    cdef int64_t length
    cdef uint64_t first, further, previous = 0
    cdef bint ascending = True
    n[0] = 0
    for i in range(rows.n):
        f = rows.file[i]
        length = length_of(rows, i)
        if length <= 0 or rows.bases[f] == 0 or rows.offset[i] < 0 or length > rows.sizes[f] - rows.offset[i]:
            continue
        first = rows.bases[f] + <uint64_t>rows.offset[i]
        further = (first + <uint64_t>length - 1 >> rows.page_bits) - (first >> rows.page_bits)
        first = starts[f] + (first >> rows.page_bits) - (rows.bases[f] >> rows.page_bits)
        spans[n[0]] = first << COUNT_BITS | min(further, (<uint64_t>1 << COUNT_BITS) - 1)
        ascending &= previous <= first
        previous = first
        n[0] += 1
    return spans if ascending else _sorted(spans, spare, n[0], starts[rows.n_files])


cdef uint64_t* _sorted(uint64_t* spans, uint64_t* spare, Py_ssize_t n, uint64_t end) noexcept nogil:
    # Radix sort by first page, which is below `end`.
    cdef Py_ssize_t places[1 << DIGIT_BITS]
    cdef Py_ssize_t i, count, place
    cdef uint64_t digit
    cdef int shift = 0
    while end >> shift:
        memset(places, 0, sizeof(places))
        for i in range(n):
            places[first_of(spans[i]) >> shift & ((1 << DIGIT_BITS) - 1)] += 1
        place = 0
        for i in range(1 << DIGIT_BITS):
            count = places[i]
            places[i] = place
            place += count
        for i in range(n):
            digit = first_of(spans[i]) >> shift & ((1 << DIGIT_BITS) - 1)
            spare[places[digit]] = spans[i]
            places[digit] += 1
        spans, spare = spare, spans
        shift += DIGIT_BITS
    return spans
