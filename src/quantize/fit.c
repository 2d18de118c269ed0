#include "quantize/fit.h"

#include "base/base.h"
#include "base/quant.h"

#include <math.h>

#define LANES 8
#define SCALE_TINY 1e-30f       /* below, 1 / scale is not finite; such weights are zero in f16 */
#define ROUNDS_MAX 8            /* of levels and least squares in turns; two or three suffice nearly always */

/* The first guesses, found by trial: finer or wider ones lower the error by less than a hundredth. */
#define INSIDE_STEPS 8          /* of 2.5 % each */
#define BEYOND_STEPS 6
#define SCALE_STEP 0.025f
#define END_STEPS 3             /* for both ends of a range, of 5 % each */
#define END_STEP 0.05f

void levels_init(struct levels *levels, enum dtype type)
{
    const struct quant_info info = quant_info[type];
    *levels = (struct levels){ .low = -(float)info.offset, .high = (float)((1 << info.bits) - 1 - info.offset),
                               .is_table = info.values != NULL };
    if (type == DTYPE_Q8_0)
        levels->low = -127;     /* what others write; kernels elsewhere may rely on it */
    if (!info.values)
        return;
    levels->low = info.values[0];
    levels->high = info.values[15];
    for (int i = 0, q = 0; i < 2 * 256; i++) {
        float at = 0.5f * (float)i - 128 + 0.25f;       /* no midpoint of two levels is inside a half step */
        while (q < 15 && at > 0.5f * (float)(info.values[q] + info.values[q + 1]))
            q++;
        levels->nearest[i] = info.values[q];
    }
}

