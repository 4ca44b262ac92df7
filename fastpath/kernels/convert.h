/* Fields of rows to columns: one function for every pair of types, each over a block of rows. */
#ifndef FASTPATH_CONVERT_H
#define FASTPATH_CONVERT_H

#include "copy.h"

/* `count` values that stand one after the other at byte `source` of each of n rows, to `out`, `stride` bytes a row. */
typedef void (*fastpath_operation)(const uint8_t *const *rows, int64_t n, int64_t source, int64_t count, uint8_t *out,
                                   int64_t stride);

/* Wider registers where the machine has them. Sanitizers start before the machine's features are known. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && defined(__gnu_linux__)
#define FASTPATH_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define FASTPATH_WIDE
#endif


static inline float fastpath_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3FF, bits;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7F800000 | fraction << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else { /* zero or subnormal: fraction * 2**-24 is exact */
        value = (float)fraction * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, 4);
    return value;
}

#define FASTPATH_SAME(bits) (bits)
#define FASTPATH_READ(value, type, word, swap, from) \
    word value##_bits;                               \
    type value;                                      \
    memcpy(&value##_bits, (from), sizeof(word));     \
    value##_bits = (word)swap(value##_bits);         \
    memcpy(&value, &value##_bits, sizeof(type));

#define FASTPATH_PLAIN(value) (value)
#define FASTPATH_TRUTH(value) ((value) != 0)

/* name, type, unsigned word of its size, byte swap, expression of the value */
#define FASTPATH_SOURCES(X, ...)                                                     \
    X(b1, uint8_t, uint8_t, FASTPATH_SAME, FASTPATH_TRUTH, __VA_ARGS__)              \
    X(i1, int8_t, uint8_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)               \
    X(u1, uint8_t, uint8_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)              \
    X(i2, int16_t, uint16_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)             \
    X(u2, uint16_t, uint16_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)            \
    X(f2, uint16_t, uint16_t, FASTPATH_SAME, fastpath_half, __VA_ARGS__)             \
    X(i4, int32_t, uint32_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)             \
    X(u4, uint32_t, uint32_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)            \
    X(f4, float, uint32_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)               \
    X(i8, int64_t, uint64_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)             \
    X(u8, uint64_t, uint64_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)            \
    X(f8, double, uint64_t, FASTPATH_SAME, FASTPATH_PLAIN, __VA_ARGS__)              \
    X(i2_swapped, int16_t, uint16_t, __builtin_bswap16, FASTPATH_PLAIN, __VA_ARGS__) \
    X(u2_swapped, uint16_t, uint16_t, __builtin_bswap16, FASTPATH_PLAIN, __VA_ARGS__) \
    X(f2_swapped, uint16_t, uint16_t, __builtin_bswap16, fastpath_half, __VA_ARGS__) \
    X(i4_swapped, int32_t, uint32_t, __builtin_bswap32, FASTPATH_PLAIN, __VA_ARGS__) \
    X(u4_swapped, uint32_t, uint32_t, __builtin_bswap32, FASTPATH_PLAIN, __VA_ARGS__) \
    X(f4_swapped, float, uint32_t, __builtin_bswap32, FASTPATH_PLAIN, __VA_ARGS__)   \
    X(i8_swapped, int64_t, uint64_t, __builtin_bswap64, FASTPATH_PLAIN, __VA_ARGS__) \
    X(u8_swapped, uint64_t, uint64_t, __builtin_bswap64, FASTPATH_PLAIN, __VA_ARGS__) \
    X(f8_swapped, double, uint64_t, __builtin_bswap64, FASTPATH_PLAIN, __VA_ARGS__)

#define FASTPATH_CONVERT(source_name, type, word, swap, meaning, target_name, target, cast)                                   \
    FASTPATH_WIDE static void fastpath_##source_name##_to_##target_name(                                                       \
        const uint8_t *const *rows, int64_t n, int64_t source, int64_t count, uint8_t *out, int64_t stride)                    \
    {                                                                                                                          \
        for (int64_t i = 0; i < n; i++, out += stride) {                                                                       \
            const uint8_t *restrict from = rows[i] + source;                                                                   \
            uint8_t *restrict to = out;                                                                                        \
            for (int64_t k = 0; k < count; k++) {                                                                              \
                FASTPATH_READ(value, type, word, swap, from + k * (int64_t)sizeof(word))                                       \
                target converted = (target)cast(meaning(value));                                                               \
                memcpy(to + k * (int64_t)sizeof(target), &converted, sizeof(target));                                          \
            }                                                                                                                  \
        }                                                                                                                      \
    }

FASTPATH_SOURCES(FASTPATH_CONVERT, b1, uint8_t, FASTPATH_TRUTH)
FASTPATH_SOURCES(FASTPATH_CONVERT, u1, uint8_t, FASTPATH_PLAIN)
FASTPATH_SOURCES(FASTPATH_CONVERT, i4, int32_t, FASTPATH_PLAIN)
FASTPATH_SOURCES(FASTPATH_CONVERT, i8, int64_t, FASTPATH_PLAIN)
FASTPATH_SOURCES(FASTPATH_CONVERT, f4, float, FASTPATH_PLAIN)
FASTPATH_SOURCES(FASTPATH_CONVERT, f8, double, FASTPATH_PLAIN)

/* Words of equal bytes, turned round; `count` of them. */
#define FASTPATH_SWAP(name, word, swap)                                                                                         \
    FASTPATH_WIDE static void fastpath_swap_##name(const uint8_t *const *rows, int64_t n, int64_t source, int64_t count,        \
                                                   uint8_t *out, int64_t stride)                                                \
    {                                                                                                                           \
        for (int64_t i = 0; i < n; i++, out += stride)                                                                          \
            for (int64_t k = 0; k < count; k++) {                                                                               \
                FASTPATH_READ(value, word, word, swap, rows[i] + source + k * (int64_t)sizeof(word))                            \
                memcpy(out + k * (int64_t)sizeof(word), &value, sizeof(word));                                                  \
            }                                                                                                                   \
    }

FASTPATH_SWAP(2, uint16_t, __builtin_bswap16)
FASTPATH_SWAP(4, uint32_t, __builtin_bswap32)
FASTPATH_SWAP(8, uint64_t, __builtin_bswap64)

/* `count` bytes, unchanged. */
static void fastpath_bytes(const uint8_t *const *rows, int64_t n, int64_t source, int64_t count, uint8_t *out, int64_t stride)
{
    for (int64_t i = 0; i < n; i++, out += stride)
        fastpath_copy(out, rows[i] + source, count);
}

struct fastpath_named {
    const char *name;
    fastpath_operation operation;
};

#define FASTPATH_NAME(source_name, type, word, swap, meaning, target_name) \
    {#source_name "_to_" #target_name, fastpath_##source_name##_to_##target_name},

static const struct fastpath_named fastpath_operations[] = {
    FASTPATH_SOURCES(FASTPATH_NAME, b1)
    FASTPATH_SOURCES(FASTPATH_NAME, u1)
    FASTPATH_SOURCES(FASTPATH_NAME, i4)
    FASTPATH_SOURCES(FASTPATH_NAME, i8)
    FASTPATH_SOURCES(FASTPATH_NAME, f4)
    FASTPATH_SOURCES(FASTPATH_NAME, f8)
    {"swap_2", fastpath_swap_2},
    {"swap_4", fastpath_swap_4},
    {"swap_8", fastpath_swap_8},
    {"bytes", fastpath_bytes},
};

#define FASTPATH_OPERATIONS ((int64_t)(sizeof fastpath_operations / sizeof fastpath_operations[0]))

#endif
