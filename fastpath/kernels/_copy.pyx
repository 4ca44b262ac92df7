# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Rows of Postgres' binary COPY format. ``fastpath.arrays.postgres_copy`` has checked the arguments."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from *:
    uint16_t bswap16 "__builtin_bswap16"(uint16_t) nogil
    uint32_t bswap32 "__builtin_bswap32"(uint32_t) nogil
    uint64_t bswap64 "__builtin_bswap64"(uint64_t) nogil


cdef inline uint8_t* _put_int16(uint8_t* out, int16_t value) noexcept nogil:
    cdef uint16_t swapped = bswap16(<uint16_t>value)
    memcpy(out, &swapped, 2)
    return out + 2


cdef inline uint8_t* _put_int32(uint8_t* out, int32_t value) noexcept nogil:
    cdef uint32_t swapped = bswap32(<uint32_t>value)
    memcpy(out, &swapped, 4)
    return out + 4


cdef inline uint8_t* _put_word(uint8_t* out, const void* word) noexcept nogil:
    # A field of 8 bytes: its length, then an integer or a double in network order.
    cdef uint64_t bits
    memcpy(&bits, word, 8)
    bits = bswap64(bits)
    out = _put_int32(out, 8)
    memcpy(out, &bits, 8)
    return out + 8


cdef inline uint8_t* _put_jsonb(uint8_t* out, const uint8_t* text, int64_t length) noexcept nogil:
    # jsonb travels as a version byte, 1, and the JSON text.
    out = _put_int32(out, <int32_t>(length + 1))
    out[0] = 1
    memcpy(out + 1, text, <size_t>length)
    return out + 1 + length


cdef uint8_t* _encode(
    const int64_t* keys,          # IN  [n]
    const int64_t* times,         # IN  [n]
    const int64_t* labels,        # IN  [n] or NULL: no such field
    const double* targets,        # IN  [n] or NULL
    const int64_t* text_offsets,  # IN  [n + 1] or NULL
    const uint8_t* text,          # IN
    Py_ssize_t n,
    uint8_t* out,                 # OUT
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int16_t fields = 2 + (labels != NULL) + (targets != NULL) + (text_offsets != NULL)
    for i in range(n):
        out = _put_int16(out, fields)
        out = _put_word(out, &keys[i])
        out = _put_word(out, &times[i])
        if labels != NULL:
            out = _put_word(out, &labels[i])
        if targets != NULL:
            out = _put_word(out, &targets[i])
        if text_offsets != NULL:
            out = _put_jsonb(out, text + text_offsets[i], text_offsets[i + 1] - text_offsets[i])
    return out


def encode(
    const int64_t[::1] keys,
    const int64_t[::1] times,
    const int64_t[::1] labels,
    const double[::1] targets,
    const int64_t[::1] text_offsets,
    const uint8_t[::1] text,
    uint8_t[::1] out,
):
    """Write all rows to ``out`` without the GIL; returns the bytes written. None stands for an absent field."""
    cdef Py_ssize_t n = keys.shape[0]
    cdef const int64_t* label = NULL
    cdef const double* target = NULL
    cdef const int64_t* text_offset = NULL
    cdef const uint8_t* text_start = NULL
    cdef uint8_t* end
    if n == 0:
        return 0
    if labels is not None:
        label = &labels[0]
    if targets is not None:
        target = &targets[0]
    if text_offsets is not None:
        text_offset = &text_offsets[0]
        text_start = &text[0]
    with nogil:
        end = _encode(&keys[0], &times[0], label, target, text_offset, text_start, n, &out[0])
    return end - &out[0]
