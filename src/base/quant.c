#include "base/quant.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Where a type keeps its parts.  A plane holds `bits` of each quant: of every `run` bytes, the lowest bits belong to the first
 * `run` weights, the next to the `run` after them, and so on. */
struct plane {
    uint8_t at, run, bits;
};
struct layout {
    struct plane low, high;
    uint8_t d, m, scales;
};
static const struct layout layouts[N_DTYPES] = {
    /*                  low             high          d    m  scales */
    [DTYPE_Q8_0]   = { { 2, 32, 8 },  { 0 },          0,   0,   0 },
    [DTYPE_Q4_0]   = { { 2, 16, 4 },  { 0 },          0,   0,   0 },
    [DTYPE_Q4_1]   = { { 4, 16, 4 },  { 0 },          0,   2,   0 },
    [DTYPE_Q5_0]   = { { 6, 16, 4 },  { 2, 1, 1 },    0,   0,   0 },
    [DTYPE_Q5_1]   = { { 8, 16, 4 },  { 4, 1, 1 },    0,   2,   0 },
    [DTYPE_Q2_K]   = { { 16, 32, 2 }, { 0 },          80,  82,  0 },
    [DTYPE_Q3_K]   = { { 32, 32, 2 }, { 0, 32, 1 },   108, 0,   96 },
    [DTYPE_Q4_K]   = { { 16, 32, 4 }, { 0 },          0,   2,   4 },
    [DTYPE_Q5_K]   = { { 48, 32, 4 }, { 16, 32, 1 },  0,   2,   4 },
    [DTYPE_Q6_K]   = { { 0, 64, 4 },  { 128, 32, 2 }, 208, 0,   192 },
    [DTYPE_IQ4_NL] = { { 2, 16, 4 },  { 0 },          0,   0,   0 },
    [DTYPE_IQ4_XS] = { { 8, 16, 4 },  { 0 },          0,   0,   2 },
    [DTYPE_MXFP4]  = { { 1, 16, 4 },  { 0 },          0,   0,   0 },
};

/* Eight bits, each to a byte. */
INLINE uint64_t spread_bits(uint8_t bits)
{
    uint64_t apart = bits * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
    return (apart + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7 & UINT64_C(0x0101010101010101);
}

/* Adds n quants' bits of a plane to q, `shift` bits up; those of shift 0 come first.  Unrolled, gcc would not see vectors. */
INLINE void spread(uint8_t *restrict q, const uint8_t *restrict block, struct plane plane, int n, int shift)
{
    const uint8_t *from = block + plane.at, mask = (uint8_t)((1 << plane.bits) - 1);
    if (plane.run == 1) {
        for (int i = 0; i < n; i += 8, from++) {
            uint64_t eight;
            memcpy(&eight, q + i, 8);
            eight |= spread_bits(*from) << shift;
            memcpy(q + i, &eight, 8);
        }
        return;
    }
    _Pragma("GCC unroll 1") for (int i = 0; i < n; from += plane.run)
        _Pragma("GCC unroll 1") for (int s = 0; s < 8; s += plane.bits, i += plane.run)
            for (int l = 0; l < plane.run; l++)
                q[i + l] = (uint8_t)((shift ? q[i + l] : 0) | (from[l] >> s & mask) << shift);
}

/* Q4_K, Q5_K: eight scales and eight minimums of six bits in 12 bytes; the last four bytes have the low nibbles of the last
 * four of each, whose top bits are in those of the first eight bytes. */
INLINE void unpack_scales_4(struct quant_block *to, const uint8_t *s)
{
    for (int j = 0; j < 4; j++) {
        to->scale[j] = s[j] & 63;
        to->minimum[j] = s[4 + j] & 63;
        to->scale[4 + j] = (int8_t)((s[8 + j] & 15) | (s[j] >> 6) << 4);
        to->minimum[4 + j] = (uint8_t)(s[8 + j] >> 4 | (s[4 + j] >> 6) << 4);
    }
}

/* Q3_K: 16 scales of six bits, 32 too large; low nibbles in 8 bytes as a plane of run 8, the top bits in a plane of run 4. */
INLINE void unpack_scales_3(struct quant_block *to, const uint8_t *s)
{
    for (int j = 0; j < 16; j++)
        to->scale[j] = (int8_t)((s[j % 8] >> j / 8 * 4 & 15) + (s[8 + j % 4] >> j / 4 * 2 & 3) * 16 - 32);
}

/* Q2_K: a byte for each 16 weights, scale in the low nibble. */
INLINE void unpack_scales_2(struct quant_block *to, const uint8_t *s)
{
    for (int j = 0; j < 16; j++) {
        to->scale[j] = s[j] & 15;
        to->minimum[j] = s[j] >> 4;
    }
}

/* IQ4_XS: eight scales, 32 too large; top bits in an u16, low nibbles in the four bytes after it. */
INLINE void unpack_scales_xs(struct quant_block *to, const uint8_t *s)
{
    for (int j = 0; j < 8; j++)
        to->scale[j] = (int8_t)((s[2 + j / 2] >> j % 2 * 4 & 15) + (s[j / 4] >> j % 4 * 2 & 3) * 16 - 32);
}

INLINE void unpack(struct quant_block *to, const uint8_t *from, enum dtype type)
{
    const struct layout layout = layouts[type];
    const int n = quant_info[type].n_scales ? 256 : 32;

    spread(to->q, from, layout.low, n, 0);
    if (layout.high.bits)
        spread(to->q, from, layout.high, n, layout.low.bits);
    if (type == DTYPE_Q8_0)
        for (int i = 0; i < n; i++)
            to->q[i] ^= 0x80;                           /* from signed to 128 too large */
    if (type == DTYPE_MXFP4)
        to->d = from[layout.d];
    else
        memcpy(&to->d, from + layout.d, 2);
    if (quant_info[type].has_minimum)
        memcpy(&to->m, from + layout.m, 2);
    from += layout.scales;
    switch (type) {
    case DTYPE_Q2_K: unpack_scales_2(to, from); break;
    case DTYPE_Q3_K: unpack_scales_3(to, from); break;
    case DTYPE_Q4_K: case DTYPE_Q5_K: unpack_scales_4(to, from); break;
    case DTYPE_Q6_K: memcpy(to->scale, from, 16); break;
    case DTYPE_IQ4_XS: unpack_scales_xs(to, from); break;
    default: break;
    }
}

/* The types as constants, for the sake of speed: packing a model waits for this. */
void quant_unpack(struct quant_block *to, const uint8_t *from, enum dtype type)
{
#define CASE(TYPE) case DTYPE_##TYPE: unpack(to, from, DTYPE_##TYPE); break;
    switch (type) {
    CASE(Q8_0) CASE(Q4_0) CASE(Q4_1) CASE(Q5_0) CASE(Q5_1) CASE(Q2_K) CASE(Q3_K) CASE(Q4_K) CASE(Q5_K) CASE(Q6_K)
    CASE(IQ4_NL) CASE(IQ4_XS) CASE(MXFP4)
    default: break;
    }
#undef CASE
}

/* ---- the way back ---- */

/* The bits of a plane, `shift` bits up in each of n quants, into bytes that are zero there. */
static void collect(uint8_t *block, const uint8_t *q, struct plane plane, int n, int shift)
{
    uint8_t *to = block + plane.at, mask = (uint8_t)((1 << plane.bits) - 1);
    for (int i = 0; i < n; to += plane.run)
        for (int s = 0; s < 8; s += plane.bits, i += plane.run)
            for (int l = 0; l < plane.run; l++)
                to[l] |= (uint8_t)((q[i + l] >> shift & mask) << s);
}

static void pack_scales_4(uint8_t *s, const struct quant_block *from)
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(from->scale[j] | from->scale[4 + j] >> 4 << 6);
        s[4 + j] = (uint8_t)(from->minimum[j] | from->minimum[4 + j] >> 4 << 6);
        s[8 + j] = (uint8_t)((from->scale[4 + j] & 15) | (from->minimum[4 + j] & 15) << 4);
    }
}

