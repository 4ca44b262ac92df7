/* One application of a keyed bijection of the numbers of some bits, to many of them at once.
 *
 * Compiled for several vector widths, as the package is built for any x86-64, and SSE2 has no multiplication of 32 or 64
 * bits. The choice is a branch, not GCC's target_clones: the sanitizers do not start with those.
 */
#ifndef FASTPATH_PERMUTE_H
#define FASTPATH_PERMUTE_H

#include <stdint.h>

#define FASTPATH_ROUNDS 4
#define FASTPATH_INLINE static inline __attribute__((always_inline))

typedef struct {
    uint64_t factor[FASTPATH_ROUNDS]; /* odd, so that multiplying can be undone */
    uint64_t term[FASTPATH_ROUNDS];
    uint64_t mask;                    /* 2^bits - 1 */
    int shift;                        /* half the bits, rounded up */
} fastpath_rounds;

/* Each round is a bijection of the bits under the mask: an odd factor, a term, and high bits folded into low ones.
 * Up to 32 bits in words of 32: a vector has twice as many, and more machines multiply them. */
#define FASTPATH_WALK(name, word)                                                                                            \
    FASTPATH_INLINE word fastpath_walk_##name(word x, const fastpath_rounds *r)                                              \
    {                                                                                                                        \
        for (int i = 0; i < FASTPATH_ROUNDS; i++) {                                                                          \
            x = (x * (word)r->factor[i] + (word)r->term[i]) & (word)r->mask;                                                 \
            x ^= x >> r->shift;                                                                                              \
        }                                                                                                                    \
        return x;                                                                                                            \
    }                                                                                                                        \
    FASTPATH_INLINE void fastpath_range_##name(int64_t first, int64_t n, const fastpath_rounds *rounds, int64_t *out)        \
    {                                                                                                                        \
        fastpath_rounds r = *rounds;                                                                                         \
        for (int64_t k = 0; k < n; k++)                                                                                      \
            out[k] = (int64_t)fastpath_walk_##name((word)first + (word)k, &r);                                               \
    }                                                                                                                        \
    FASTPATH_INLINE void fastpath_all_##name(int64_t *values, int64_t n, const fastpath_rounds *rounds)                      \
    {                                                                                                                        \
        fastpath_rounds r = *rounds;                                                                                         \
        for (int64_t k = 0; k < n; k++)                                                                                      \
            values[k] = (int64_t)fastpath_walk_##name((word)values[k], &r);                                                  \
    }

FASTPATH_WALK(narrow, uint32_t)
FASTPATH_WALK(wide, uint64_t)

#define FASTPATH_FOR(machine, built_for)                                                                                     \
    built_for static void fastpath_range_##machine(int64_t first, int64_t n, const fastpath_rounds *r, int64_t *out)         \
    {                                                                                                                        \
        if (r->mask <= UINT32_MAX)                                                                                           \
            fastpath_range_narrow(first, n, r, out);                                                                         \
        else                                                                                                                 \
            fastpath_range_wide(first, n, r, out);                                                                           \
    }                                                                                                                        \
    built_for static void fastpath_all_##machine(int64_t *values, int64_t n, const fastpath_rounds *r)                       \
    {                                                                                                                        \
        if (r->mask <= UINT32_MAX)                                                                                           \
            fastpath_all_narrow(values, n, r);                                                                               \
        else                                                                                                                 \
            fastpath_all_wide(values, n, r);                                                                                 \
    }

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
FASTPATH_FOR(any, __attribute__((target("sse2"))))
FASTPATH_FOR(avx2, __attribute__((target("avx2"))))
FASTPATH_FOR(avx512, __attribute__((target("avx2,avx512f,avx512dq,avx512vl,prefer-vector-width=512"))))

#define FASTPATH_HAS_AVX512 (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#define FASTPATH_CHOOSE(name, ...)                                                                                           \
    do {                                                                                                                     \
        if (FASTPATH_HAS_AVX512)                                                                                             \
            fastpath_##name##_avx512(__VA_ARGS__);                                                                           \
        else if (__builtin_cpu_supports("avx2"))                                                                             \
            fastpath_##name##_avx2(__VA_ARGS__);                                                                             \
        else                                                                                                                 \
            fastpath_##name##_any(__VA_ARGS__);                                                                              \
    } while (0)
#else
FASTPATH_FOR(any, )
#define FASTPATH_CHOOSE(name, ...) fastpath_##name##_any(__VA_ARGS__)
#endif

/* out[k] = image of first + k, for k below n. */
static void fastpath_walk_range(int64_t first, int64_t n, const fastpath_rounds *rounds, int64_t *out)
{
    FASTPATH_CHOOSE(range, first, n, rounds, out);
}

/* values[k] = image of values[k]. */
static void fastpath_walk_all(int64_t *values, int64_t n, const fastpath_rounds *rounds)
{
    FASTPATH_CHOOSE(all, values, n, rounds);
}

#endif
