/* attention_neon.c: 20 sums of 4 lanes, for 5 queries and fewer; a tile of keys takes 4 of the 12 registers that are left.  A full
 * strip has 24. */
#define SIMD(name) name##_neon
#define SUMS 20
#define MANY 11
#define FEW 5
#define EACH_FEW(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type)
#define EACH_STRIP(X) X(1, 8) X(2, 8) X(3, 4) X(4, 4) X(5, 4) X(6, 4)

#include "kernel/attention_simd.h"
