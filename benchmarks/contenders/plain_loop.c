/* Rows of mapped files at given keys, split into the tensors of a batch: the loop that anybody would write first. Compiled and
 * called by plain_loop.py. Files have the same number of rows; a key is the file's number, from 1, above 32 bits of row number. */

#include <stdint.h>
#include <string.h>

enum { ROW = 160, NUMBERS = 13, CATEGORIES = 26 };

static const uint8_t *row_of(const uint8_t *const *bases, uint64_t key)
{
    return bases[(key >> 32) - 1] + (int64_t)(key & 0xFFFFFFFFu) * ROW;
}

static void split(const uint8_t *row, float *num, int64_t *cat, float *label)
{
    const int32_t *words = (const int32_t *)row;
    *label = (float)words[0];
    memcpy(num, words + 1, NUMBERS * 4);
    for (int j = 0; j < CATEGORIES; j++)
        cat[j] = (int64_t)words[1 + NUMBERS + j];
}

void split_rows(const uint8_t *const *bases, const uint64_t *keys, int64_t n, int threads, float *num, int64_t *cat, float *label)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        split(row_of(bases, keys[i]), num + i * NUMBERS, cat + i * CATEGORIES, label + i);
}

/* The same in the order of a permutation, with the keys and weights of the batch beside its rows. */
void split_permuted(const uint8_t *const *bases, const uint64_t *keys, const float *weights, const int64_t *order, int64_t n,
                    int threads, uint64_t *keys_out, float *weights_out, float *num, int64_t *cat, float *label)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = keys[order[i]];
        keys_out[i] = key;
        weights_out[i] = weights[order[i]];
        split(row_of(bases, key), num + i * NUMBERS, cat + i * CATEGORIES, label + i);
    }
}
