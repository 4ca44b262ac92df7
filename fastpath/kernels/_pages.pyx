# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Residency of the pages of mapped files, and reading of missing ones.

Arguments are not checked: a place outside a mapping costs time, but mincore and these advices of madvise do no harm.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posix.unistd cimport _SC_PAGESIZE, sysconf

from fastpath.kernels._needed cimport Rows, end_of, first_of, length_of, needed_spans, number_pages


cdef extern from "<sys/mman.h>" nogil:
    """
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22
    #endif
    """
    int MADV_HUGEPAGE
    int MADV_POPULATE_READ
    int MADV_WILLNEED
    int madvise(void* start, size_t length, int advice)
    int mincore(void* start, size_t length, unsigned char* resident)


cdef enum:
    # Pages of a block, which one fault reads in a mapping with MADV_HUGEPAGE.
    BLOCK = 512
    # Reads in flight before the first of them is waited for.
    IN_FLIGHT = 256

cdef int PAGE_BITS = int(sysconf(_SC_PAGESIZE)).bit_length() - 1


cdef struct Plan:
    uint64_t max_gap           # unneeded pages that are read to join two reads
    uint64_t max_read          # pages of one read
    uint64_t dense             # missing pages from which on a block is read whole
    bint visible               # whether the kernel shows which pages are in memory; if not, all count as missing


cdef struct Block:
    Py_ssize_t file
    uint64_t number
    uint64_t page[BLOCK]       # runs of missing pages
    uint64_t count[BLOCK]
    Py_ssize_t runs
    uint64_t missing


cdef struct Reads:
    uint64_t page[IN_FLIGHT]   # the last reads in flight
    uint64_t count[IN_FLIGHT]
    Py_ssize_t asked
    Py_ssize_t mapped
    uint64_t pages             # pages of all reads, whole blocks included


cdef inline int _advise(uint64_t page, uint64_t count, int advice) noexcept nogil:
    return madvise(<void*>(page << PAGE_BITS), count << PAGE_BITS, advice)


cdef bint _any_missing(const Rows* rows, Py_ssize_t sampled, uint64_t seed) noexcept nogil:
    # Check one page of some rows; every seed samples other rows.
    cdef Py_ssize_t look, i
    cdef uint64_t chance, start
    cdef int64_t length
    cdef unsigned char resident
    for look in range(min(sampled, rows.n)):
        chance = _scrambled(seed + <uint64_t>look)
        i = look if rows.n <= sampled else <Py_ssize_t>(chance % <uint64_t>rows.n)
        length = length_of(rows, i)
        if length <= 0 or rows.bases[rows.file[i]] == 0:
            continue
        start = rows.bases[rows.file[i]] + <uint64_t>rows.offset[i] + (chance >> 32) % <uint64_t>length
        if mincore(<void*>(start >> PAGE_BITS << PAGE_BITS), 1, &resident) == 0 and not resident & 1:
            return True
    return False


cdef inline uint64_t _scrambled(uint64_t x) noexcept nogil:
    # splitmix64: https://prng.di.unimi.it/splitmix64.c
    x += 0x9E3779B97F4A7C15u
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu
    return x ^ (x >> 31)


cdef int64_t _read(const Rows* rows, const uint64_t* spans, Py_ssize_t n, const uint64_t* starts, const Plan* plan) noexcept nogil:
    # Spans joined over gaps, cut at blocks. Returns the bytes of the missing pages.
    cdef Py_ssize_t i = 0, f = 0
    cdef uint64_t first, end, count, address
    cdef Block block
    cdef Reads reads
    block.file, block.number, block.runs, block.missing = -1, 0, 0, 0
    reads.asked, reads.mapped, reads.pages = 0, 0, 0
    while i < n:
        first, end = first_of(spans[i]), first_of(spans[i])
        while i < n and first_of(spans[i]) <= end + plan.max_gap:
            end = max(end, end_of(spans[i]))
            i += 1
        while starts[f + 1] <= first:
            f += 1
        while first < end:
            address = (rows.bases[f] >> PAGE_BITS) + first - starts[f]
            count = min(end - first, BLOCK - address % BLOCK)
            if block.file != f or block.number != address // BLOCK:
                _finish(&block, rows, &reads, plan.dense)
                block.file, block.number = f, address // BLOCK
            _look(&block, address, count, plan)
            first += count
    _finish(&block, rows, &reads, plan.dense)
    while reads.mapped < reads.asked:
        _map_oldest(&reads)
    return <int64_t>(reads.pages << PAGE_BITS)


