#include "kernel/mass.h"

#include "kernel/cpu.h"

#define MASSES masses_c
#include "kernel/mass_body.h"

masses_fn *masses_with(const struct kernels *kernels)
{
#ifdef __x86_64__
    if (kernels->needs & CPU_AVX2)
        return masses_avx2;
#endif
    (void)kernels;
    return masses_c;
}
