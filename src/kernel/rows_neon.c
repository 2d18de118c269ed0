#define SIMD(name) name##_neon
#include "kernel/rows_simd.h"
