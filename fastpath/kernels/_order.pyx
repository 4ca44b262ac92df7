# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Keyed bijections of ``range(n)``, a slice at a time. ``fastpath.order`` has checked the arguments."""

from libc.stdint cimport int64_t, uint16_t, uint64_t


cdef extern from "permute.h" nogil:
    enum: FASTPATH_ROUNDS
    ctypedef struct Rounds "fastpath_rounds":
        uint64_t factor[4]
        uint64_t term[4]
        uint64_t mask
        int shift
    void fastpath_walk_range(int64_t first, int64_t n, const Rounds* rounds, int64_t* out)
    void fastpath_walk_all(int64_t* values, int64_t n, const Rounds* rounds)


cdef enum:
    CHUNK = 2048                  # positions whose values and list of misses stay in the first-level cache
    MIN_BITS = 8                  # fewer bits have too few bijections of this kind


cdef inline uint64_t _mixed(uint64_t x) noexcept nogil:
    # The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef void _schedule(uint64_t key, uint64_t n, Rounds* rounds) noexcept nogil:
    cdef int bits = MIN_BITS
    cdef int i
    while bits < 63 and (<uint64_t>1 << bits) < n:
        bits += 1
    rounds.mask = (<uint64_t>1 << bits) - 1
    rounds.shift = (bits + 1) // 2
    for i in range(FASTPATH_ROUNDS):
        key += <uint64_t>0x9E3779B97F4A7C15
        rounds.factor[i] = _mixed(key) | 1
        key += <uint64_t>0x9E3779B97F4A7C15
        rounds.term[i] = _mixed(key)


cdef void _permute(
    uint64_t key,
    int64_t n,
    int64_t start,                # IN  0 <= start
    int64_t stop,                 # IN  stop <= n
    int64_t added,                # IN  added to every value
    int64_t* out,                 # OUT [stop - start]
) noexcept nogil:
    cdef Rounds rounds
    cdef uint16_t missed[CHUNK]
    cdef int64_t walked[CHUNK]
    cdef int64_t size, i, k, n_missed, n_left
    _schedule(key, <uint64_t>n, &rounds)
    while start < stop:
        size = min(stop - start, <int64_t>CHUNK)
        fastpath_walk_range(start, size, &rounds, out)
        # Values outside range(n) are permuted again; gathered without a branch, which no processor could predict.
        n_missed = 0
        for i in range(size):
            missed[n_missed], walked[n_missed] = <uint16_t>i, out[i]
            n_missed += out[i] >= n
        while n_missed:
            fastpath_walk_all(walked, n_missed, &rounds)
            n_left = 0
            for k in range(n_missed):
                i = missed[k]
                out[i] = walked[k]
                missed[n_left], walked[n_left] = <uint16_t>i, out[i]
                n_left += out[i] >= n
            n_missed = n_left
        for i in range(size):
            out[i] += added
        start, out = start + size, out + size


cdef int64_t _place_of(uint64_t key, int64_t n, int64_t value) noexcept nogil:
    cdef Rounds rounds
    cdef uint64_t inverse[FASTPATH_ROUNDS]
    cdef uint64_t x = <uint64_t>value
    cdef int i, k
    _schedule(key, <uint64_t>n, &rounds)
    for i in range(FASTPATH_ROUNDS):
        # Newton's iteration doubles the correct low bits: 3, 6, 12, 24, 48, 96.
        inverse[i] = rounds.factor[i]
        for k in range(5):
            inverse[i] *= 2 - rounds.factor[i] * inverse[i]
    while True:
        for i in range(FASTPATH_ROUNDS - 1, -1, -1):
            x ^= x >> rounds.shift
            x = ((x - rounds.term[i]) * inverse[i]) & rounds.mask
        if x < <uint64_t>n:
            return <int64_t>x


cdef void _permute_blocks(
    uint64_t key,
    int64_t n,
    int64_t size,                 # IN  of a block; the last may be shorter
    int64_t start,
    int64_t stop,
    int64_t* out,                 # OUT [stop - start]
) noexcept nogil:
    cdef int64_t n_blocks = (n + size - 1) // size
    cdef int64_t short_size = n - (n_blocks - 1) * size
    # Blocks before the short one begin at multiples of the size, those behind it that much earlier.
    cdef int64_t short_place = _place_of(key, n_blocks, n_blocks - 1)
    cdef int64_t short_start = short_place * size
    cdef int64_t at = start
    cdef int64_t place, block, begin, length, end
    while at < stop:
        if at < short_start + short_size:
            place = min(at // size, short_place)
            begin = place * size
        else:
            place = (at - short_size) // size + 1
            begin = (place - 1) * size + short_size
        _permute(key, n_blocks, place, place + 1, 0, &block)
        length = short_size if block == n_blocks - 1 else size
        end = min(stop, begin + length)
        _permute(_mixed(key ^ _mixed(<uint64_t>block + 1)), length, at - begin, end - begin, block * size, out + (at - start))
        at = end


def permute(uint64_t key, int64_t n, int64_t start, int64_t stop, int64_t[::1] out):
    """Compute values ``start`` to ``stop`` of the permutation of ``range(n)`` with this key."""
    if stop > start:
        with nogil:
            _permute(key, n, start, stop, 0, &out[0])


def permute_blocks(uint64_t key, int64_t n, int64_t size, int64_t start, int64_t stop, int64_t[::1] out):
    """Compute values of the permutation of blocks of ``size`` values, each permuted inside."""
    if stop > start:
        with nogil:
            _permute_blocks(key, n, size, start, stop, &out[0])


def place_of(uint64_t key, int64_t n, int64_t value):
    """Inverse of ``permute``: the place of a value. Used by tests only."""
    return _place_of(key, n, value)