/* ---- sums in lanes ---- */
static float sum_lanes(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* sum = the sum of TERM over i */
#define SUM(sum, TERM)                          \
    do {                                        \
        float lane_[LANES] = { 0 };             \
        for (int at_ = 0; at_ < n; at_ += LANES)    \
            for (int k_ = 0; k_ < LANES; k_++) {    \
                int i = at_ + k_;               \
                lane_[k_] += (TERM);            \
            }                                   \
        sum = sum_lanes(lane_);                 \
    } while (0)

/* To the nearest integer, ties to even; |x| < 2^22. */
static inline float round_even(float x)
{
    const float shifter = 0x1.8p+23f;
    return (x + shifter) - shifter;
}

static void find_levels(float *level, const float *x, int n, float inverse, float offset, const struct levels *levels)
{
    for (int i = 0; i < n; i++) {
        float t = (x[i] - offset) * inverse;
        t = t > levels->low ? t : levels->low;
        level[i] = t < levels->high ? t : levels->high;
    }
    if (levels->is_table)
        for (int i = 0; i < n; i++)
            level[i] = levels->nearest[(int)((level[i] + 128) * 2)];
    else
        for (int i = 0; i < n; i++)
            level[i] = round_even(level[i]);
}

static float inverse_of(float scale)
{
    return fabsf(scale) < SCALE_TINY ? 0 : 1 / scale;
}

static float error_of(const float *level, const float *x, const float *importance, int n, float scale, float offset)
{
    float error;
    SUM(error, (x[i] - (level[i] * scale + offset)) * (x[i] - (level[i] * scale + offset)) * importance[i]);
    return error;
}

float fit_levels(float *level, const float *x, const float *importance, int n, float scale, float offset, const struct levels *levels)
{
    find_levels(level, x, n, inverse_of(scale), offset, levels);
    return error_of(level, x, importance, n, scale, offset);
}

void normal_sums(struct normal *sums, const float *level, const float *x, const float *importance, int n)
{
    SUM(sums->w, importance[i]);
    SUM(sums->l, importance[i] * level[i]);
    SUM(sums->ll, importance[i] * level[i] * level[i]);
    SUM(sums->x, importance[i] * x[i]);
    SUM(sums->xl, importance[i] * x[i] * level[i]);
}

/* ---- a scale ---- */

/* The levels nearest to the weights times `inverse`, then the scale that suits them best: true when that beats *best. */
static bool try_scale(struct fit *best, const float *x, const float *importance, int n, float inverse, const struct levels *levels)
{
    float level[FIT_MAX], xl, ll;
    find_levels(level, x, n, inverse, 0, levels);
    SUM(xl, importance[i] * x[i] * level[i]);
    SUM(ll, importance[i] * level[i] * level[i]);
    float scale = ll > 0 ? xl / ll : 0;
    if (fabsf(scale) < SCALE_TINY)
        return false;
    float error = error_of(level, x, importance, n, scale, 0);
    if (!(error < best->error))
        return false;
    *best = (struct fit){ scale, 0, error };
    return true;
}

void fit_scale(struct fit *fit, const float *x, const float *importance, int n, const struct levels *levels)
{
    const bool is_even = levels->high == -levels->low;
    const float span = fmaxf(levels->high, -levels->low);
    float largest = 0, none;
    for (int i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    SUM(none, x[i] * x[i] * importance[i]);
    *fit = (struct fit){ 0, 0, none };
    if (largest < SCALE_TINY)
        return;
    /* The largest weight at the last level, or a little inside or beyond it and so cut off; from either end. */
    for (int step = -INSIDE_STEPS; step <= BEYOND_STEPS; step++) {
        float inverse = span * (1 + SCALE_STEP * (float)step) / largest;
        try_scale(fit, x, importance, n, -inverse, levels);
        if (!is_even)
            try_scale(fit, x, importance, n, inverse, levels);
    }
    for (int round = 0; round < ROUNDS_MAX && try_scale(fit, x, importance, n, 1 / fit->scale, levels); round++)
        ;
}

/* ---- a scale and an offset ---- */
static bool solve(const struct normal *s, bool with_sign, float *scale, float *offset)
{
    float det = s->w * s->ll - s->l * s->l;
    bool one_level = !(det > 1e-5f * s->w * s->ll);         /* all weights at one: what is left is rounding */
    if (!(s->ll > 0))
        return false;
    *scale = (s->w * s->xl - s->x * s->l) / det;
    *offset = (s->x * s->ll - s->l * s->xl) / det;
    if (one_level || (*offset > 0 && !with_sign)) {
        *offset = 0;
        *scale = s->xl / s->ll;
    }
    return *scale > SCALE_TINY;
}

/* As try_scale(). */
static bool try_both(struct fit *best, const float *x, const float *importance, int n, float scale, float offset,
                     const struct levels *levels, bool with_sign)
{
    struct normal s;
    float level[FIT_MAX];
    find_levels(level, x, n, inverse_of(scale), offset, levels);
    normal_sums(&s, level, x, importance, n);
    if (!solve(&s, with_sign, &scale, &offset))
        return false;
    float error = error_of(level, x, importance, n, scale, offset);
    if (!(error < best->error))
        return false;
    *best = (struct fit){ scale, offset, error };
    return true;
}

void fit_scale_and_offset(struct fit *fit, const float *x, const float *importance, int n, const struct levels *levels, bool with_sign)
{
    float low = x[0], high = x[0], level[FIT_MAX];
    for (int i = 1; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (!with_sign)
        low = fminf(low, 0);
    float span = high - low;
    *fit = (struct fit){ 0, low, 0 };
    fit->error = fit_levels(level, x, importance, n, 0, low, levels);
    if (span < SCALE_TINY)
        return;
    /* Each end at the outermost weight, or a little inside or beyond it. */
    for (int a = -1; a <= END_STEPS; a++)
        for (int b = -1; b <= END_STEPS; b++) {
            float from = low + END_STEP * span * (float)a, to = high - END_STEP * span * (float)b;
            try_both(fit, x, importance, n, (to - from) / levels->high, from, levels, with_sign);
        }
    for (int round = 0; round < ROUNDS_MAX && try_both(fit, x, importance, n, fit->scale, fit->offset, levels, with_sign); round++)
        ;
}