cdef void _look(Block* block, uint64_t page, uint64_t count, const Plan* plan) noexcept nogil:
    # Note the pages that are not in memory, in runs of at most `max_read`.
    cdef unsigned char resident[BLOCK]
    cdef uint64_t i = 0, run
    memset(resident, 0, BLOCK)
    if plan.visible and mincore(<void*>(page << PAGE_BITS), count << PAGE_BITS, resident) != 0:
        return
    while i < count:
        run = 0
        while i + run < count and run < plan.max_read and not resident[i + run] & 1:
            run += 1
        if run > 0:
            block.page[block.runs], block.count[block.runs] = page + i, run
            block.runs += 1
            block.missing += run
        i += max(run, <uint64_t>1)


cdef void _finish(Block* block, const Rows* rows, Reads* reads, uint64_t dense) noexcept nogil:
    # Many missing pages: leave the block to its first touch, which reads it into one huge page. Few: read them ahead.
    cdef Py_ssize_t i
    cdef uint64_t first, last
    reads.pages += block.missing
    if block.missing >= dense:
        first = rows.bases[block.file] >> PAGE_BITS
        last = rows.bases[block.file] + <uint64_t>rows.sizes[block.file] - 1 >> PAGE_BITS
        if _advise(first, last - first + 1, MADV_HUGEPAGE) == 0:
            block.runs = 0
    for i in range(block.runs):
        _ask(reads, block.page[i], block.count[i])
    block.runs, block.missing = 0, 0


cdef void _ask(Reads* reads, uint64_t page, uint64_t count) noexcept nogil:
    # Start one read; with many in flight, first map the pages of the oldest.
    cdef Py_ssize_t slot = reads.asked % IN_FLIGHT
    if reads.asked - reads.mapped == IN_FLIGHT:
        _map_oldest(reads)
    _advise(page, count, MADV_WILLNEED)
    reads.page[slot], reads.count[slot] = page, count
    reads.asked += 1


cdef void _map_oldest(Reads* reads) noexcept nogil:
    # Wait for the pages. Before Linux 5.14, and for a page that cannot be read, the first touch does that.
    cdef Py_ssize_t slot = reads.mapped % IN_FLIGHT
    _advise(reads.page[slot], reads.count[slot], MADV_POPULATE_READ)
    reads.mapped += 1


cdef int64_t _bring_in(const Rows* rows, const Plan* plan, uint64_t* starts, uint64_t* spans, uint64_t* spare) noexcept nogil:
    cdef Py_ssize_t n
    number_pages(rows, plan.max_gap + 1, starts)
    spans = needed_spans(rows, starts, spans, spare, &n)
    return _read(rows, spans, n, starts, plan)


def bring_in(
    const uint64_t[::1] bases,
    const int64_t[::1] sizes,
    const int32_t[::1] file,
    const int64_t[::1] offset,
    const int64_t[::1] lengths,
    int64_t length,
    Py_ssize_t sampled,
    uint64_t seed,
    uint64_t max_gap,
    uint64_t max_read,
    uint64_t dense,
    bint visible,
):
    """Read, without the GIL, the missing pages of at least one row; returns their bytes.

    ``lengths`` None: all rows have ``length`` bytes. ``sampled``: rows of which one page is checked first, to see whether any
    is missing. ``max_gap``, ``max_read``, ``dense``, ``visible``: see ``Plan``.
    """
    cdef Rows rows
    cdef Plan plan
    cdef bint missing = not visible
    cdef int64_t brought
    cdef uint64_t* memory
    rows.bases, rows.sizes, rows.file, rows.offset = &bases[0], &sizes[0], &file[0], &offset[0]
    rows.length, rows.lengths = length, NULL
    if lengths is not None:
        rows.lengths = &lengths[0]
    rows.n, rows.n_files, rows.page_bits = file.shape[0], bases.shape[0], PAGE_BITS
    plan.max_gap, plan.max_read, plan.dense, plan.visible = max_gap, max_read, dense, visible
    if visible:
        with nogil:
            missing = _any_missing(&rows, sampled, seed)
    if not missing:
        return 0
    memory = <uint64_t*>malloc(sizeof(uint64_t) * <size_t>(rows.n_files + 1 + 2 * rows.n))
    if memory == NULL:
        raise MemoryError
    with nogil:
        brought = _bring_in(&rows, &plan, memory, memory + rows.n_files + 1, memory + rows.n_files + 1 + rows.n)
        free(memory)
    return brought
