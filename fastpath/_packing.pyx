# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The kernel behind ``packing``; shapes are checked there."""

from libc.stdint cimport uint8_t

DEF BLOCK = 1024


def pack(
    const uint8_t[::1] plane,  # IN  [n], n > 0 a multiple of 8 / bits
    int bits,  # 2 or 4
    uint8_t[::1] packed,  # OUT [n bits / 8]
    uint8_t[::1] large,  # OUT [n]; the first entries are filled
):
    """Numbers of ``bits`` bits, and how many did not fit and were appended to ``large``."""
    cdef size_t found, n = plane.shape[0]
    with nogil:
        found = _pack(&plane[0], n, bits, &packed[0], &large[0])
    return found


cdef size_t _pack(const uint8_t *plane, size_t n, int bits, uint8_t *packed, uint8_t *large) noexcept nogil:
    cdef uint8_t small[BLOCK]
    cdef uint8_t top = (1 << bits) - 1
    cdef uint8_t highest
    cdef size_t start, i, m, found = 0
    for start in range(0, n, BLOCK):
        m = n - start if n - start < BLOCK else BLOCK
        highest = 0
        for i in range(m):
            highest = plane[start + i] if plane[start + i] > highest else highest
            small[i] = plane[start + i] if plane[start + i] < top else top
        if highest >= top:
            for i in range(m):
                large[found] = plane[start + i]
                found += plane[start + i] >= top
        if bits == 2:
            for i in range(m // 4):
                packed[start // 4 + i] = (
                    small[4 * i] | (small[4 * i + 1] << 2) | (small[4 * i + 2] << 4) | (small[4 * i + 3] << 6)
                )
        else:
            for i in range(m // 2):
                packed[start // 2 + i] = small[2 * i] | (small[2 * i + 1] << 4)
    return found
