#include "kernel/matmul.h"

#include <string.h>

size_t matmul_packed_bytes(enum dtype type, uint32_t n_rows, uint32_t k)
{
    return DIV_UP(n_rows, PANEL_ROWS) * panel_bytes(type, k);
}

/* A plane of one row's 32 quants, from bit `shift` of each: word j of the row goes to `to` + 64 j.  A byte of the plane holds
 * quants that are 4 `bits` apart; four bytes are made at once. */
INLINE void pack_plane(uint8_t *restrict to, const uint8_t *restrict q, int bits, int shift)
{
    for (int j = 0; j < bits; j++) {
        uint32_t plane = 0;
        for (int s = 0; s < 8 / bits; s++) {
            uint32_t quants;
            memcpy(&quants, q + 4 * (j + s * bits), 4);
            plane |= (quants >> shift & 0x01010101u * ((1u << bits) - 1)) << s * bits;
        }
        memcpy(to + 4 * PANEL_ROWS * j, &plane, 4);
    }
}

/* One row's part of a head. */
INLINE void pack_head(uint8_t *head, enum dtype type, const struct quant_block *from, uint32_t lane)
{
    const struct quant_info info = quant_info[type];
    if (type == DTYPE_MXFP4)
        head[lane] = (uint8_t)from->d;
    else
        memcpy(head + 2 * lane, &from->d, 2);
    if (info.has_minimum)
        memcpy(head + head_m(type) + 2 * lane, &from->m, 2);
    for (uint32_t j = 0; j < 8u * info.n_scales; j++)
        head[head_scales(type) + j * PANEL_ROWS + lane] =
            (uint8_t)(from->scale[j] | (type == DTYPE_Q2_K ? from->minimum[j] << 4 : 0));
    if (info.has_minimum && info.n_scales == 1)
        for (uint32_t j = 0; j < 8; j++)
            head[head_minimums(type) + j * PANEL_ROWS + lane] = from->minimum[j];
}

/* One block of one row into its lane of the panel's block. */
INLINE void pack_block(uint8_t *block, enum dtype type, const uint8_t *from, uint32_t lane)
{
    const int low = low_bits(type), high = quant_info[type].bits - low;
    struct quant_block unpacked;
    quant_unpack(&unpacked, from, type);
    pack_head(block, type, &unpacked, lane);
    for (uint32_t k = 0; k < block_k(type); k += 32) {
        uint8_t *to = block + head_bytes(type) + k / 32 * quant_bytes(type) + 4 * lane;
        pack_plane(to, unpacked.q + k, low, 0);
        if (high)
            pack_plane(to + 4 * PANEL_ROWS * low, unpacked.q + k, high, low);
    }
}

/* Elements of a and b in turn. */
INLINE void zip(uint8_t *restrict to, const uint8_t *restrict a, const uint8_t *restrict b, size_t bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(to + 2 * i * bytes, a + i * bytes, bytes);
        memcpy(to + (2 * i + 1) * bytes, b + i * bytes, bytes);
    }
}

/* [16][n] elements become [n][16].  Zipping the halves of an array turns the bits of every index around by one place; after four times
 * the row, which was in the upper bits, is in the lower four. */
INLINE void transpose(uint8_t *restrict to, const uint8_t *const row[PANEL_ROWS], size_t bytes, size_t n)
{
    uint8_t one[PANEL_ROWS * CACHE_LINE], other[PANEL_ROWS * CACHE_LINE];
    const size_t half = PANEL_ROWS / 2 * n;
    for (size_t i = 0; i < PANEL_ROWS / 2; i++)
        zip(one + 2 * i * n * bytes, row[i], row[i + PANEL_ROWS / 2], bytes, n);
    zip(other, one, one + half * bytes, bytes, half);
    zip(one, other, other + half * bytes, bytes, half);
    zip(to, one, one + half * bytes, bytes, half);
}

/* Where quants begin that stand in a block of the file as a panel wants them: after d and m and nothing else, 32 of them, of those of
 * four bits k and k + 16 in a byte.  0: elsewhere, or in another order. */
static const uint8_t words_at[N_DTYPES] = {
    [DTYPE_Q8_0] = 2, [DTYPE_Q4_0] = 2, [DTYPE_Q4_1] = 4, [DTYPE_IQ4_NL] = 2, [DTYPE_MXFP4] = 1,
};

/* A head of d and m, then words that only change places. */
INLINE void pack_word_blocks(uint8_t *panel, enum dtype type, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    const uint32_t head = words_at[type], n_words = quant_info[type].bits;
    const uint8_t sign = type == DTYPE_Q8_0 ? 0x80 : 0;         /* turned, for quants are 128 too large in a panel */
    const uint8_t *row[PANEL_ROWS];
    uint8_t absent[32];
    memset(absent, sign, sizeof absent);
    for (uint32_t b = 0; b < k / 32; b++) {
        uint8_t *to = panel + b * block_bytes(type), *words = to + head_bytes(type);
        for (uint32_t lane = 0; lane < n_lanes; lane++) {
            const uint8_t *from = rows + lane * row_bytes + b * dtype_info[type].bytes;
            for (uint32_t i = 0; i < head; i += 2)
                memcpy(to + i * PANEL_ROWS + MIN(head, 2) * lane, from + i, MIN(head, 2));
            row[lane] = from + head;
        }
        for (uint32_t lane = n_lanes; lane < PANEL_ROWS; lane++)
            row[lane] = absent;
        transpose(words, row, 4, n_words);
        for (uint32_t i = 0; sign && i < quant_bytes(type); i++)
            words[i] ^= sign;
    }
}

INLINE void pack_blocks(uint8_t *panel, enum dtype type, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    if (words_at[type]) {
        pack_word_blocks(panel, type, rows, row_bytes, n_lanes, k);
        return;
    }
    for (uint32_t b = 0; b < k / block_k(type); b++)
        for (uint32_t lane = 0; lane < n_lanes; lane++)
            pack_block(panel + b * block_bytes(type), type, rows + lane * row_bytes + b * dtype_info[type].bytes, lane);
}

/* A cache line of every row in turn: rows whose distance is a power of two would drive each other out of L1. */
INLINE void pack_elements(uint8_t *panel, size_t bytes, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    static const uint8_t zeros[CACHE_LINE];
    const uint32_t chunk = (uint32_t)(CACHE_LINE / bytes);
    const uint8_t *row[PANEL_ROWS];
    for (uint32_t begin = 0; begin < k; begin += chunk) {
        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
            row[lane] = lane < n_lanes ? rows + lane * row_bytes + begin * bytes : zeros;
        transpose(panel + (size_t)begin * PANEL_ROWS * bytes, row, bytes, begin + chunk <= k ? chunk : k - begin);
    }
}

static void pack_panel(uint8_t *panel, enum dtype type, const uint8_t *rows, size_t row_bytes, uint32_t n_lanes, uint32_t k)
{
    switch (type) {
#define CASE(type, TYPE, isa) case DTYPE_##TYPE: pack_blocks(panel, DTYPE_##TYPE, rows, row_bytes, n_lanes, k); break;
    MATMUL_INT8_TYPES(CASE, )
#undef CASE
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
        size_t used = n_lanes < PANEL_ROWS || quant_info[type].n_scales ? 0 : PANEL_ROWS * dtype_bytes(type, k);
        memset(to + used, 0, bytes - used);
        pack_panel(to, type, (const uint8_t *)rows + row * row_bytes, row_bytes, n_lanes, k);
    }
}
