# cython: language_level=3
"""Crew of threads that share a kernel's parts, one for the process; see ``crew.h``. It has no Python interface."""

from libc.stdint cimport int64_t, uint64_t

from fastpath.kernels._guard cimport guarded


cdef extern from "crew.h" nogil:
    ctypedef uint64_t (*fastpath_part)(void* work, int64_t part)
    uint64_t fastpath_together(fastpath_part kernel, void* work, int64_t parts, int64_t threads)
    void fastpath_forget_crew()


cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())


cdef struct Work:
    Kernel kernel
    char* arguments
    size_t size


cdef uint64_t _part(void* work, int64_t part) noexcept nogil:
    return guarded((<Work*>work).kernel, (<Work*>work).arguments + part * (<Work*>work).size)


cdef uint64_t together(Kernel kernel, void* arguments, size_t size, int64_t parts, int64_t threads) noexcept nogil:
    cdef Work work
    work.kernel, work.arguments, work.size = kernel, <char*>arguments, size
    return fastpath_together(_part, &work, parts, threads)


if pthread_atfork(NULL, NULL, fastpath_forget_crew) != 0:
    raise MemoryError("no room to register what a forked process does")
