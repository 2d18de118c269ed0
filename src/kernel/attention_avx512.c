/* attention_avx512.c: few queries have 16 sums of 16 lanes, enough to hide that an fma takes 4 cycles and 2 start in each; a
 * full strip has 24, so that loads are few. */
#define SIMD(name) name##_avx512
#define SUMS 16
#define MANY 9
#define FEW 8
#define EACH_FEW(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type) X(6, type) X(7, type) X(8, type)
#define EACH_STRIP(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)

#include "kernel/attention_simd.h"
