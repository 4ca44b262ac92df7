from libc.stdint cimport int64_t, uint64_t

from fastpath.kernels._guard cimport Kernel

cdef enum:
    # Parts for each thread: one that is slow, or late, leaves its share to others.
    PARTS_OF_A_THREAD = 4

# Run a kernel on each of so many arguments of `size` bytes in up to `threads` threads, guarded and without the GIL: 0 when all
# ended, else an address that could not be read; some parts may then not have begun. Call `ready` before.
cdef uint64_t together(Kernel kernel, void* arguments, size_t size, int64_t parts, int64_t threads) noexcept nogil
