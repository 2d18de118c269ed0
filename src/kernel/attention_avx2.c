/* attention_avx2.c: 12 sums of 8 lanes; a key or value takes 2 registers and a query 1 of the 4 that are left. */
#define SIMD(name) name##_avx2
#define SUMS 12
#define MANY 13
#define FEW 6
#define EACH_FEW(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type) X(6, type)
#define EACH_STRIP(X) X(1, 8) X(2, 4) X(3, 4) X(4, 2) X(5, 2) X(6, 2)

#include "kernel/attention_simd.h"
