/* fit.h: the scale, and the offset where a type has one, that let a few levels stand for n weights with the least error.
 *
 *   weight ~ level * scale + offset         error: sum over i of importance[i] * (weight[i] - what stands for it)^2
 *
 * n is 16 or 32.  Sums run in eight lanes, so the compiler's vectors change no bit. */
#ifndef STOA_QUANTIZE_FIT_H
#define STOA_QUANTIZE_FIT_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define FIT_MAX 32

/* The numbers that a quant of a type can stand for: all integers of a range, or 16 of a table. */
struct levels {
    float low, high;
    bool is_table;
    float nearest[2 * 256];     /* of a table: the level for each half step from -128 on */
};
void levels_init(struct levels *levels, enum dtype type);

struct fit {
    float scale, offset, error;
};

/* The best scale, of either sign; offset 0. */
void fit_scale(struct fit *fit, const float *x, const float *importance, int n, const struct levels *levels);
/* Levels from 0 on: the best scale >= 0 with an offset.  with_sign: of either sign, else an offset <= 0. */
void fit_scale_and_offset(struct fit *fit, const float *x, const float *importance, int n, const struct levels *levels, bool with_sign);
/* The levels under a given scale and offset; returns the error. */
float fit_levels(float *level, const float *x, const float *importance, int n, float scale, float offset, const struct levels *levels);

/* With levels given, scale and offset follow by least squares from these sums of importance times 1, level, level^2, weight
 * and weight * level. */
struct normal {
    float w, l, ll, x, xl;
};
void normal_sums(struct normal *sums, const float *level, const float *x, const float *importance, int n);

#endif
