#define SIMD(name) name##_avx512
#include "kernel/rows_simd.h"
