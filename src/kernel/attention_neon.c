/* attention_neon.c: 20 sums of 4 lanes, for 5 queries and fewer; a tile of keys takes 4 of the 12 registers that are left. */
#define SIMD(name) name##_neon
#define SUMS 20
#define GROUP 5                 /* queries of a full group, */
#define GROUP_REST 5            /* and of what is left, at most */
#define EACH_GROUP(X, type) X(1, type) X(2, type) X(3, type) X(4, type) X(5, type)

#include "kernel/attention_simd.h"