static void pack_scales_3(uint8_t *s, const struct quant_block *from)
{
    for (int j = 0; j < 16; j++) {
        int scale = from->scale[j] + 32;
        s[j % 8] |= (uint8_t)((scale & 15) << j / 8 * 4);
        s[8 + j % 4] |= (uint8_t)(scale >> 4 << j / 4 * 2);
    }
}

static void pack_scales_2(uint8_t *s, const struct quant_block *from)
{
    for (int j = 0; j < 16; j++)
        s[j] = (uint8_t)(from->scale[j] | from->minimum[j] << 4);
}

static void pack_scales_xs(uint8_t *s, const struct quant_block *from)
{
    for (int j = 0; j < 8; j++) {
        int scale = from->scale[j] + 32;
        s[2 + j / 2] |= (uint8_t)((scale & 15) << j % 2 * 4);
        s[j / 4] |= (uint8_t)(scale >> 4 << j % 4 * 2);
    }
}

void quant_pack(uint8_t *to, const struct quant_block *from, enum dtype type)
{
    const struct layout layout = layouts[type];
    const struct quant_info info = quant_info[type];
    const int n = (int)dtype_info[type].block;

    memset(to, 0, dtype_info[type].bytes);
    collect(to, from->q, layout.low, n, 0);
    if (layout.high.bits)
        collect(to, from->q, layout.high, n, layout.low.bits);
    if (type == DTYPE_Q8_0)
        for (int i = 0; i < n; i++)
            to[layout.low.at + i] ^= 0x80;
    if (type == DTYPE_MXFP4)
        to[layout.d] = (uint8_t)from->d;
    else
        memcpy(to + layout.d, &from->d, 2);
    if (info.has_minimum)
        memcpy(to + layout.m, &from->m, 2);
    to += layout.scales;
    switch (type) {
    case DTYPE_Q2_K: pack_scales_2(to, from); break;
    case DTYPE_Q3_K: pack_scales_3(to, from); break;
    case DTYPE_Q4_K: case DTYPE_Q5_K: pack_scales_4(to, from); break;
    case DTYPE_Q6_K: memcpy(to, from->scale, 16); break;
    case DTYPE_IQ4_XS: pack_scales_xs(to, from); break;
    default: break;
    }
}
