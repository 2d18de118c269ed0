/* matmul_f32_avx512.c: apart from the products of int8, for either takes the compiler its time. */
#include "kernel/tile_avx512.h"

MATMUL_F32_TYPES(DEFINE_F32, avx512)
