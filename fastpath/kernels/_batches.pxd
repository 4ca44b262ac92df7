from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef enum:
    CLOSED = 0                    # not opened yet
    ONE_RUN = 1                   # all samples at equal distances in one file
    RUNS = 2
    ROWS = 3                      # a place for every sample


# Row of a batch: 24 words of the table; BATCH_FIELDS names them in this order.
cdef struct Batch:
    int64_t mode
    int64_t n                     # samples
    const uint64_t* deleted       # a bit per sample, or NULL
    int64_t file                  # ONE_RUN: id of its file, then its only extent
    int64_t offset
    int64_t stride
    int64_t length
    int64_t index_file            # id of the index itself
    int64_t first_file            # id of the batch's first file
    int64_t n_files
    const int64_t* size           # [n_files]
    int64_t n_runs
    const int32_t* run_file       # [n_runs] counted from first_file; ROWS: [n]
    const int64_t* run_offset     # [n_runs]
    const int64_t* run_length     # [n_runs]
    const int64_t* run_start      # [n_runs], RUNS only
    const int64_t* run_stride     # [n_runs], RUNS only
    const uint32_t* directory     # RUNS only: the run of every 2**shift-th sample, and the last run
    int64_t shift
    const int64_t* time           # [n]
    const int64_t* label          # [n] 8-byte words, or NULL
    int64_t reserved[3]           # to whole cache lines


# Batches by ordinal: a hash table of twice as many places or more, made when a store is opened.
cdef struct Directory:
    const int64_t* ordinal        # [capacity] -1: free
    const int32_t* slot           # [capacity]
    int64_t capacity              # a power of two
    int64_t shift                 # 64 - log2(capacity)


cdef inline uint64_t place_of(uint64_t ordinal, int64_t shift) noexcept nogil:
    # Fibonacci hashing: consecutive ordinals, with or without gaps, hardly ever collide.
    return (ordinal * 0x9E3779B97F4A7C15ULL) >> shift


cdef inline int32_t slot_of(const Directory* directory, int64_t ordinal) noexcept nogil:
    cdef uint64_t place = place_of(<uint64_t>ordinal, directory.shift)
    while directory.ordinal[place] != ordinal:
        if directory.ordinal[place] < 0:
            return -1
        place = (place + 1) & <uint64_t>(directory.capacity - 1)
    return directory.slot[place]


cdef extern from *:
    """
    #define fastpath_mode(batch) __atomic_load_n(&(batch)->mode, __ATOMIC_ACQUIRE)
    #define fastpath_set_mode(batch, value) __atomic_store_n(&(batch)->mode, (value), __ATOMIC_RELEASE)
    """
    int64_t fastpath_mode(const Batch* batch) nogil
    void fastpath_set_mode(Batch* batch, int64_t value) nogil
