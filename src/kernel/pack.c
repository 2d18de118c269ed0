#include "kernel/matmul.h"

#include <string.h>

size_t matmul_packed_bytes(enum dtype type, uint32_t n_rows, uint32_t k)
{
    return DIV_UP(n_rows, PANEL_ROWS) * panel_bytes(type, k);
}

static uint32_t load_u32(const uint8_t *from)
{
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* One block of one row into its lane of the panel's block: n_steps words of quants, then an f16 in each row of scales. */
INLINE void pack_block(uint8_t *block, const uint8_t *from, uint32_t lane, int n_scales, int n_steps, uint32_t flip)
{
    for (int j = 0; j < n_steps; j++) {
        uint32_t quants = load_u32(from + 2 * n_scales + 4 * j) ^ flip;
        memcpy(block + 64 * j + 4 * lane, &quants, 4);
    }
    for (int s = 0; s < n_scales; s++)
        memcpy(block + 64 * n_steps + 32 * s + 2 * lane, from + 2 * s, 2);
}

/* Adding 128 to a signed byte flips its top bit. */
INLINE void pack_blocks(uint8_t *panel, enum dtype type, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    const int n_scales = type == DTYPE_Q4_1 ? 2 : 1, n_steps = type == DTYPE_Q8_0 ? 8 : 4;
    const size_t bytes = (size_t)(2 * n_scales + 4 * n_steps);
    for (uint32_t b = 0; b < k / 32; b++)
        for (uint32_t lane = 0; lane < n_lanes; lane++)
            pack_block(panel + b * bytes * PANEL_ROWS, rows + lane * row_bytes + b * bytes, lane, n_scales, n_steps,
                       type == DTYPE_Q8_0 ? 0x80808080 : 0);
}

/* A cache line of every row in turn: rows whose distance is a power of two would drive each other out of L1. */
INLINE void pack_elements(uint8_t *panel, size_t bytes, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    const uint32_t chunk = (uint32_t)(CACHE_LINE / bytes);
    for (uint32_t begin = 0; begin < k; begin += chunk)
        for (uint32_t lane = 0; lane < n_lanes; lane++)
            for (uint32_t i = begin; i < MIN(begin + chunk, k); i++)
                memcpy(panel + (i * PANEL_ROWS + lane) * bytes, rows + lane * row_bytes + i * bytes, bytes);
}

static void pack_panel(uint8_t *panel, enum dtype type, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    switch (type) {
    case DTYPE_Q8_0: pack_blocks(panel, DTYPE_Q8_0, rows, row_bytes, n_lanes, k); break;
    case DTYPE_Q4_0: pack_blocks(panel, DTYPE_Q4_0, rows, row_bytes, n_lanes, k); break;
    case DTYPE_Q4_1: pack_blocks(panel, DTYPE_Q4_1, rows, row_bytes, n_lanes, k); break;
    case DTYPE_F32: pack_elements(panel, 4, rows, row_bytes, n_lanes, k); break;
    default: pack_elements(panel, 2, rows, row_bytes, n_lanes, k); break;
    }
}

void matmul_pack(void *packed, enum dtype type, const void *rows, size_t row_bytes, uint32_t n_rows, uint32_t k,
                 uint32_t panel0, uint32_t panel1)
{
    const size_t bytes = panel_bytes(type, k);
    assert(dtype_info[type].weight && k % dtype_info[type].block == 0);
    for (uint32_t panel = panel0; panel < panel1; panel++) {
        uint8_t *to = (uint8_t *)packed + panel * bytes;
        uint32_t row = panel * PANEL_ROWS, n_lanes = row < n_rows ? MIN(PANEL_ROWS, n_rows - row) : 0;
        size_t used = n_lanes < PANEL_ROWS ? 0 : PANEL_ROWS * dtype_bytes(type, k);
        memset(to + used, 0, bytes - used);
        pack_panel(to, type, (const uint8_t *)rows + row * row_bytes, row_bytes, n_lanes, k);
    }
}
