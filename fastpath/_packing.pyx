# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The kernel behind ``packing``; shapes are checked there."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr

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


def unpack(
    const uint8_t[::1] packed,  # IN  [n bits / 8, rounded up], n > 0
    int bits,  # 2 or 4
    const uint8_t[::1] large,  # IN
    uint8_t[::1] plane,  # OUT [n]
):
    """The inverse: whether ``packed`` and ``large`` are what ``pack`` makes of a plane, which then is ``plane``."""
    cdef const uint8_t *others = &large[0] if large.shape[0] else NULL
    cdef size_t n_large = large.shape[0]
    cdef bint found
    with nogil:
        found = _unpack(&packed[0], bits, others, n_large, &plane[0], plane.shape[0])
    return found


cdef bint _unpack(
    const uint8_t *packed, int bits, const uint8_t *large, size_t n_large, uint8_t *plane, size_t n
) noexcept nogil:
    cdef uint8_t top = (1 << bits) - 1
    cdef size_t per = 8 // bits
    cdef size_t whole = n // per
    cdef size_t i, used = 0
    cdef uint8_t *at
    cdef uint8_t *end = plane + n
    if bits == 2:
        for i in range(whole):
            plane[4 * i] = packed[i] & 3
            plane[4 * i + 1] = (packed[i] >> 2) & 3
            plane[4 * i + 2] = (packed[i] >> 4) & 3
            plane[4 * i + 3] = packed[i] >> 6
    else:
        for i in range(whole):
            plane[2 * i] = packed[i] & 15
            plane[2 * i + 1] = packed[i] >> 4
    for i in range(whole * per, n):
        plane[i] = (packed[whole] >> (bits * (i % per))) & top
    if n % per and packed[whole] >> (bits * (n % per)):
        return False
    # From one number that did not fit to the next.
    at = <uint8_t *> memchr(plane, top, n)
    while at != NULL:
        if used == n_large or large[used] < top:
            return False
        at[0] = large[used]
        used += 1
        at = <uint8_t *> memchr(at + 1, top, end - at - 1)
    return used == n_large


def at_least(const uint8_t[::1] plane):
    """How many numbers are 3 or more, and how many 15 or more."""
    cdef size_t i, three = 0, fifteen = 0
    with nogil:
        for i in range(<size_t> plane.shape[0]):
            three += plane[i] >= 3
            fifteen += plane[i] >= 15
    return three, fifteen
