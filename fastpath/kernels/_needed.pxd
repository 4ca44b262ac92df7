from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    # A span is one number, so that spans sort fast: its first page, and below it in COUNT_BITS bits its further pages.
    COUNT_BITS = 24


cdef struct Rows:
    const uint64_t* bases      # [n_files] address of each mapping, 0: not mapped
    const int64_t* sizes       # [n_files] its bytes
    const int32_t* file        # [n]
    const int64_t* offset      # [n]
    const int64_t* lengths     # [n] or NULL: all rows have `length` bytes
    int64_t length
    Py_ssize_t n
    Py_ssize_t n_files
    int page_bits


cdef inline int64_t length_of(const Rows* rows, Py_ssize_t i) noexcept nogil:
    return rows.length if rows.lengths == NULL else rows.lengths[i]


cdef inline uint64_t first_of(uint64_t span) noexcept nogil:
    return span >> COUNT_BITS


cdef inline uint64_t end_of(uint64_t span) noexcept nogil:
    return (span >> COUNT_BITS) + (span & ((<uint64_t>1 << COUNT_BITS) - 1)) + 1


cdef void number_pages(const Rows* rows, uint64_t apart, uint64_t* starts) noexcept nogil
cdef uint64_t* needed_spans(const Rows* rows, const uint64_t* starts, uint64_t* spans, uint64_t* spare, Py_ssize_t* n) noexcept nogil
