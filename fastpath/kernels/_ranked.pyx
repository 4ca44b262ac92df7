# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Ordered pairs of many intervals in one pass. ``fastpath.arrays.ordered_pairs`` has checked the arguments."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef void _add(
    const uint8_t* positive,      # IN  [n] by row
    const int32_t* order,         # IN  [n] rows, ascending by score
    const int32_t* rank,          # IN  [n] by row; equal ranks are ties
    const int32_t* first,         # IN  [n] by row: the intervals that hold it are first .. last - 1
    const int32_t* last,          # IN  [n]
    Py_ssize_t n,
    int64_t* doubled,             # OUT [m] twice the pairs in order, ties counting half
    int64_t* below,               # OUT [m] negatives so far
    int64_t* tied,                # scratch [m], zeros: negatives of the group of ties
) noexcept nogil:
    cdef Py_ssize_t begin = 0, end, i
    cdef int32_t row, j
    while begin < n:
        end = begin + 1
        while end < n and rank[order[end]] == rank[order[begin]]:
            end += 1
        if end == begin + 1:
            row = order[begin]
            if positive[row]:
                for j in range(first[row], last[row]):
                    doubled[j] += 2 * below[j]
            else:
                for j in range(first[row], last[row]):
                    below[j] += 1
        else:
            for i in range(begin, end):
                row = order[i]
                if not positive[row]:
                    for j in range(first[row], last[row]):
                        tied[j] += 1
            for i in range(begin, end):
                row = order[i]
                if positive[row]:
                    for j in range(first[row], last[row]):
                        doubled[j] += 2 * below[j] + tied[j]
            for i in range(begin, end):
                row = order[i]
                for j in range(first[row], last[row]):
                    below[j] += tied[j]
                    tied[j] = 0
        begin = end


def add(
    const uint8_t[::1] positive,
    const int32_t[::1] order,
    const int32_t[::1] rank,
    const int32_t[::1] first,
    const int32_t[::1] last,
    int64_t[::1] doubled,
    int64_t[::1] below,
    int64_t[::1] tied,
):
    """Fill in ``doubled`` and ``below``, without the GIL."""
    cdef Py_ssize_t n = order.shape[0]
    if n == 0 or below.shape[0] == 0:
        return
    with nogil:
        _add(&positive[0], &order[0], &rank[0], &first[0], &last[0], n, &doubled[0], &below[0], &tied[0])
