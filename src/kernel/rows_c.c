#include "kernel/rows.h"

#include "base/base.h"
#include "kernel/math.h"

#include <math.h>

void rms_norm_c(float *y, const float *x, const float *weight, size_t n, float eps)
{
    float lane[16] = { 0 }, scale;

    for (size_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    for (size_t gap = 8; gap >= 1; gap /= 2)
        for (size_t i = 0; i < gap; i++)
            lane[i] += lane[i + gap];
    scale = 1.0f / sqrtf(lane[0] / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * scale * weight[i];
}

void add_c(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void swiglu_c(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] * (1.0f / (1.0f + math_exp(-gate[i]))) * up[i];
}

void geglu_c(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], u = 0x1.988454p-1f * fmaf(0.044715f * (x * x), x, x);
        y[i] = 0.5f * x * (1.0f + math_tanh(u)) * up[i];
    }
}

void scale_c(float *y, const float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

void softcap_c(float *y, const float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = cap * math_tanh(x[i] / cap);
}

void rope_c(float *x, const float *angle, size_t n_pairs, bool interleaved)
{
    size_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : n_pairs;

    for (size_t i = 0; i < n_pairs; i++) {
        float *a = x + i * step, *b = a + apart;
        float x0 = *a, x1 = *b, c = angle[i], s = angle[n_pairs + i];
        *a = fmaf(x0, c, -(x1 * s));
        *b = fmaf(x0, s, x1 * c);
    }
}

float row_max_c(const float *x, size_t n)
{
    float max = -INFINITY;

    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return NAN;
        max = MAX(max, x[i]);
    }
    return max + 0.0f;          /* -0 and +0 are equal, and which came last must not show */
}
