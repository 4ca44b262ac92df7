# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Keys and weights at any positions of a training set. ``fastpath.format.partitions`` has checked the arguments."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastpath.kernels._guard cimport guarded, ready


cdef enum:
    CHUNK = 256                   # positions that are located together


cdef struct Parts:
    const int64_t* start          # [m + 1] the first position of each partition, and n
    const int32_t* guess          # [(n >> shift) + 2] the partition of each 2^shift-th position
    int shift
    int64_t n


cdef struct Take:
    Parts parts                   # IN
    const uint64_t* key_at        # IN  [m] addresses; 0 only for partitions without a position
    const uint64_t* weight_at     # IN  [m]
    const int64_t* weight_mask    # IN  [m] 0 where all weights of a partition are equal, else -1
    const int64_t* position       # IN  [n_positions]
    int64_t n_positions
    uint64_t* keys                # OUT [n_positions]
    float* weights                # OUT [n_positions]
    int64_t outside               # OUT the first position outside the set, or -1


cdef struct Uniform:
    const uint32_t* weight        # IN  [n] as bits: -0 is not 0, and one NaN is like another
    int64_t n
    bint uniform                  # OUT


cdef struct Copy:
    const uint8_t* source
    size_t size
    uint8_t* out


cdef inline int64_t _partition_of(const Parts* parts, int64_t position) noexcept nogil:
    # Last partition that begins at or before the position, so never an empty one. The guesses nearly always leave one or two
    # to choose from, and the choice is made without a branch, which no processor could predict.
    cdef int64_t low = parts.guess[position >> parts.shift]
    cdef int64_t high = parts.guess[(position >> parts.shift) + 1]
    cdef int64_t middle
    while high - low > 1:
        middle = (low + high) >> 1
        if parts.start[middle] <= position:
            low = middle
        else:
            high = middle - 1
    return low + ((high - low) & (parts.start[high] <= position))


cdef inline bint _all_inside(const int64_t* position, int64_t n, int64_t least, int64_t most) noexcept nogil:
    # The sign of a difference gives the side: without a comparison any machine handles several at once. The numbers are
    # unsigned, whose differences may overflow.
    cdef uint64_t signs = 0
    cdef int64_t i
    for i in range(n):
        signs |= (<uint64_t>position[i] - <uint64_t>least) | (<uint64_t>most - <uint64_t>position[i])
    return <int64_t>signs >= 0


cdef int64_t _first_outside(const int64_t* position, int64_t n, int64_t n_all) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if position[i] < 0 or position[i] >= n_all:
            return i
    return -1


cdef void _take_of_one(const Take* take, int64_t partition, int64_t first, int64_t n) noexcept nogil:
    # Local copies: for the compiler, a write to the outputs could change a field of the struct.
    cdef const int64_t* position = take.position + first
    cdef const uint64_t* key_at = <const uint64_t*>take.key_at[partition] - take.parts.start[partition]
    cdef const float* weight_at = <const float*>take.weight_at[partition] - take.parts.start[partition]
    cdef uint64_t* keys = take.keys + first
    cdef float* weights = take.weights + first
    cdef float constant = (<const float*>take.weight_at[partition])[0]
    cdef int64_t i
    for i in range(n):
        keys[i] = key_at[position[i]]
    if take.weight_mask[partition]:
        for i in range(n):
            weights[i] = weight_at[position[i]]
    else:
        for i in range(n):
            weights[i] = constant


cdef void _take_of_many(const Take* take, int64_t first, int64_t n) noexcept nogil:
    cdef Parts parts = take.parts
    cdef const int64_t* position = take.position + first
    cdef const uint64_t* key_at = take.key_at
    cdef const uint64_t* weight_at = take.weight_at
    cdef const int64_t* weight_mask = take.weight_mask
    cdef uint64_t* keys = take.keys + first
    cdef float* weights = take.weights + first
    cdef int64_t i, partition, place
    for i in range(n):
        partition = _partition_of(&parts, position[i])
        place = position[i] - parts.start[partition]
        keys[i] = (<const uint64_t*>key_at[partition])[place]
        weights[i] = (<const float*>weight_at[partition])[place & weight_mask[partition]]


