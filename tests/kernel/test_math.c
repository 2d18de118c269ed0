/* Our exp, tanh, log, sine, cosine and pow against libm in double. */
#include "kernel/math.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>

static float float_of(uint32_t bits)
{
    union { uint32_t u; float f; } v = { .u = bits };
    return v.f;
}

/* The error of `got` in units of the last place of the f32 nearest to `want`. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, MAX(exponent - 24, -149));
}

static void test_exp(void)
{
    double worst = 0.0;

    check_begin("exp: within 2 ulp from %g to %g", (double)EXP_LOWEST, (double)EXP_HIGHEST);
    for (int negative = 0; negative < 2; negative++)
        for (uint32_t bits = 0; bits < 0x43000000; bits += 997) {
            float x = negative ? -float_of(bits) : float_of(bits);
            if (x >= EXP_LOWEST && x <= EXP_HIGHEST)
                worst = fmax(worst, ulps(math_exp(x), exp((double)x)));
        }
    if (!check(worst <= 2.0))
        printf("worst: %.3f ulp\n", worst);

    check_begin("exp: its ends, and beyond");
    check(ulps(math_exp(EXP_LOWEST), exp((double)EXP_LOWEST)) <= 2.0);
    check(ulps(math_exp(EXP_HIGHEST), exp((double)EXP_HIGHEST)) <= 2.0);
    check(math_exp(0.0f) == 1.0f && math_exp(-0.0f) == 1.0f);
    check(math_exp(nextafterf(EXP_LOWEST, -100.0f)) == 0.0f && !signbit(math_exp(-1e30f)));
    check(math_exp(-INFINITY) == 0.0f);
    check(math_exp(nextafterf(EXP_HIGHEST, 100.0f)) == INFINITY);
    check(math_exp(1e30f) == INFINITY && math_exp(INFINITY) == INFINITY);
    check(isnan(math_exp(NAN)) && isnan(math_exp(float_of(0xffc00123))));
}

static void test_tanh(void)
{
    double worst = 0.0;
    bool odd = true, falls = false;

    check_begin("tanh: within 3 ulp everywhere, subnormals too, odd, never above 1");
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 997) {
        float x = float_of(bits), y = math_tanh(x), minus = math_tanh(-x);
        worst = fmax(worst, ulps(y, tanh((double)x)));
        odd = odd && minus == -y && signbit(minus);
        falls = falls || y > 1.0f;
    }
    for (uint32_t bits = 0x3d700000; bits < 0x3d800000; bits++)        /* every float from 0.059 to 0.0625, the worst place */
        worst = fmax(worst, ulps(math_tanh(float_of(bits)), tanh((double)float_of(bits))));
    if (!check(worst <= 3.0))
        printf("worst: %.3f ulp\n", worst);
    check(odd && !falls);

    check_begin("tanh: its ends, and beyond");
    check(math_tanh(0.0f) == 0.0f && !signbit(math_tanh(0.0f)) && signbit(math_tanh(-0.0f)));
    check(math_tanh(0x1p-149f) == 0x1p-149f && math_tanh(-0x1p-126f) == -0x1p-126f);
    check(math_tanh(9.02f) == 1.0f && math_tanh(8.7f) < 1.0f);
    check(math_tanh(TANH_HIGHEST) == 1.0f && math_tanh(nextafterf(TANH_HIGHEST, 11.0f)) == 1.0f);
    check(math_tanh(1e30f) == 1.0f && math_tanh(INFINITY) == 1.0f && math_tanh(-INFINITY) == -1.0f);
    check(isnan(math_tanh(NAN)) && isnan(math_tanh(float_of(0xffc00123))));
}

static void test_log(void)
{
    double worst = 0.0;

    check_begin("log: within 2 ulp for every scale, subnormals too");
    for (uint32_t bits = 1; bits < 0x7f800000; bits += 1009) {
        float x = float_of(bits);
        worst = fmax(worst, ulps(math_log(x), log((double)x)));
    }
    for (uint32_t bits = 0x3f7f0000; bits < 0x3f810000; bits++)         /* around 1, where it goes through 0 */
        if (bits != 0x3f800000)
            worst = fmax(worst, ulps(math_log(float_of(bits)), log((double)float_of(bits))));
    if (!check(worst <= 2.0))
        printf("worst: %.3f ulp\n", worst);
    check(math_log(1.0f) == 0.0f);
}

static void check_sin_cos(double x, double *worst)
{
    double s, c;
    math_sin_cos(x, &s, &c);
    *worst = fmax(*worst, fmax(fabs(s - sin(x)), fabs(c - cos(x))));
}

static void test_sin_cos(void)
{
    double worst = 0.0;

    check_begin("sine and cosine: within 1e-15 up to 1e6");
    for (double x = -20.0; x <= 20.0; x += 0.000123)
        check_sin_cos(x, &worst);
    for (double x = -1e6; x <= 1e6; x += 17.3)
        check_sin_cos(x, &worst);
    for (int n = -636619; n <= 636619; n += 11) {                        /* multiples of pi/2, where one of them is near 0 */
        check_sin_cos(n * 1.5707963267948966, &worst);
        check_sin_cos((n + 0.5) * 1.5707963267948966, &worst);          /* and where the quadrant changes */
    }
    if (!check(worst <= 1e-15))
        printf("worst: %.3g\n", worst);
}

static void test_pow(void)
{
    static const double bases[] = { 1.0, 2.0, 10.0, 10000.0, 500000.0, 1e6, 1e7, 0.125, 1.0000001, 1e-300 };
    double worst = 0.0, worst_exp = 0.0;

    check_begin("pow and exp in f64: within 1e-12");
    for (size_t b = 0; b < COUNT_OF(bases); b++)
        for (int i = -400; i <= 400; i++) {
            double want = pow(bases[b], i / 400.0);
            worst = fmax(worst, fabs(math_pow(bases[b], i / 400.0) - want) / want);
        }
    for (double x = -708.0; x <= 709.7; x += 0.00371)
        worst_exp = fmax(worst_exp, fabs(math_exp_f64(x) / exp(x) - 1.0));
    if (!check(worst <= 1e-12) || !check(worst_exp <= 1e-12))
        printf("worst: %.3g, exp %.3g\n", worst, worst_exp);
    check(math_exp_f64(-1000.0) == 0.0 && math_exp_f64(1000.0) == INFINITY && isnan(math_exp_f64(NAN)));
    check(math_exp_f64(-745.0) == exp(-745.0) && math_exp_f64(0.0) == 1.0);
    check(math_exp_f64(710.0) == INFINITY && math_exp_f64(-746.0) == 0.0);
}

int main(void)
{
    test_exp();
    test_tanh();
    test_log();
    test_sin_cos();
    test_pow();
    return check_done();
}
