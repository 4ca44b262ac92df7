from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "copy.h" nogil:
    void fastpath_copy(uint8_t* to, const uint8_t* source, int64_t n)
    void fastpath_evict(const uint8_t* start, int64_t n)
    void fastpath_prefetch(const uint8_t* start, int64_t n)
    void fastpath_stream(uint8_t* to, const uint8_t* source, int64_t n)
    void fastpath_streamed()


# Places of n samples: byte `offset` of the file that is mapped at `base[file]`.
cdef struct Places:
    const uint64_t* base          # by file
    const int32_t* file           # [n]
    const int64_t* offset         # [n]
    int64_t n


cdef inline const uint8_t* address_of(const Places* places, int64_t i) noexcept nogil:
    return <const uint8_t*>places.base[places.file[i]] + places.offset[i]
