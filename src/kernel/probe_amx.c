/* probe_amx.c: whole tiles, 16 x 64 by 64 x 16.  The matmul's have half of that K, the 32 of a block. */
#include "kernel/probe.h"

#include <immintrin.h>

#define TILE_OPS (2.0 * 16 * 16 * 64)

/* Eight tiles.  Not built when it is needed: gcc 12 believes that the instruction reads its first eight bytes only. */
#define EIGHT(n) { n, n, n, n, n, n, n, n }
static const struct {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} whole_tiles = { .palette = 1, .row_bytes = EIGHT(64), .rows = EIGHT(16) };

/* Two by two: each sum is needed again after three others. */
double probe_int8_amx(uint32_t n_rounds)
{
    _tile_loadconfig(&whole_tiles);         /* and all tiles are zero */
    for (uint32_t round = 0; round < n_rounds; round++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return n_rounds * 4 * TILE_OPS;
}
