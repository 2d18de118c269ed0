#include "quantize/encode.h"

#include "base/base.h"
#include "base/quant.h"
#include "quantize/fit.h"

#include <math.h>
#include <string.h>

#define F16_LARGEST 65504.0f
#define SUBS_MAX 16
#define ROUNDS 2                /* of whole scales and d in turns; more gain nothing */
#define D_STEP 0.03f            /* of the first guesses for d */

bool encode_can(enum dtype type)
{
    return dtype_info[type].weight && type != DTYPE_MXFP4;
}

float encode_largest(enum dtype type)
{
    return type == DTYPE_F32 ? 0x1.fffffep+127f : type == DTYPE_BF16 ? 0x1.fep+127f : F16_LARGEST;
}

/* A block while it is fitted: weight ~ level * (d * scale[j]) - m * minimum[j].  A type without sub-blocks has one, with a
 * scale of 1 and a minimum of -1. */
struct block_fit {
    const float *x, *importance;
    const struct levels *levels;
    int n_subs, n_sub;                  /* sub-blocks, weights of each */
    int scale_low, scale_high;          /* what a sub-block's scale can be; its minimum goes from 0 to scale_high */
    bool has_minimum;
    struct fit free[SUBS_MAX];          /* the best of a sub-block without a look at the others */
    float d, m;                         /* as f16 holds them */
    int scale[SUBS_MAX], minimum[SUBS_MAX];
};

static float to_f16(float value)
{
    return f16_to_f32(f32_to_f16(fminf(fmaxf(value, -F16_LARGEST), F16_LARGEST)));
}

static float sub_levels(const struct block_fit *b, int j, int scale, int minimum, float *level)
{
    return fit_levels(level, b->x + j * b->n_sub, b->importance + j * b->n_sub, b->n_sub, b->d * (float)scale, -(b->m * (float)minimum),
                      b->levels);
}

/* How many times `unit` fits into `value`, within [low, high]. */
static int times(float value, float unit, int low, int high)
{
    float ratio = unit != 0 ? value / unit : 0;
    return (int)rintf(fminf(fmaxf(ratio, (float)low), (float)high));
}

/* d and m are given: the scale and the minimum of a sub-block, looked for around what it would like.  Returns the error. */
static float choose_scale(struct block_fit *b, int j)
{
    const int scale = times(b->free[j].scale, b->d, b->scale_low, b->scale_high),
        minimum = times(-b->free[j].offset, b->m, 0, b->scale_high);
    const int around = b->has_minimum;
    float best = INFINITY, level[FIT_MAX];
    for (int s = MAX(scale - 1, b->scale_low); s <= MIN(scale + 1, b->scale_high); s++)
        for (int k = MAX(minimum - around, 0); k <= MIN(minimum + around, b->scale_high); k++) {
            float error = sub_levels(b, j, s, k, level);
            if (error < best) {
                best = error;
                b->scale[j] = s;
                b->minimum[j] = k;
            }
        }
    return best;
}

/* Scales and minimums are given, and with them the levels: d and m by least squares over the whole block. */
static void refit(struct block_fit *b)
{
    double dd = 0, dm = 0, mm = 0, xd = 0, xm = 0;
    float level[FIT_MAX];
    for (int j = 0; j < b->n_subs; j++) {
        struct normal s;
        const double scale = b->scale[j], minimum = -b->minimum[j];
        sub_levels(b, j, b->scale[j], b->minimum[j], level);
        normal_sums(&s, level, b->x + j * b->n_sub, b->importance + j * b->n_sub, b->n_sub);
        dd += scale * scale * s.ll;
        dm += scale * minimum * s.l;
        mm += minimum * minimum * s.w;
        xd += scale * s.xl;
        xm += minimum * s.x;
    }
    const double det = dd * mm - dm * dm;
    if (det > 1e-9 * dd * mm) {
        b->d = to_f16((float)((xd * mm - xm * dm) / det));
        b->m = to_f16((float)((xm * dd - xd * dm) / det));
    } else if (dd > 0) {
        b->d = to_f16((float)(xd / dd));
    } else if (mm > 0) {
        b->m = to_f16((float)(xm / mm));
    }
}

/* From a first d and m: scales, then d and m, in turns while it helps. */
static void improve(struct block_fit *best, float *best_error, float d, float m)
{
    struct block_fit b = *best;
    b.d = to_f16(d);
    b.m = to_f16(m);
    for (int round = 0; round < ROUNDS; round++) {
        float error = 0;
        for (int j = 0; j < b.n_subs; j++)
            error += choose_scale(&b, j);
        if (!(error < *best_error))
            return;
        *best_error = error;
        *best = b;
        refit(&b);
    }
}

