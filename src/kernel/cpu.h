/* cpu.h: what this CPU can, and the numeric environment of a compute thread. */
#ifndef STOA_KERNEL_CPU_H
#define STOA_KERNEL_CPU_H

enum cpu_feature {
    CPU_AVX2 = 1,           /* AVX2, FMA and F16C, and the system saves the registers */
    CPU_AVX512 = 2,         /* AVX-512 F, BW, DQ, VL and VNNI, and the system saves the registers */
    CPU_AMX = 4,            /* AMX's tiles of int8, and the system lets this process use them */
    CPU_DOTPROD = 8,        /* NEON with FEAT_DotProd */
};
unsigned cpu_features(void);

/* Round to nearest even, no flushing of subnormals: call at the start of every compute thread. */
void cpu_float_mode_set(void);
/* 0, or ERR_FAILED when somebody (a library built with -ffast-math) changed this thread's mode. */
int cpu_float_mode_check(void);

#endif
