from libc.stdint cimport uint64_t

ctypedef void (*Kernel)(void* arguments) noexcept nogil

# Put the handler of SIGBUS in place, with the GIL held, before `guarded` is called without it.
cdef int ready() except -1

# Run a kernel without the GIL: 0 when it ended, else the address that could not be read.
cdef uint64_t guarded(Kernel kernel, void* arguments) noexcept nogil
