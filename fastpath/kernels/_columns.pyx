# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows gathered into typed columns, or unconverted, in one pass. ``fastpath.rows.columns`` has checked the arguments."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastpath.kernels._crew cimport PARTS_OF_A_THREAD, together
from fastpath.kernels._gathering cimport Places, address_of, fastpath_evict, fastpath_prefetch, fastpath_stream, fastpath_streamed
from fastpath.kernels._guard cimport ready


cdef extern from "convert.h" nogil:
    ctypedef void (*Convert "fastpath_operation")(
        const uint8_t* const* rows, int64_t n, int64_t source, int64_t count, uint8_t* out, int64_t stride
    ) noexcept
    cdef struct Named "fastpath_named":
        const char* name
        Convert operation
    const Named fastpath_operations[1]
    int64_t FASTPATH_OPERATIONS


cdef enum:
    BLOCK = 16                    # rows an operation does at a time
    RING = 64                     # rows with computed addresses: a block, and those ahead of it, which may be prefetched
    STAGE = 16384                 # bytes for a block of output rows, which stay in the first-level cache
    LARGE = 2097152               # bytes of output that exceed a core's own cache
    ALIGNED = 64                  # rows of any output that end at a multiple of 64 bytes
    PART = 2048                   # least rows of a part that another thread may do


cdef struct Operation:
    Convert convert
    int64_t source                # byte in the row
    int64_t count
    int64_t output                # number of the output
    int64_t target                # byte in a row of the output
    uint8_t* out                  # address of the next block
    int64_t stride                # bytes of a row of the output
    int64_t step                  # bytes to the block after it


cdef struct Output:
    uint8_t* out                  # address of the next block
    uint8_t* stage                # memory that operations write it to
    int64_t stride


cdef struct Gather:
    Places places                 # IN
    int64_t first                 # IN  first byte of a row that is read
    int64_t span                  # IN  number of bytes of a row that are read
    Operation* operation          # IN
    int64_t operations
    Output* output                # OUT
    int64_t outputs
    bint past                     # IN  write past the caches, through the stage
    bint ahead                    # IN  prefetch rows


OPERATIONS = {fastpath_operations[i].name.decode(): i for i in range(FASTPATH_OPERATIONS)}


cdef inline void _ask(const Gather* gather, const uint8_t** ring, int64_t i) noexcept nogil:
    ring[i % RING] = address_of(&gather.places, i)
    if gather.ahead:
        fastpath_prefetch(ring[i % RING] + gather.first, gather.span)


cdef void _aim(Gather* gather, uint8_t* stage) noexcept nogil:
    # Targets of the operations: the outputs, or the stage, reused for each block, one output behind the other.
    cdef Operation* operation
    cdef Output* output
    cdef int64_t k
    for k in range(gather.outputs):
        gather.output[k].stage = stage
        stage += BLOCK * gather.output[k].stride
    for k in range(gather.operations):
        operation = gather.operation + k
        output = gather.output + operation.output
        operation.stride = output.stride
        operation.out = (output.stage if gather.past else output.out) + operation.target
        operation.step = 0 if gather.past else BLOCK * output.stride


cdef void _gather(void* arguments) noexcept nogil:
    cdef Gather* gather = <Gather*>arguments
    cdef uint8_t memory[STAGE + 64]
    cdef const uint8_t* ring[RING]
    cdef Operation* operation
    cdef Output* output
    cdef int64_t n = gather.places.n
    cdef int64_t i, k, rows
    cdef int64_t start = 0
    _aim(gather, memory + 64 - <uint64_t>memory % 64)
    if gather.past:
        # The padding of records, which no operation writes, must not show old memory.
        memset(memory, 0, sizeof(memory))
    for i in range(min(RING - BLOCK, n)):
        _ask(gather, ring, i)
    while start < n:
        rows = min(BLOCK, n - start)
        for i in range(start + RING - BLOCK, min(start + RING, n)):
            _ask(gather, ring, i)
        for k in range(gather.operations):
            operation = gather.operation + k
            operation.convert(ring + start % RING, rows, operation.source, operation.count, operation.out, operation.stride)
            operation.out += operation.step
        if gather.past:
            for k in range(gather.outputs):
                output = gather.output + k
                fastpath_stream(output.out, output.stage, rows * output.stride)
                output.out += BLOCK * output.stride
        start += BLOCK
    fastpath_streamed()


