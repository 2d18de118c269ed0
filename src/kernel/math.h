/* math.h: exp, tanh, log, sine and cosine of our own, so that every instruction set and every libm gives the same bits. */
#ifndef STOA_KERNEL_MATH_H
#define STOA_KERNEL_MATH_H

/* exp(x) in f32: within 2 ulp for x in [-87.3, 88.7]; below -87.3 exactly 0, above 88.7 +inf; NaN gives NaN.  The step
 * sequence is in math.c, and vec_exp() in simd.h repeats it with the same constants:
 *   n = x / ln 2 to the nearest integer, r = x - n ln 2, exp(x) = 2^n (1 + r + r^2 (C2 + C3 r + .. + C6 r^4))
 * C2 .. C6 keep the relative error on |r| <= ln(2)/2 below 3.1e-9, a twentieth of an ulp (Remez). */
float math_exp(float x);
#define EXP_LOWEST (-87.3f)
#define EXP_HIGHEST 88.7f
#define EXP_LOG2_E 0x1.715476p+0f
#define EXP_SHIFTER 0x1.8p+23f          /* x + this has x's nearest integer in the low bits */
#define EXP_LN2_HIGH 0x1.62e430p-1f     /* times n it is exact in the fma that takes it off x; ln 2 = high + low */
#define EXP_LN2_LOW (-0x1.05c610p-29f)
#define EXP_C2 0x1.fffffcp-2f
#define EXP_C3 0x1.555492p-3f
#define EXP_C4 0x1.5558f2p-5f
#define EXP_C5 0x1.123a02p-7f
#define EXP_C6 0x1.6a2400p-10f

/* tanh(x) in f32: within 3 ulp everywhere, odd bit for bit (-0 gives -0), +-1 from about 9 on; NaN gives NaN.
 * Built on exp's steps and constants, with the 1 left out so that nothing cancels near 0; vec_tanh() repeats it:
 *   t = 2 min(|x|, 10), t = n ln 2 + r, p = r + r^2 (C2 + .. + C6 r^4), e = 2^n p + (2^n - 1), tanh = e / (e + 2) */
float math_tanh(float x);
#define TANH_HIGHEST 10.0f              /* e / (e + 2) is 1 here, and n is still small */

/* log(x) in f32 for finite x > 0, within 2 ulp, in portable C only. */
float math_log(float x);
/* In f64, portable C only, for tables: |x| up to 1e6 for the angles, absolute error below 1e-15; relative error below
 * 1e-12 for exp and for pow (finite base > 0), which go to 0 and to +inf where f64 does. */
void math_sin_cos(double x, double *sine, double *cosine);
double math_pow(double base, double exponent);
double math_exp_f64(double x);

#endif
