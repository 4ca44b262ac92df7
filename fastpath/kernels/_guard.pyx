# cython: language_level=3
"""Guard of kernels that read mapped files, against files that are cut short under them; see ``guard.h``.

The module owns the signal handler; other kernels cimport it. It has no Python interface.
"""


cdef extern from "guard.h" nogil:
    ctypedef void (*fastpath_kernel)(void* arguments)
    int fastpath_install_guard()
    void* fastpath_guarded(fastpath_kernel kernel, void* arguments)


cdef int ready() except -1:
    if fastpath_install_guard() != 0:
        raise OSError("the handler of SIGBUS cannot be set")
    return 0


cdef uint64_t guarded(Kernel kernel, void* arguments) noexcept nogil:
    return <uint64_t>fastpath_guarded(<fastpath_kernel>kernel, arguments)
