/* math.h: exp, log, sine and cosine of our own, so that every instruction set and every libm gives the same bits. */
#ifndef STOA_KERNEL_MATH_H
#define STOA_KERNEL_MATH_H

/* exp(x) in f32: within 2 ulp for x in [-87.3, 88.7]; below -87.3 exactly 0, above 88.7 +inf; NaN gives NaN.  The step
 * sequence is in math.c and every SIMD variant repeats it. */
float math_exp(float x);
/* log(x) in f32 for finite x > 0, within 2 ulp, in portable C only. */
float math_log(float x);
/* In f64, portable C only, errors below 1e-12: |x| up to 1e6 for the angles; base > 0 for pow. */
void math_sin_cos(double x, double *sine, double *cosine);
double math_pow(double base, double exponent);
double math_exp_f64(double x);

#endif
