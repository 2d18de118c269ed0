/* cpu.h: what this CPU can. */
#ifndef STOA_KERNEL_CPU_H
#define STOA_KERNEL_CPU_H

enum cpu_feature {
    CPU_AVX2 = 1,           /* AVX2, FMA and F16C, and the system saves the registers */
    CPU_AVX512 = 2,         /* AVX-512 F, BW, DQ, VL and VNNI, and the system saves the registers */
    CPU_AMX = 4,            /* AMX's tiles of int8, and the system lets this process use them */
    CPU_AVXVNNI = 16,       /* VNNI in registers of 256 bits, encoded without AVX-512 */
    CPU_DOTPROD = 8,        /* NEON with FEAT_DotProd */
};
unsigned cpu_features(void);

#endif
