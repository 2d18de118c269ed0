#include "kernel/tile_avx512.h"

MATMUL_INT8_TYPES(DEFINE_INT8, avx512)
