# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Pixels to planes of channels. ``fastpath.arrays.planes`` has checked the arguments."""

from libc.stdint cimport uint8_t


cdef extern from "planes.h" nogil:
    void fastpath_three_planes(
        const uint8_t *pixels, size_t n, uint8_t *red, uint8_t *green, uint8_t *blue
    ) noexcept


def three_planes(
    const uint8_t[::1] pixels,  # IN  [3 n], n > 0
    uint8_t[:, ::1] planes,  # OUT [3, n]
):
    """Copy channel c of pixel i to ``planes[c, i]``."""
    cdef size_t n = planes.shape[1]
    with nogil:
        fastpath_three_planes(&pixels[0], n, &planes[0, 0], &planes[1, 0], &planes[2, 0])
