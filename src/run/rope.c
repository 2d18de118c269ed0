#include "run/rope.h"

#include "base/base.h"
#include "kernel/math.h"

#include <math.h>

/* The pair (not rounded) that turns `turns` times within the original context. */
static double pair_of(const struct rope_scaling *r, double turns, uint32_t n_rotated)
{
    double x = r->original_context / (turns * 2 * 3.14159265358979323846);
    return n_rotated * (double)math_log((float)x) / (2 * (double)math_log(r->base));
}

/* How much of pair i is stretched by YaRN: 0 for the fast pairs, 1 for the slow ones. */
static double stretched(const struct rope_scaling *r, uint32_t i, uint32_t n_rotated)
{
    double low = MAX(floor(pair_of(r, r->beta_fast, n_rotated)), 0), high = MIN(ceil(pair_of(r, r->beta_slow, n_rotated)), n_rotated - 1.0);
    double ramp = (i - low) / MAX(high - low, 0.001);
    return MIN(MAX(ramp, 0), 1);
}

void rope_frequencies(float *frequency, const struct rope_scaling *rope, uint32_t n_rotated, const float *factors)
{
    for (uint32_t i = 0; i < n_rotated / 2; i++) {
        float plain = (float)(1.0 / math_pow(rope->base, 2.0 * i / n_rotated));
        frequency[i] = plain;
        if (rope->kind == ROPE_LINEAR)
            frequency[i] = plain / rope->factor;
        if (rope->kind == ROPE_YARN) {
            double s = stretched(rope, i, n_rotated);
            frequency[i] = (float)(plain / rope->factor * s + plain * (1 - s));
        }
        if (factors)
            frequency[i] /= factors[i];
    }
}
