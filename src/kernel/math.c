#include "kernel/math.h"

#include "base/base.h"

#include <math.h>

float math_exp(float x)
{
    union { float f; uint32_t u; } shifted, power;
    float n, r, p;

    shifted.f = fmaf(x, EXP_LOG2_E, EXP_SHIFTER);
    n = shifted.f - EXP_SHIFTER;
    r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    power.f = p;
    power.u += shifted.u << 23;         /* n into the exponent: p is near 1 and 2^n p is normal in the range */
    if (x > EXP_HIGHEST)
        return INFINITY;
    if (x >= EXP_LOWEST)
        return power.f;
    return x < 0.0f ? 0.0f : x;         /* too small, or NaN */
}

float math_tanh(float x)
{
    union { float f; uint32_t u; } shifted, power = { .f = 1.0f };
    float a = fabsf(x), t, n, r, p, e;

    t = a > TANH_HIGHEST ? 2.0f * TANH_HIGHEST : 2.0f * a;
    shifted.f = fmaf(t, EXP_LOG2_E, EXP_SHIFTER);
    n = shifted.f - EXP_SHIFTER;
    r = fmaf(n, -EXP_LN2_HIGH, t);
    r = fmaf(n, -EXP_LN2_LOW, r);
    p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p * r, r, r);
    power.u += shifted.u << 23;
    e = fmaf(power.f, p, power.f - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

/* x = 2^n m with m in [sqrt(1/2), sqrt(2)), so log(x) = n ln 2 + 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172.
 * For normal x > 0; within a few ulp, near 1 too. */
static double log_f64(double x)
{
    union { double f; uint64_t u; } m = { .f = x };
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
    int64_t n = (int64_t)(m.u - sqrt_half) >> 52;
    double s, z, sum = 0.0;

    m.u -= (uint64_t)n << 52;
    s = (m.f - 1.0) / (m.f + 1.0);
    z = s * s;
    for (int k = 21; k >= 3; k -= 2)    /* the first term left out is below 2^-60 of s */
        sum = (sum + 1.0 / k) * z;
    return fma((double)n, 0x1.62e42fefa39efp-1, fma((double)n, 0x1.abc9e3b39803fp-56, 2.0 * s * sum) + 2.0 * s);
}

float math_log(float x)
{
    return (float)log_f64(x);
}

/* 2^n for n in [-1022, 1023] */
static double power_of_two(int n)
{
    union { uint64_t u; double f; } v = { .u = (uint64_t)(n + 1023) << 52 };
    return v.f;
}

double math_exp_f64(double x)
{
    double n, r, p = 1.0;
    int half;

    if (!(x >= -746.0 && x <= 710.0))
        return x < 0.0 ? 0.0 : x > 0.0 ? INFINITY : x;
    n = rint(x * 0x1.71547652b82fep+0);
    r = fma(n, -0x1.62e42fefa39efp-1, x);
    r = fma(n, -0x1.abc9e3b39803fp-56, r);
    for (int k = 14; k >= 1; k--)       /* Horner of the sum of r^k / k! */
        p = fma(p, r * (1.0 / k), 1.0);
    half = (int)n / 2;                  /* two factors, so that the step into the subnormals rounds once, at the end */
    return p * power_of_two(half) * power_of_two((int)n - half);
}

double math_pow(double base, double exponent)
{
    return math_exp_f64(exponent * log_f64(base));
}

/* Quadrant n takes n pi/2 off x, in two parts: the first difference is exact, as n has 20 bits and x - n high fits in 53.
 * What is left, |r| <= pi/4, goes through the Taylor series up to r^17. */
void math_sin_cos(double x, double *sine, double *cosine)
{
    double n = rint(x * 0x1.45f306dc9c883p-1), r, z, s = 1.0, c = 1.0;
    int quadrant = (int)(n - 4.0 * rint(n / 4.0)) & 3;

    r = fma(n, -0x1.921fb54442d18p+0, x);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    z = r * r;
    for (int k = 16; k >= 2; k -= 2) {
        s = fma(s, z * (-1.0 / (k * (k + 1))), 1.0);
        c = fma(c, z * (-1.0 / (k * (k - 1))), 1.0);
    }
    s *= r;
    *sine = quadrant & 1 ? c : s;
    *cosine = quadrant & 1 ? s : c;
    if (quadrant & 2)
        *sine = -*sine;
    if (quadrant == 1 || quadrant == 2)
        *cosine = -*cosine;
}
