# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Resolution of keys to places in files, and to words in the indexes.

A call stops at the first key it cannot resolve and returns the reason; ``fastpath.rows.requests`` opens the batch, makes room,
or raises, and calls again from that key.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastpath.kernels._batches cimport CLOSED, ONE_RUN, ROWS, RUNS, Batch, Directory, fastpath_mode, slot_of
from fastpath.kernels._guard cimport guarded, ready


cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* address) nogil


cdef enum:
    BLOCK = 64                    # keys whose cache misses overlap
    DONE = 0
    NOT_OPEN = 1
    UNKNOWN = 2
    DELETED = 3
    OUTSIDE = 4
    NO_ROOM = 5
    FAULT = 6

CODES = {
    "done": DONE, "not_open": NOT_OPEN, "unknown": UNKNOWN, "deleted": DELETED,
    "outside": OUTSIDE, "no_room": NO_ROOM, "fault": FAULT,
}  # fmt: skip


cdef struct Request:
    const uint64_t* key           # IN  [n]
    int64_t n
    Directory directory           # IN
    const Batch* table            # IN
    int32_t* file                 # OUT [n]
    int64_t* offset               # OUT [n]
    int64_t* length               # OUT [n] or NULL
    bint labels                   # IN  for words: labels, else times
    int64_t* word                 # OUT [n]
    uint8_t* mark                 # IN/OUT by file: whether it is in touched
    int32_t* touched              # IN/OUT the files that hold the samples, and the indexes that were read
    int64_t files                 # IN  capacity of mark and touched
    int64_t n_touched             # IN/OUT
    int64_t done                  # IN/OUT keys that are finished
    int64_t at                    # OUT the key that stopped the call
    int code                      # OUT the reason, one of CODES


cdef inline bint _stop(Request* request, int64_t at, int code) noexcept nogil:
    request.at, request.code = at, code
    return False


cdef inline bint _touch(Request* request, int64_t at, int64_t file) noexcept nogil:
    if file >= request.files:
        return _stop(request, at, NO_ROOM)
    if not request.mark[file]:
        request.mark[file] = 1
        request.touched[request.n_touched] = <int32_t>file
        request.n_touched += 1
    return True


cdef inline const Batch* _batch_of(Request* request, int64_t at, int64_t* position) noexcept nogil:
    cdef uint64_t key = request.key[at]
    cdef int32_t slot = slot_of(&request.directory, <int64_t>(key >> 32))
    cdef const Batch* batch
    if slot < 0:
        _stop(request, at, UNKNOWN)
        return NULL
    batch = request.table + slot
    position[0] = <uint32_t>key
    if fastpath_mode(batch) == CLOSED:
        _stop(request, at, NOT_OPEN)
        return NULL
    if position[0] >= batch.n:
        _stop(request, at, UNKNOWN)
        return NULL
    if batch.deleted != NULL and (batch.deleted[position[0] >> 6] >> (position[0] & 63)) & 1:
        _stop(request, at, DELETED)
        return NULL
    return batch


cdef inline int64_t _run_of(const Batch* batch, int64_t position) noexcept nogil:
    # The directory leaves few runs to search, except in a malicious index.
    cdef int64_t low = batch.directory[position >> batch.shift]
    cdef int64_t high = batch.directory[(position >> batch.shift) + 1]
    cdef int64_t middle
    while low < high:
        middle = (low + high + 1) >> 1
        if batch.run_start[middle] <= position:
            low = middle
        else:
            high = middle - 1
    return low


cdef inline bint _finish(Request* request, int64_t at, const Batch* batch, int64_t position, int64_t run) noexcept nogil:
    # The mapped index may have been overwritten since it was checked.
    cdef int64_t file = batch.run_file[run]
    cdef int64_t length = batch.run_length[run]
    cdef uint64_t offset = <uint64_t>batch.run_offset[run]
    if batch.mode == RUNS:
        offset += (<uint64_t>position - <uint64_t>batch.run_start[run]) * <uint64_t>batch.run_stride[run]
    if file < 0 or file >= batch.n_files or length < 0 or length > batch.size[file]:
        return _stop(request, at, OUTSIDE)
    if offset > <uint64_t>(batch.size[file] - length) or (request.length == NULL and length != batch.length):
        return _stop(request, at, OUTSIDE)
    request.file[at] = <int32_t>(batch.first_file + file)
    request.offset[at] = <int64_t>offset
    if request.length != NULL:
        request.length[at] = length
    return _touch(request, at, batch.first_file + file) and _touch(request, at, batch.index_file)


