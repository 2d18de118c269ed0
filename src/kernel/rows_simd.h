/* rows_simd.h: the body of rows_avx2.c, rows_avx512.c and rows_neon.c.  Full vectors first, then what is left of the row. */
#include "kernel/rows.h"

#include "base/base.h"
#include "kernel/simd.h"

/* The first min(n, LANES) elements; none when n is 0. */
static ALWAYS_INLINE vec load_up_to(const float *from, size_t n)
{
    return n >= LANES ? vec_load(from) : vec_load_part(from, n);
}

/* An element that is not there is loaded as +0, and fma(0, 0, lane) leaves the lane as it was. */
void SIMD(rms_norm)(float *y, const float *x, const float *weight, size_t n, float eps)
{
    vec lanes[VECS_16], scale;
    size_t i;

    for (size_t v = 0; v < VECS_16; v++)
        lanes[v] = vec_all(0.0f);
    for (i = 0; i + 16 <= n; i += 16)
        for (size_t v = 0; v < VECS_16; v++) {
            vec a = vec_load(x + i + v * LANES);
            lanes[v] = vec_fma(a, a, lanes[v]);
        }
    for (size_t v = 0; v < VECS_16 && i < n; v++, i += LANES) {
        vec a = load_up_to(x + i, n - i);
        lanes[v] = vec_fma(a, a, lanes[v]);
    }
    scale = vec_all(1.0f / sqrtf(lanes_sum(lanes) / (float)n + eps));
    for (i = 0; i + LANES <= n; i += LANES)
        vec_store(y + i, vec_mul(vec_mul(vec_load(x + i), scale), vec_load(weight + i)));
    if (i < n)
        vec_store_part(y + i, vec_mul(vec_mul(vec_load_part(x + i, n - i), scale), vec_load_part(weight + i, n - i)), n - i);
}

void SIMD(add)(float *y, const float *a, const float *b, size_t n)
{
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES)
        vec_store(y + i, vec_add(vec_load(a + i), vec_load(b + i)));
    if (i < n)
        vec_store_part(y + i, vec_add(vec_load_part(a + i, n - i), vec_load_part(b + i, n - i)), n - i);
}

static ALWAYS_INLINE vec silu(vec x)
{
    vec one = vec_all(1.0f);
    return vec_mul(x, vec_div(one, vec_add(one, vec_exp(vec_neg(x)))));
}

static ALWAYS_INLINE vec gelu(vec x)
{
    vec u = vec_mul(vec_all(0x1.988454p-1f), vec_fma(vec_mul(vec_all(0.044715f), vec_mul(x, x)), x, x));
    return vec_mul(vec_mul(vec_all(0.5f), x), vec_add(vec_all(1.0f), vec_tanh(u)));
}

/* y = act(gate) * up; act is a constant. */
static ALWAYS_INLINE void glu(float *y, const float *gate, const float *up, size_t n, vec act(vec))
{
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES)
        vec_store(y + i, vec_mul(act(vec_load(gate + i)), vec_load(up + i)));
    if (i < n)
        vec_store_part(y + i, vec_mul(act(vec_load_part(gate + i, n - i)), vec_load_part(up + i, n - i)), n - i);
}

void SIMD(swiglu)(float *y, const float *gate, const float *up, size_t n)
{
    glu(y, gate, up, n, silu);
}

void SIMD(geglu)(float *y, const float *gate, const float *up, size_t n)
{
    glu(y, gate, up, n, gelu);
}

void SIMD(scale)(float *y, const float *x, float factor, size_t n)
{
    const vec all = vec_all(factor);
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES)
        vec_store(y + i, vec_mul(vec_load(x + i), all));
    if (i < n)
        vec_store_part(y + i, vec_mul(vec_load_part(x + i, n - i), all), n - i);
}

void SIMD(softcap)(float *y, const float *x, float cap, size_t n)
{
    const vec all = vec_all(cap);
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES)
        vec_store(y + i, vec_softcap(vec_load(x + i), all));
    if (i < n)
        vec_store_part(y + i, vec_softcap(vec_load_part(x + i, n - i), all), n - i);
}

/* Turns each pair (x0, x1) of two vectors by its angle. */
static ALWAYS_INLINE void rotate(vec *x0, vec *x1, vec c, vec s)
{
    vec a = *x0, b = *x1;
    *x0 = vec_fms(a, c, vec_mul(b, s));
    *x1 = vec_fma(a, s, vec_mul(b, c));
}

static void rope_halves(float *x, const float *c, const float *s, size_t n_pairs)
{
    float *x0 = x, *x1 = x + n_pairs;
    size_t i;
    vec a, b;

    for (i = 0; i + LANES <= n_pairs; i += LANES) {
        a = vec_load(x0 + i);
        b = vec_load(x1 + i);
        rotate(&a, &b, vec_load(c + i), vec_load(s + i));
        vec_store(x0 + i, a);
        vec_store(x1 + i, b);
    }
    if (i < n_pairs) {
        a = vec_load_part(x0 + i, n_pairs - i);
        b = vec_load_part(x1 + i, n_pairs - i);
        rotate(&a, &b, vec_load_part(c + i, n_pairs - i), vec_load_part(s + i, n_pairs - i));
        vec_store_part(x0 + i, a, n_pairs - i);
        vec_store_part(x1 + i, b, n_pairs - i);
    }
}

static void rope_neighbours(float *x, const float *c, const float *s, size_t n_pairs)
{
    size_t i;
    vec a, b, low, high;

    for (i = 0; i + LANES <= n_pairs; i += LANES) {
        vec_unzip(vec_load(x + 2 * i), vec_load(x + 2 * i + LANES), &a, &b);
        rotate(&a, &b, vec_load(c + i), vec_load(s + i));
        vec_zip(a, b, &low, &high);
        vec_store(x + 2 * i, low);
        vec_store(x + 2 * i + LANES, high);
    }
    if (i < n_pairs) {
        float pairs[2 * LANES] = { 0 };
        size_t n_left = n_pairs - i;
        memcpy(pairs, x + 2 * i, 2 * n_left * sizeof *x);
        vec_unzip(vec_load(pairs), vec_load(pairs + LANES), &a, &b);
        rotate(&a, &b, vec_load_part(c + i, n_left), vec_load_part(s + i, n_left));
        vec_zip(a, b, &low, &high);
        vec_store(pairs, low);
        vec_store(pairs + LANES, high);
        memcpy(x + 2 * i, pairs, 2 * n_left * sizeof *x);
    }
}

void SIMD(rope)(float *x, const float *angle, size_t n_pairs, bool interleaved)
{
    if (interleaved)
        rope_neighbours(x, angle, angle + n_pairs, n_pairs);
    else
        rope_halves(x, angle, angle + n_pairs, n_pairs);
}

static ALWAYS_INLINE float larger_or_nan(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : MAX(a, b);
}

float SIMD(row_max)(const float *x, size_t n)
{
    vec max = vec_all(-INFINITY);
    float lane[LANES];
    size_t i;

    for (i = 0; i + LANES <= n; i += LANES) {
        vec a = vec_load(x + i);
        max = vec_if_nan(a, a, vec_max(a, max));        /* a NaN in max stays: vec_max() gives its second operand then */
    }
    vec_store(lane, max);
    for (; i < n; i++)
        lane[i % LANES] = larger_or_nan(lane[i % LANES], x[i]);
    for (size_t j = 1; j < LANES; j++)
        lane[0] = larger_or_nan(lane[0], lane[j]);
    return isnan(lane[0]) ? NAN : lane[0] + 0.0f;
}
