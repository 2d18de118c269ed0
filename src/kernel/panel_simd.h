/* panel_simd.h: reads a strip of a packed panel (panel.h) into registers: LANES rows, from row `lane` of the panel on.
 *
 * The file that includes this has defined `ints`, a register of LANES int32, and what can be done with it. */
#ifndef STOA_KERNEL_PANEL_SIMD_H
#define STOA_KERNEL_PANEL_SIMD_H

/* ---- a head ---- */

INLINE vec load_d(enum dtype type, const uint8_t *head, size_t lane)
{
    return type == DTYPE_MXFP4 ? vec_from_e8m0_half(head + lane) : vec_from_f16(half_load((const void *)(head + 2 * lane)));
}

/* m, or -m where it stands before minimums; 0 where a type has none, and then it is not used. */
INLINE vec load_m(enum dtype type, const uint8_t *head, size_t lane)
{
    if (!quant_info[type].has_minimum)
        return vec_all(0.0f);
    vec m = vec_from_f16(half_load((const void *)(head + head_m(type) + 2 * lane)));
    return quant_info[type].n_scales ? vec_neg(m) : m;
}

INLINE vec load_scale(enum dtype type, const uint8_t *head, size_t lane, int j)
{
    ints scale = ints_from_bytes(head + head_scales(type) + j * PANEL_ROWS + lane);
    return vec_from_ints(type == DTYPE_Q2_K ? ints_and(scale, ints_all(15)) : scale);
}

INLINE ints load_minimum(enum dtype type, const uint8_t *head, size_t lane, int j)
{
    if (type == DTYPE_Q2_K)
        return ints_and(ints_shift_right(ints_from_bytes(head + head_scales(type) + j * PANEL_ROWS + lane), 4), ints_all(15));
    return ints_from_bytes(head + head_minimums(type) + j * PANEL_ROWS + lane);
}

/* ---- quants ---- */

/* Moves bits `from` and up of every byte to bit `to`.  What comes in from a byte's neighbour is for the caller to mask off. */
INLINE ints move_bits(ints bytes, int from, int to)
{
    return from > to ? ints_shift16_right(bytes, from - to) : from < to ? ints_shift16_left(bytes, to - from) : bytes;
}

/* `bits` ones from bit `at` of every byte. */
INLINE ints mask_bytes(int bits, int at)
{
    return ints_all(0x01010101 * (((1 << bits) - 1) << at));
}

/* Bytes of k = 4 j to 4 j + 3 of 32, unsigned: too large by the type's offset. */
INLINE ints load_quants(enum dtype type, const uint8_t *quants, size_t lane, int j)
{
    const int low = low_bits(type), high = quant_info[type].bits - low;
    ints q = ints_load(quants + j % low * 64 + 4 * lane);
    if (low < 8)
        q = ints_and(move_bits(q, j / low * low, 0), mask_bytes(low, 0));
    if (high) {
        ints bits = ints_load(quants + (low + j % high) * 64 + 4 * lane);
        q = ints_or_and(q, move_bits(bits, j / high * high, low), mask_bytes(high, low));
    }
    return quant_info[type].values ? ints_look_up(quant_info[type].values, q) : q;
}

/* Element i of each four bytes that load_quants() gave, as a number. */
INLINE vec quant_value(enum dtype type, ints quants, int i)
{
    return vec_from_ints(ints_sub(ints_and(ints_shift_right(quants, 8 * i), ints_all(255)), ints_all(quant_info[type].offset)));
}

/* ---- what panels are multiplied with ---- */

/* Four quants of x, in every lane. */
INLINE ints quants_all(const uint8_t *from)
{
    int v;
    memcpy(&v, from, sizeof v);
    return ints_all(v);
}

#endif
