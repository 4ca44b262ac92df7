# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Table of batches in the form of the kernels. ``fastpath.format.batch_table`` fills it."""

BATCH_FIELDS = (
    "mode", "n", "deleted", "file", "offset", "stride", "length", "index_file",
    "first_file", "n_files", "size", "n_runs", "run_file", "run_offset", "run_length", "run_start",
    "run_stride", "directory", "shift", "time", "label", "reserved_0", "reserved_1", "reserved_2",
)  # fmt: skip
MODES = {"closed": CLOSED, "one_run": ONE_RUN, "runs": RUNS, "rows": ROWS}


def fill_directory(const int64_t[::1] ordinals, int64_t[::1] out_ordinals, int32_t[::1] out_slots):
    """Enter ordinals, each with its position as slot, in a hash table of -1; returns its shift. Capacity: a power of two > n."""
    cdef int64_t capacity = out_ordinals.shape[0]
    cdef int64_t shift = 64 - (capacity.bit_length() - 1)
    cdef uint64_t place
    cdef Py_ssize_t i
    for i in range(ordinals.shape[0]):
        place = place_of(<uint64_t>ordinals[i], shift)
        while out_ordinals[place] >= 0:
            place = (place + 1) & <uint64_t>(capacity - 1)
        out_ordinals[place] = ordinals[i]
        out_slots[place] = <int32_t>i
    return shift


def publish(int64_t[:, ::1] table, Py_ssize_t slot, int64_t mode):
    """Set the mode of a batch whose row is complete, and so show it to other threads."""
    fastpath_set_mode(<Batch*>&table[slot, 0], mode)
