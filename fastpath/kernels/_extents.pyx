# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Check that the extents of an index stay inside the files. A checked index sends no kernel out of bounds."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from fastpath.kernels._guard cimport guarded, ready


cdef struct Check:
    const int32_t* file           # IN  [runs]
    const int64_t* offset         # IN  [runs]
    const int64_t* length         # IN  [runs]
    const int64_t* start          # IN  [runs] or NULL: a run per sample
    const int64_t* stride         # IN  [runs] or NULL
    int64_t runs
    int64_t samples
    const int64_t* size           # IN  [files]
    int64_t files
    int64_t broken                # OUT the first run that leaves its file; -1: none
    int64_t shortest              # OUT length of the shortest and longest sample
    int64_t longest


cdef bint _is_inside(Check* check, int64_t run) noexcept nogil:
    cdef int64_t room
    cdef int64_t count = 1
    cdef int64_t stop
    cdef int64_t length = check.length[run]
    if check.start != NULL:
        stop = check.start[run + 1] if run + 1 < check.runs else check.samples
        if (run == 0 and check.start[0] != 0) or stop <= check.start[run] or stop > check.samples:
            return False
        count = stop - check.start[run]
        if check.stride[run] < 0:
            return False
    if check.file[run] < 0 or check.file[run] >= check.files or check.offset[run] < 0 or length < 0:
        return False
    # Subtracted, not added: a sum could overflow.
    room = check.size[check.file[run]]
    if room < 0 or length > room or check.offset[run] > room - length:
        return False
    if count == 1 or check.stride[run] == 0:
        return True
    return count - 1 <= (room - length - check.offset[run]) // check.stride[run]


cdef void _check(void* arguments) noexcept nogil:
    cdef Check* check = <Check*>arguments
    cdef int64_t run
    for run in range(check.runs):
        if not _is_inside(check, run):
            check.broken = run
            return
        check.shortest = min(check.shortest, check.length[run])
        check.longest = max(check.longest, check.length[run])


def check_extents(
    const int32_t[::1] file,
    const int64_t[::1] offset,
    const int64_t[::1] length,
    const int64_t[::1] start,
    const int64_t[::1] stride,
    int64_t samples,
    const int64_t[::1] size,
):
    """Return ``(broken, shortest, longest)``: the first run outside its file or order, and the lengths of samples.

    ``broken`` is -1 where all runs are sound, -2 where the index cannot be read. ``start`` and ``stride`` are None for a run per
    sample. Without the GIL.
    """
    cdef Check check
    cdef uint64_t fault
    check.runs, check.samples, check.files = file.shape[0], samples, size.shape[0]
    check.broken, check.shortest, check.longest = -1, 2**63 - 1, 0
    if check.runs == 0:
        return (-1, 0, 0)
    if check.files == 0:
        return (0, 0, 0)
    check.file, check.offset, check.length, check.size = &file[0], &offset[0], &length[0], &size[0]
    check.start = check.stride = NULL
    if start is not None:
        check.start, check.stride = &start[0], &stride[0]
    ready()
    with nogil:
        fault = guarded(_check, &check)
    return (-2 if fault else check.broken, check.shortest, check.longest)
