#define SIMD(name) name##_avx2
#include "kernel/rows_simd.h"
