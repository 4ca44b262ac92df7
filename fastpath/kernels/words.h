/* Words of numbers to planes of their bytes and back, plain or as a difference to other words of the same kind.

   Floats as ordered integers: the patterns of negative floats count downwards, so flipping all bits but the sign makes the
   integers' order that of the floats; neighbours differ by one, and a small step leaves the high bytes zero. */
#ifndef FASTPATH_WORDS_H
#define FASTPATH_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FASTPATH_PLAIN, FASTPATH_ROTATE, FASTPATH_XOR, FASTPATH_SUBTRACT, FASTPATH_SUBTRACT_FLOAT };

/* A block stays in the first-level cache between the passes over it. */
#define FASTPATH_BLOCK 1024

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && defined(__gnu_linux__)
#if __GNUC__ >= 12
#define FASTPATH_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define FASTPATH_CLONES __attribute__((target_clones("avx2", "default")))
#endif
#else
#define FASTPATH_CLONES
#endif

/* Byte k of a word from plane k, all planes in one pass. */
#define FASTPATH_BYTE(T, k, at) ((T)((T)planes[k][at] << (8 * (k))))
#define FASTPATH_GATHERED_1(T, at) planes[0][at]
#define FASTPATH_GATHERED_2(T, at) (T)(FASTPATH_BYTE(T, 0, at) | FASTPATH_BYTE(T, 1, at))
#define FASTPATH_GATHERED_4(T, at) (FASTPATH_GATHERED_2(T, at) | FASTPATH_BYTE(T, 2, at) | FASTPATH_BYTE(T, 3, at))
#define FASTPATH_GATHERED_8(T, at)                                                                                              \
    (FASTPATH_GATHERED_4(T, at) | FASTPATH_BYTE(T, 4, at) | FASTPATH_BYTE(T, 5, at) | FASTPATH_BYTE(T, 6, at) |                 \
     FASTPATH_BYTE(T, 7, at))

#define FASTPATH_WORDS(T, S, WIDTH)                                                                                             \
    static inline T fastpath_sign_##T(T x) { return (T)((S)x >> (8 * WIDTH - 1)); }                                             \
    static inline T fastpath_ordered_##T(T x) { return (T)(x ^ (T)(fastpath_sign_##T(x) & (T)(((T)~(T)0) >> 1))); }             \
    static inline T fastpath_zigzag_##T(T d) { return (T)((T)(d << 1) ^ fastpath_sign_##T(d)); }                                \
    static inline T fastpath_unzigzag_##T(T z) { return (T)((T)(z >> 1) ^ (T)(0 - (T)(z & 1))); }                               \
                                                                                                                                \
    FASTPATH_CLONES                                                                                                             \
    static void fastpath_split_##T(const uint8_t *words, const uint8_t *base, int mode, size_t n, uint8_t *planes)              \
    {                                                                                                                           \
        T x[FASTPATH_BLOCK], b[FASTPATH_BLOCK];                                                                                 \
        for (size_t start = 0; start < n; start += FASTPATH_BLOCK) {                                                            \
            size_t m = n - start < FASTPATH_BLOCK ? n - start : FASTPATH_BLOCK;                                                 \
            memcpy(x, words + start * WIDTH, m * WIDTH);                                                                        \
            if (mode >= FASTPATH_XOR)                                                                                           \
                memcpy(b, base + start * WIDTH, m * WIDTH);                                                                     \
            if (mode == FASTPATH_ROTATE)                                                                                        \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = (T)((T)(x[i] << 1) | (T)(x[i] >> (8 * WIDTH - 1)));                                                  \
            else if (mode == FASTPATH_XOR)                                                                                      \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] ^= b[i];                                                                                               \
            else if (mode == FASTPATH_SUBTRACT)                                                                                 \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = fastpath_zigzag_##T((T)(x[i] - b[i]));                                                               \
            else if (mode == FASTPATH_SUBTRACT_FLOAT)                                                                           \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = fastpath_zigzag_##T((T)(fastpath_ordered_##T(x[i]) - fastpath_ordered_##T(b[i])));                   \
            for (int k = 0; k < WIDTH; k++) {                                                                                   \
                uint8_t *plane = planes + k * n + start;                                                                        \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    plane[i] = (uint8_t)(x[i] >> (8 * k));                                                                      \
            }                                                                                                                   \
        }                                                                                                                       \
    }                                                                                                                           \
                                                                                                                                \
    FASTPATH_CLONES                                                                                                             \
    static void fastpath_join_##T(const uint8_t *const *planes, const uint8_t *base, int mode, size_t n, uint8_t *words)        \
    {                                                                                                                           \
        T x[FASTPATH_BLOCK], b[FASTPATH_BLOCK];                                                                                 \
        for (size_t start = 0; start < n; start += FASTPATH_BLOCK) {                                                            \
            size_t m = n - start < FASTPATH_BLOCK ? n - start : FASTPATH_BLOCK;                                                 \
            for (size_t i = 0; i < m; i++)                                                                                      \
                x[i] = FASTPATH_GATHERED_##WIDTH(T, start + i);                                                                 \
            if (mode >= FASTPATH_XOR)                                                                                           \
                memcpy(b, base + start * WIDTH, m * WIDTH);                                                                     \
            if (mode == FASTPATH_ROTATE)                                                                                        \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = (T)((T)(x[i] >> 1) | (T)(x[i] << (8 * WIDTH - 1)));                                                  \
            else if (mode == FASTPATH_XOR)                                                                                      \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] ^= b[i];                                                                                               \
            else if (mode == FASTPATH_SUBTRACT)                                                                                 \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = (T)(fastpath_unzigzag_##T(x[i]) + b[i]);                                                             \
            else if (mode == FASTPATH_SUBTRACT_FLOAT)                                                                           \
                for (size_t i = 0; i < m; i++)                                                                                  \
                    x[i] = fastpath_ordered_##T((T)(fastpath_unzigzag_##T(x[i]) + fastpath_ordered_##T(b[i])));                 \
            memcpy(words + start * WIDTH, x, m * WIDTH);                                                                        \
        }                                                                                                                       \
    }

FASTPATH_WORDS(uint8_t, int8_t, 1)
FASTPATH_WORDS(uint16_t, int16_t, 2)
FASTPATH_WORDS(uint32_t, int32_t, 4)
FASTPATH_WORDS(uint64_t, int64_t, 8)

static void fastpath_split(const uint8_t *words, const uint8_t *base, int mode, int width, size_t n, uint8_t *planes)
{
    if (width == 1)
        fastpath_split_uint8_t(words, base, mode, n, planes);
    else if (width == 2)
        fastpath_split_uint16_t(words, base, mode, n, planes);
    else if (width == 4)
        fastpath_split_uint32_t(words, base, mode, n, planes);
    else
        fastpath_split_uint64_t(words, base, mode, n, planes);
}

static void fastpath_join(const uint8_t *const *planes, const uint8_t *base, int mode, int width, size_t n, uint8_t *words)
{
    if (width == 1)
        fastpath_join_uint8_t(planes, base, mode, n, words);
    else if (width == 2)
        fastpath_join_uint16_t(planes, base, mode, n, words);
    else if (width == 4)
        fastpath_join_uint32_t(planes, base, mode, n, words);
    else
        fastpath_join_uint64_t(planes, base, mode, n, words);
}

#endif