cdef bint _resolve_block(Request* request, int64_t first, int64_t stop) noexcept nogil:
    cdef const Batch* batches[BLOCK]
    cdef int64_t positions[BLOCK]
    cdef int64_t runs[BLOCK]
    cdef int64_t waiting[BLOCK]
    cdef int64_t n_waiting = 0
    cdef int64_t i, k, position
    cdef const Batch* batch
    for i in range(first, stop):
        batch = _batch_of(request, i, &position)
        if batch == NULL:
            return False
        if batch.mode == ONE_RUN:
            request.file[i] = <int32_t>batch.file
            request.offset[i] = batch.offset + position * batch.stride
            if request.length != NULL:
                request.length[i] = batch.length
            if not _touch(request, i, batch.file):
                return False
            continue
        batches[n_waiting], positions[n_waiting], waiting[n_waiting] = batch, position, i
        n_waiting += 1
        if batch.mode == RUNS:
            prefetch(batch.directory + (position >> batch.shift))
    if n_waiting == 0:
        return True
    for k in range(n_waiting):
        if batches[k].mode == RUNS:
            prefetch(batches[k].run_start + batches[k].directory[positions[k] >> batches[k].shift])
    for k in range(n_waiting):
        batch = batches[k]
        runs[k] = positions[k] if batch.mode == ROWS else _run_of(batch, positions[k])
        prefetch(batch.run_file + runs[k])
        prefetch(batch.run_offset + runs[k])
        prefetch(batch.run_length + runs[k])
        if batch.mode == RUNS:
            prefetch(batch.run_stride + runs[k])
    for k in range(n_waiting):
        if not _finish(request, waiting[k], batches[k], positions[k], runs[k]):
            return False
    return True


cdef bint _words_block(Request* request, int64_t first, int64_t stop) noexcept nogil:
    cdef const int64_t* words[BLOCK]
    cdef const Batch* batch
    cdef int64_t i, position
    for i in range(first, stop):
        batch = _batch_of(request, i, &position)
        if batch == NULL or not _touch(request, i, batch.index_file):
            return False
        words[i - first] = (batch.label if request.labels else batch.time) + position
        prefetch(words[i - first])
    for i in range(first, stop):
        request.word[i] = words[i - first][0]
    return True


cdef void _run(void* arguments) noexcept nogil:
    cdef Request* request = <Request*>arguments
    cdef int64_t stop
    cdef bint went_on
    while request.done < request.n:
        stop = min(request.done + BLOCK, request.n)
        if request.word != NULL:
            went_on = _words_block(request, request.done, stop)
        else:
            went_on = _resolve_block(request, request.done, stop)
        # A stopped block is repeated from its beginning.
        if not went_on:
            return
        request.done = stop


cdef class Resolver:
    """Tables shared by all calls, and the marks of one call at a time."""

    cdef Request _request
    cdef object _kept
    cdef public int64_t at
    cdef public uint64_t fault

    def __init__(self, const int64_t[::1] ordinals, const int32_t[::1] slots, int64_t shift, int64_t[:, ::1] table):
        self._request.directory.ordinal, self._request.directory.slot = &ordinals[0], &slots[0]
        self._request.directory.capacity, self._request.directory.shift = ordinals.shape[0], shift
        self._request.table = <const Batch*>&table[0, 0]
        self._request.files = self._request.n_touched = 0
        self._kept = [ordinals, slots, table, None, None]

    def make_room(self, uint8_t[::1] marks, int32_t[::1] touched):
        """Use marks of more files; they begin with the present ones."""
        self._request.mark, self._request.touched, self._request.files = &marks[0], &touched[0], marks.shape[0]
        self._kept[3:] = [marks, touched]

    @property
    def n_touched(self):
        """Number of entries of ``touched`` that calls since ``begin`` have filled."""
        return self._request.n_touched

    def begin(self):
        """Clear the marks of earlier calls, and start at the first key."""
        cdef int64_t i
        for i in range(self._request.n_touched):
            self._request.mark[self._request.touched[i]] = 0
        self._request.n_touched = self._request.done = 0

    def places(self, const uint64_t[::1] keys, int32_t[::1] file, int64_t[::1] offset, int64_t[::1] length):
        """Fill in places of keys; ``length`` may be None where all samples have the same. Returns one of ``CODES``."""
        self._request.file, self._request.offset = &file[0], &offset[0]
        self._request.length = &length[0] if length is not None else NULL
        self._request.word = NULL
        return self._call(keys)

    def words(self, const uint64_t[::1] keys, int64_t[::1] words, bint labels):
        """Fill in labels (8-byte words) or times. Returns one of ``CODES``."""
        self._request.word, self._request.labels = &words[0], labels
        return self._call(keys)

    cdef int _call(self, const uint64_t[::1] keys) except -1:
        self._request.key, self._request.n = &keys[0], keys.shape[0]
        self._request.code = DONE
        ready()
        with nogil:
            self.fault = guarded(_run, &self._request)
        self.at = self._request.done if self.fault else self._request.at
        return FAULT if self.fault else self._request.code