cdef bint _goes_past(const int64_t[:, ::1] outputs, int64_t n):
    # A result larger than the cache would only evict other data, and each line would be read before it is written.
    cdef int64_t row = 0
    cdef Py_ssize_t k
    for k in range(outputs.shape[0]):
        row += outputs[k, 1]
        if outputs[k, 0] % 64:
            return False
    return n * row >= LARGE and BLOCK * row <= STAGE


cdef int64_t _part_rows(int64_t n, int64_t threads) noexcept:
    # Rows of each part but the last.
    cdef int64_t parts = max(min(threads * PARTS_OF_A_THREAD, n // PART), 1) if threads > 1 else 1
    return (-(-n // parts) + ALIGNED - 1) // ALIGNED * ALIGNED


cdef void _fill(Gather* gather, void* memory, const int64_t[:, ::1] operations, const int64_t[:, ::1] outputs, int64_t row):
    # Operations and outputs of a part that begins at a row; both are advanced while the part is done.
    cdef Py_ssize_t k
    gather.operation = <Operation*>memory
    gather.output = <Output*>(gather.operation + gather.operations)
    for k in range(gather.operations):
        gather.operation[k].convert = fastpath_operations[operations[k, 0]].operation
        gather.operation[k].source, gather.operation[k].count = operations[k, 1], operations[k, 2]
        gather.operation[k].output, gather.operation[k].target = operations[k, 3], operations[k, 4]
    for k in range(gather.outputs):
        gather.output[k].out, gather.output[k].stride = <uint8_t*><uint64_t>(outputs[k, 0] + row * outputs[k, 1]), outputs[k, 1]


def gather_columns(
    const uint64_t[::1] bases,
    const int32_t[::1] file,
    const int64_t[::1] offset,
    Py_ssize_t first,
    Py_ssize_t span,
    const int64_t[:, ::1] operations,
    const int64_t[:, ::1] outputs,
    int64_t threads,
    bint ahead,
):
    """Fill columns from rows in up to ``threads`` threads; returns 0, or an address that could not be read.

    ``first`` and ``span`` are the bytes of a row that are read. ``operations`` are rows of (operation, byte in the row, count,
    output, byte in the output's row), ``outputs`` of (address, bytes of a row). ``ahead``: prefetch rows; the bytes are the same.
    """
    cdef int64_t n = file.shape[0]
    cdef int64_t rows, parts, i
    cdef size_t room
    cdef Gather* gathers
    cdef Gather* gather
    cdef char* memory
    cdef uint64_t fault
    if n == 0 or operations.shape[0] == 0:
        return 0
    rows = _part_rows(n, threads)
    parts = (n + rows - 1) // rows
    # Before the allocation: it may raise.
    ready()
    room = operations.shape[0] * sizeof(Operation) + outputs.shape[0] * sizeof(Output)
    gathers = <Gather*>malloc(parts * (sizeof(Gather) + room))
    if gathers == NULL:
        raise MemoryError("the operations of a gather")
    memory = <char*>(gathers + parts)
    for i in range(parts):
        gather = gathers + i
        gather.places.base, gather.places.file, gather.places.offset = &bases[0], &file[i * rows], &offset[i * rows]
        gather.places.n, gather.first, gather.span = min(rows, n - i * rows), first, span
        gather.operations, gather.outputs = operations.shape[0], outputs.shape[0]
        gather.past, gather.ahead = _goes_past(outputs, n), ahead
        _fill(gather, memory + i * room, operations, outputs, i * rows)
    with nogil:
        fault = together(_gather, gathers, sizeof(Gather), parts, threads)
    free(gathers)
    return fault


def evict(const uint8_t[:, :] rows):
    """Write contiguous rows of bytes back and drop them from all caches, where the processor lets programs do so."""
    cdef Py_ssize_t i
    if rows.shape[1]:
        for i in range(rows.shape[0]):
            fastpath_evict(&rows[i, 0], rows.shape[1])
