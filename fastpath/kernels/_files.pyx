# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Mapped files as buffers, and a check of many versions at once. ``fastpath.format.file_table`` has checked the arguments."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int descriptor, int64_t offset)
    int munmap(void* address, size_t length)
    int PROT_READ, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED


cdef extern from "<sys/stat.h>" nogil:
    cdef struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    cdef struct stat_t "stat":
        uint64_t st_ino
        int64_t st_size
        timespec st_mtim
    int stat(const char* path, stat_t* found)


cdef class MappedFile:
    """Bytes of a file, read-only, without an open descriptor: a store maps more files than may be open."""

    cdef readonly uint64_t address
    cdef readonly int64_t size
    cdef size_t _mapped

    def __cinit__(self, int descriptor, int64_t size):
        cdef void* start
        self._mapped = size if size else 1
        # An empty file cannot be mapped, but its address must be one.
        if size:
            start = mmap(NULL, self._mapped, PROT_READ, MAP_SHARED, descriptor, 0)
        else:
            start = mmap(NULL, self._mapped, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if start == MAP_FAILED:
            self._mapped = 0
            raise MemoryError(f"{size} bytes of a file cannot be mapped")
        self.address, self.size = <uint64_t>start, size

    def __dealloc__(self):
        if self._mapped:
            munmap(<void*>self.address, self._mapped)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.address, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        pass


def address_of(bytes path):
    """Address of the zero-terminated bytes of a path, valid as long as these are referenced."""
    return <uint64_t>PyBytes_AS_STRING(path)


cdef Py_ssize_t _first_changed(
    const int32_t* file,          # IN  [n] ids of files
    Py_ssize_t n,
    const uint64_t* path,         # IN  by file: address of its path
    const uint64_t* inode,        # IN  by file: version when it was mapped
    const int64_t* size,
    const int64_t* modified,
) noexcept nogil:
    cdef stat_t found
    cdef Py_ssize_t i
    cdef int32_t f
    for i in range(n):
        f = file[i]
        if stat(<const char*>path[f], &found) != 0:
            return i
        if found.st_ino != inode[f] or found.st_size != size[f]:
            return i
        if found.st_mtim.tv_sec * 1_000_000_000 + found.st_mtim.tv_nsec != modified[f]:
            return i
    return -1


def first_changed(
    const int32_t[::1] files,
    const uint64_t[::1] paths,
    const uint64_t[::1] inodes,
    const int64_t[::1] sizes,
    const int64_t[::1] modified,
):
    """First of ``files`` that changed since it was mapped; -1 when none did. Without the GIL."""
    cdef Py_ssize_t found
    if files.shape[0] == 0:
        return -1
    with nogil:
        found = _first_changed(&files[0], files.shape[0], &paths[0], &inodes[0], &sizes[0], &modified[0])
    return -1 if found < 0 else files[found]
