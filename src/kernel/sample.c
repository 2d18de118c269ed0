#define SET(name) name##_c
#include "kernel/sample_body.h"

#include "kernel/cpu.h"

#ifdef __x86_64__
#define WITH(kernels, name) ((kernels)->needs & CPU_AVX512 ? name##_avx512 : (kernels)->needs & CPU_AVX2 ? name##_avx2 : name##_c)
#else
#define WITH(kernels, name) ((void)(kernels), name##_c)
#endif

masses_fn *masses_with(const struct kernels *kernels)
{
    return WITH(kernels, masses);
}

draw_bounds_fn *draw_bounds_with(const struct kernels *kernels)
{
    return WITH(kernels, draw_bounds);
}
