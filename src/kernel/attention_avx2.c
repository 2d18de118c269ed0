/* attention_avx2.c: 12 sums of 8 lanes; a key or value takes 2 registers and a query 1 of the 4 that are left. */
#define SIMD(name) name##_avx2
#define SUMS 12
#define GROUP 6                 /* queries of a full group, */
#define GROUP_REST 6            /* and of what is left, at most */
#define EACH_GROUP(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type) X(6, type)

#include "kernel/attention_simd.h"
