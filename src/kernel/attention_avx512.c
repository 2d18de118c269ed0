/* attention_avx512.c: 16 sums of 16 lanes for 8 queries, in half of the registers; 4 queries or fewer take twice as many
 * tiles or columns each. */
#define SIMD(name) name##_avx512
#define GROUP 8
#define EACH_GROUP(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

#define SCORE_TILES 2           /* tiles scored at a time */
#define SCORE_FEW 4             /* by so many queries or fewer: */
#define SCORE_TILES_FEW 4
#define OUTPUT_VECS 2           /* vectors of head_dim summed at a time */
#define OUTPUT_FEW 4
#define OUTPUT_VECS_FEW 4

#include "kernel/attention_simd.h"
