/* Copies of a few dozen to a few hundred bytes, inline: a call of memcpy costs as much as the copy. */
#ifndef FASTPATH_COPY_H
#define FASTPATH_COPY_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define FASTPATH_INLINE_BYTES 384

typedef uint64_t fastpath_pair __attribute__((vector_size(16), aligned(1), may_alias));

/* Blocks from both ends meet in the middle: the last one overlaps the one before it. The ranges may not overlap each other. */
static inline __attribute__((always_inline)) void fastpath_copy(uint8_t *to, const uint8_t *from, int64_t n)
{
    if (n > FASTPATH_INLINE_BYTES) {
        memcpy(to, from, (size_t)n);
    } else if (n >= 16) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32) {
            fastpath_pair first = *(const fastpath_pair *)(from + i), second = *(const fastpath_pair *)(from + i + 16);
            *(fastpath_pair *)(to + i) = first;
            *(fastpath_pair *)(to + i + 16) = second;
        }
        if (i + 16 <= n)
            *(fastpath_pair *)(to + i) = *(const fastpath_pair *)(from + i);
        *(fastpath_pair *)(to + n - 16) = *(const fastpath_pair *)(from + n - 16);
    } else if (n >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + n - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + n - 8, &last, 8);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4);
        memcpy(&last, from + n - 4, 4);
        memcpy(to, &first, 4);
        memcpy(to + n - 4, &last, 4);
    } else {
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
    }
}

/* Past the cache, so that memory is not read before it is written. Both begin at multiples of 16 bytes; lines that other
 * calls go on with are sent to memory in parts. */
static inline void fastpath_stream(uint8_t *to, const uint8_t *from, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    for (; i + 16 <= n; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
#endif
    memcpy(to + i, from + i, (size_t)(n - i));
}

/* Make streamed bytes visible to other threads. */
static inline void fastpath_streamed(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* Prefetch the cache lines of n bytes; of a long range the first, and the hardware follows. They go to the second-level cache:
 * the few reads that the first-level cache can have in flight are left to current rows (rows of 160 bytes: 23, not 20 M/s). */
static inline __attribute__((always_inline)) void fastpath_prefetch(const uint8_t *start, int64_t n)
{
    const uint8_t *line = (const uint8_t *)((uintptr_t)start & ~(uintptr_t)63);
    const uint8_t *stop = start + (n < 1024 ? n : 1024);
    for (; line < stop; line += 64)
        __builtin_prefetch(line, 0, 2);
}

/* Drop the cache lines of n bytes from all caches; only x86-64 lets every program do so. */
static inline void fastpath_evict(const uint8_t *start, int64_t n)
{
#ifdef __SSE2__
    const uint8_t *line = (const uint8_t *)((uintptr_t)start & ~(uintptr_t)63);
    for (; line < start + n; line += 64)
        _mm_clflush(line);
    _mm_mfence();
#else
    (void)start;
    (void)n;
#endif
}

#endif