cdef void _take(void* arguments) noexcept nogil:
    # The loads of different positions are independent: the processor keeps as many in flight as it can.
    cdef Take* take = <Take*>arguments
    cdef int64_t first = 0
    cdef int64_t size, partition
    cdef const int64_t* start = take.parts.start
    take.outside = -1
    while first < take.n_positions:
        size = min(take.n_positions - first, <int64_t>CHUNK)
        if not _all_inside(take.position + first, size, 0, take.parts.n - 1):
            take.outside = first + _first_outside(take.position + first, size, take.parts.n)
            return
        partition = _partition_of(&take.parts, take.position[first])
        if _all_inside(take.position + first, size, start[partition], start[partition + 1] - 1):
            _take_of_one(take, partition, first, size)
        else:
            _take_of_many(take, first, size)
        first += size


cdef void _is_uniform(void* arguments) noexcept nogil:
    cdef Uniform* uniform = <Uniform*>arguments
    cdef int64_t i
    for i in range(uniform.n):
        if uniform.weight[i] != uniform.weight[0]:
            return
    uniform.uniform = True


cdef void _copy(void* arguments) noexcept nogil:
    cdef Copy* copy = <Copy*>arguments
    memcpy(copy.out, copy.source, copy.size)


cdef Parts _parts(const int64_t[::1] start, const int32_t[::1] guess, int shift):
    cdef Parts parts
    parts.start, parts.guess, parts.shift, parts.n = &start[0], &guess[0], shift, start[start.shape[0] - 1]
    return parts


def take(
    const int64_t[::1] start,
    const int32_t[::1] guess,
    int shift,
    const uint64_t[::1] key_at,
    const uint64_t[::1] weight_at,
    const int64_t[::1] weight_mask,
    const int64_t[::1] positions,
    uint64_t[::1] keys,
    float[::1] weights,
):
    """Copy keys and weights; returns the place of the first position outside the set or -1, and a fault's address or 0."""
    cdef Take arguments
    cdef uint64_t fault
    if positions.shape[0] == 0:
        return -1, 0
    if key_at.shape[0] == 0:
        return 0, 0
    arguments.parts = _parts(start, guess, shift)
    arguments.key_at, arguments.weight_at = &key_at[0], &weight_at[0]
    arguments.weight_mask = &weight_mask[0]
    arguments.position, arguments.n_positions = &positions[0], positions.shape[0]
    arguments.keys, arguments.weights = &keys[0], &weights[0]
    ready()
    with nogil:
        fault = guarded(_take, &arguments)
    return arguments.outside, fault


def mark(
    const int64_t[::1] start, const int32_t[::1] guess, int shift, const int64_t[::1] positions, uint8_t[::1] touched
):
    """Set ``touched[partition] = 1`` for each position; returns the place of the first one outside the set, or -1."""
    cdef Parts parts
    cdef int64_t i, outside
    if positions.shape[0] == 0:
        return -1
    parts = _parts(start, guess, shift)
    with nogil:
        outside = _first_outside(&positions[0], positions.shape[0], parts.n)
        if outside < 0:
            for i in range(positions.shape[0]):
                touched[_partition_of(&parts, positions[i])] = 1
    return outside


def is_uniform(uint64_t address, int64_t n):
    """True if n mapped weights are equal; False for unreadable ones."""
    cdef Uniform arguments
    arguments.weight, arguments.n, arguments.uniform = <const uint32_t*>address, n, False
    ready()
    with nogil:
        guarded(_is_uniform, &arguments)
    return bool(arguments.uniform)


def copy_out(uint64_t address, uint8_t[::1] out):
    """Copy mapped memory; returns the address of a page that cannot be read, or 0."""
    cdef Copy arguments
    cdef uint64_t fault
    if out.shape[0] == 0:
        return 0
    arguments.source, arguments.size, arguments.out = <const uint8_t*>address, out.shape[0], &out[0]
    ready()
    with nogil:
        fault = guarded(_copy, &arguments)
    return fault
