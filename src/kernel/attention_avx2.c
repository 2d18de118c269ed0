/* attention_avx2.c: 12 sums of 8 lanes for 6 queries, a key or value vector in 2 registers and a query in 1, of 16. */
#define SIMD(name) name##_avx2
#define GROUP 6
#define EACH_GROUP(X) X(1) X(2) X(3) X(4) X(5) X(6)

#define SCORE_TILES 1
#define SCORE_FEW 2
#define SCORE_TILES_FEW 2
#define OUTPUT_VECS 2
#define OUTPUT_FEW 2
#define OUTPUT_VECS_FEW 4

#include "kernel/attention_simd.h"
