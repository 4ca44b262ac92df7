/* Interleaved pixels of three channels to one plane per channel. Compilers turn the loop into shuffles where the processor has
   them; the variant is chosen at load time. */
#ifndef FASTPATH_PLANES_H
#define FASTPATH_PLANES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && defined(__gnu_linux__)
__attribute__((target_clones("avx2", "ssse3", "default")))
#endif
static void fastpath_three_planes(const uint8_t *restrict pixels, size_t n, uint8_t *restrict red, uint8_t *restrict green,
                                  uint8_t *restrict blue)
{
    for (size_t i = 0; i < n; i++) {
        red[i] = pixels[3 * i];
        green[i] = pixels[3 * i + 1];
        blue[i] = pixels[3 * i + 2];
    }
}

#endif
