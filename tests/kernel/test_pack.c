/* test_pack.c: the packed form of a fixed matrix of every type, by hash.  Packed weights are kept in files (run/packed_file.h), so when a
 * hash changes, PANEL_LAYOUT_VERSION in panel.h must be raised with it. */
#include "base/random.h"
#include "kernel/panel.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LAYOUT_VERSION 1            /* whose hashes these are */

enum { N_ROWS = 37, K = 768 };      /* a panel that is not full; several blocks of every type */

static const struct { enum dtype type; uint64_t hash; } wanted[] = {
    { DTYPE_F32, 0x5589178d71c83ec8 },
    { DTYPE_F16, 0xc629f0a7565ed1a4 },
    { DTYPE_BF16, 0x816ba87b6b32a62f },
    { DTYPE_Q8_0, 0xb00f1be394d8b20f },
    { DTYPE_Q4_0, 0x3011a4da6c707abc },
    { DTYPE_Q4_1, 0x90ca36912bb1f321 },
    { DTYPE_Q5_0, 0x7073ededd3862cd9 },
    { DTYPE_Q5_1, 0xe54d2f52d44512a2 },
    { DTYPE_Q2_K, 0xc1fc7ac802c4ae02 },
    { DTYPE_Q3_K, 0xcb859070e622b2fd },
    { DTYPE_Q4_K, 0xa1bd4270f66a4dee },
    { DTYPE_Q5_K, 0x054a1277e7ea9ce9 },
    { DTYPE_Q6_K, 0xce74948b63469113 },
    { DTYPE_IQ4_NL, 0x763176f2dce88946 },
    { DTYPE_IQ4_XS, 0x655096653279ae36 },
    { DTYPE_MXFP4, 0x89869909842007ad },
};

static uint64_t hash_of(enum dtype type, uint32_t panels_at_a_time)
{
    size_t row_bytes = dtype_bytes(type, K), n_bytes = matmul_packed_bytes(type, N_ROWS, K);
    uint8_t *rows = malloc(N_ROWS * row_bytes), *packed = aligned_alloc(64, ROUND_UP(n_bytes, 64));
    for (size_t i = 0; i < N_ROWS * row_bytes; i++)
        rows[i] = (uint8_t)random_u64((uint64_t)type, i);
    memset(packed, 0xa5, n_bytes);
    for (uint32_t panel = 0; panel < DIV_UP(N_ROWS, PANEL_ROWS); panel += panels_at_a_time)
        matmul_pack(packed, type, rows, row_bytes, N_ROWS, K, panel, MIN(panel + panels_at_a_time, DIV_UP(N_ROWS, PANEL_ROWS)));
    uint64_t hash = XXH3_64bits(packed, n_bytes);
    free(rows);
    free(packed);
    return hash;
}

static bool is_listed(enum dtype type)
{
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        if (wanted[i].type == type)
            return true;
    return false;
}

int main(void)
{
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        check_begin("%s is packed as version %d says", dtype_info[wanted[i].type].name, LAYOUT_VERSION);
        check_int(hash_of(wanted[i].type, 3), wanted[i].hash);
        check_int(hash_of(wanted[i].type, 1), wanted[i].hash);
    }
    check_begin("every type of weights is pinned, and by this version");
    check_int(PANEL_LAYOUT_VERSION, LAYOUT_VERSION);
    for (int type = 0; type < N_DTYPES; type++)
        if (dtype_info[type].weight)
            check(is_listed((enum dtype)type));
    return check_done();
}
