# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Words to planes of bytes and back. ``fastpath.arrays.planes`` has checked the arguments."""

from libc.stdint cimport uint8_t


cdef extern from "words.h" nogil:
    void fastpath_split(
        const uint8_t *words, const uint8_t *base, int mode, int width, size_t n, uint8_t *planes
    ) noexcept
    void fastpath_join(
        const uint8_t *const *planes, const uint8_t *base, int mode, int width, size_t n, uint8_t *words
    ) noexcept


def split(
    const uint8_t[::1] words,  # IN  [width n], n > 0
    const uint8_t[::1] base,  # IN  [width n]; not read in the plain modes
    int mode,
    int width,
    uint8_t[:, ::1] planes,  # OUT [width, n]
):
    """Copy byte k of transformed word i to ``planes[k, i]``."""
    cdef size_t n = planes.shape[1]
    with nogil:
        fastpath_split(&words[0], &base[0], mode, width, n, &planes[0, 0])


def join(
    list planes,  # IN  width buffers of n bytes, n > 0
    const uint8_t[::1] base,  # IN  [width n]; not read in the plain modes
    int mode,
    int width,
    uint8_t[::1] words,  # OUT [width n]
):
    """Inverse of ``split``."""
    cdef const uint8_t *starts[8]
    cdef const uint8_t[::1] plane
    cdef size_t n = words.shape[0] // width
    cdef list views = []
    cdef int k
    for k in range(width):
        plane = planes[k]
        views.append(plane)
        starts[k] = &plane[0]
    with nogil:
        fastpath_join(starts, &base[0], mode, width, n, &words[0])
