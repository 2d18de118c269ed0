/* attention_avx512.c: 16 sums of 16 lanes, for 16 queries, 8 and fewer; that is half of the registers, and more brings no
 * more, as an fma takes 4 cycles and 2 start in each. */
#define SIMD(name) name##_avx512
#define SUMS 16
#define GROUP 16                /* queries of a full group, */
#define GROUP_REST 8            /* and of what is left, at most */
#define EACH_GROUP(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type) X(6, type) X(7, type) X(8, type) X(16, type)

#include "kernel/attention_simd.h"
