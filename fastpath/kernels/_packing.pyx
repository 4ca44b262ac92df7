# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Packing of planes of small numbers. ``fastpath.arrays.planes`` has checked the arguments."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef extern from *:
    int __builtin_ctzll(unsigned long long) noexcept nogil


DEF BLOCK = 1024

# Table of the numbers in every packed byte: one load and one store are faster than four shifts.
cdef uint8_t QUARTERS[4 * 256]
cdef uint8_t HALVES[2 * 256]
cdef int _byte, _place
for _byte in range(256):
    for _place in range(4):
        QUARTERS[4 * _byte + _place] = (_byte >> (2 * _place)) & 3
    for _place in range(2):
        HALVES[2 * _byte + _place] = (_byte >> (4 * _place)) & 15


def pack(
    const uint8_t[::1] plane,  # IN  [n], n > 0 a multiple of 8 / bits
    int bits,  # 2 or 4
    uint8_t[::1] packed,  # OUT [n bits / 8]
    uint8_t[::1] large,  # OUT [n]; the first entries are filled
):
    """Pack numbers of ``bits`` bits; returns the number of misfits, which are appended to ``large``."""
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


cdef inline uint64_t _tops(const uint8_t *packed, size_t n, int bits) noexcept nogil:
    """Lowest bit of every number whose bits are all set, in eight or fewer bytes."""
    cdef uint64_t word = 0
    memcpy(&word, packed, 8 if n >= 8 else n)
    word &= word >> 1
    if bits == 2:
        return word & <uint64_t> 0x5555555555555555
    return word & (word >> 2) & <uint64_t> 0x1111111111111111


def unpack(
    const uint8_t[::1] packed,  # IN  [n bits / 8, rounded up], n > 0
    int bits,  # 2 or 4
    const uint8_t[::1] large,  # IN
    uint8_t[::1] plane,  # OUT [n]
):
    """Inverse of ``pack``: fill ``plane``; False if ``packed`` and ``large`` cannot come from ``pack``."""
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
    cdef size_t n_packed = (n + per - 1) // per
    cdef size_t i, at, used = 0
    cdef uint64_t tops
    if bits == 2:
        for i in range(whole):
            memcpy(plane + 4 * i, &QUARTERS[4 * packed[i]], 4)
    else:
        for i in range(whole):
            memcpy(plane + 2 * i, &HALVES[2 * packed[i]], 2)
    for i in range(whole * per, n):
        plane[i] = (packed[whole] >> (bits * (i % per))) & top
    if n % per and packed[whole] >> (bits * (n % per)):
        return False
    for i in range(0, n_packed, 8):
        tops = _tops(packed + i, n_packed - i, bits)
        while tops:
            if used == n_large or large[used] < top:
                return False
            at = i * per + __builtin_ctzll(tops) // bits
            plane[at] = large[used]
            used += 1
            tops &= tops - 1
    return used == n_large


def at_least(const uint8_t[::1] plane):
    """Count the numbers of 3 or more, and those of 15 or more."""
    cdef size_t i, three = 0, fifteen = 0
    with nogil:
        for i in range(<size_t> plane.shape[0]):
            three += plane[i] >= 3
            fifteen += plane[i] >= 15
    return three, fifteen