static void fit_sub(struct block_fit *b, int j, bool with_sign)
{
    const float *x = b->x + j * b->n_sub, *importance = b->importance + j * b->n_sub;
    if (b->has_minimum)
        fit_scale_and_offset(&b->free[j], x, importance, b->n_sub, b->levels, with_sign);
    else
        fit_scale(&b->free[j], x, importance, b->n_sub, b->levels);
}

/* A block with sub-blocks: the largest scale becomes the last whole one, or a little less or more. */
static void fit_scales(struct block_fit *b)
{
    const float last = (float)(b->scale_low < 0 ? b->scale_low : b->scale_high);
    float scale = 0, minimum = 0, error = INFINITY;
    for (int j = 0; j < b->n_subs; j++) {
        fit_sub(b, j, false);
        if (fabsf(b->free[j].scale) > fabsf(scale))
            scale = b->free[j].scale;
        minimum = fmaxf(minimum, -b->free[j].offset);
    }
    for (int i = -1; i <= 1; i++)
        improve(b, &error, scale / last * (1 - D_STEP * (float)i), minimum / (float)b->scale_high * (1 + D_STEP));
}

static void fit_simple(struct block_fit *b)
{
    fit_sub(b, 0, true);
    b->d = to_f16(b->free[0].scale);
    b->m = to_f16(b->free[0].offset);
    b->scale[0] = 1;
    b->minimum[0] = -1;
}

static uint8_t quant_of(float level, const struct quant_info *info)
{
    int q = 0;
    if (!info->values)
        return (uint8_t)((int)level + info->offset);
    while (info->values[q] != (int)level)
        q++;
    return (uint8_t)q;
}

static void store(uint8_t *to, const struct block_fit *b, enum dtype type)
{
    const struct quant_info info = quant_info[type];
    struct quant_block block = { .d = f32_to_f16(b->d), .m = f32_to_f16(b->m) };
    for (int j = 0; j < b->n_subs; j++) {
        float level[FIT_MAX];
        sub_levels(b, j, b->scale[j], b->minimum[j], level);
        for (int i = 0; i < b->n_sub; i++)
            block.q[j * b->n_sub + i] = quant_of(level[i], &info);
        block.scale[j] = (int8_t)b->scale[j];
        block.minimum[j] = (uint8_t)b->minimum[j];
    }
    quant_pack(to, &block, type);
}

static void weigh(float *importance, const float *x, int n)
{
    float square = 0;
    for (int i = 0; i < n; i++)
        square += x[i] * x[i];
    square = sqrtf(square / (float)n);
    for (int i = 0; i < n; i++)
        importance[i] = square + fabsf(x[i]);
}

/* The whole numbers that a sub-block's scale can be. */
static void set_scale_range(struct block_fit *b, enum dtype type)
{
    b->scale_low = type == DTYPE_Q6_K ? -128 : type == DTYPE_Q3_K || type == DTYPE_IQ4_XS ? -32 : 0;
    b->scale_high = type == DTYPE_Q6_K ? 127 : type == DTYPE_Q2_K ? 15 : b->scale_low ? 31 : 63;
}

static void encode_blocks(uint8_t *to, const float *from, const float *importance, enum dtype type, size_t n)
{
    const size_t n_block = dtype_info[type].block;
    struct levels levels;
    float weighed[QUANT_BLOCK_MAX];
    struct block_fit b = { .levels = &levels, .n_sub = quant_info[type].n_scales == 2 ? 16 : 32,
                           .has_minimum = quant_info[type].has_minimum };
    b.n_subs = (int)n_block / b.n_sub;
    set_scale_range(&b, type);
    levels_init(&levels, type);
    for (size_t at = 0; at < n; at += n_block, to += dtype_info[type].bytes) {
        b.x = from + at;
        b.importance = importance ? importance + at : weighed;
        if (!importance)
            weigh(weighed, b.x, (int)n_block);
        if (quant_info[type].n_scales)
            fit_scales(&b);
        else
            fit_simple(&b);
        store(to, &b, type);
    }
}

void encode_row(void *restrict to, const float *restrict from, const float *importance, enum dtype type, size_t n)
{
    uint8_t *bytes = to;
    if (type == DTYPE_F32)
        memcpy(to, from, n * sizeof *from);
    else if (type == DTYPE_F16 || type == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) {
            uint16_t half = type == DTYPE_F16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
            memcpy(bytes + 2 * i, &half, sizeof half);
        }
    else
        encode_blocks(bytes, from, importance, type, n);
}
