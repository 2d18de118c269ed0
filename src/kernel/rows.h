/* rows.h: the row operations of kernel.h by name, for its table and for tests.
 *
 * rows_c.c defines the answer.  The files of other instruction sets are one body, rows_simd.h, over the vectors of simd.h. */
#ifndef STOA_KERNEL_ROWS_H
#define STOA_KERNEL_ROWS_H

#include "kernel/kernel.h"

rms_norm_fn rms_norm_c, rms_norm_avx2, rms_norm_avx512, rms_norm_neon;
add_fn add_c, add_avx2, add_avx512, add_neon;
glu_fn swiglu_c, swiglu_avx2, swiglu_avx512, swiglu_neon;
glu_fn geglu_c, geglu_avx2, geglu_avx512, geglu_neon;
scale_fn scale_c, scale_avx2, scale_avx512, scale_neon;
softcap_fn softcap_c, softcap_avx2, softcap_avx512, softcap_neon;
rope_fn rope_c, rope_avx2, rope_avx512, rope_neon;
row_max_fn row_max_c, row_max_avx2, row_max_avx512, row_max_neon;

#endif
