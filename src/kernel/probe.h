/* probe.h: what a core can do at most with the instructions that the kernels use; each variant by name, for kernel.c's table. */
#ifndef STOA_KERNEL_PROBE_H
#define STOA_KERNEL_PROBE_H

#include "kernel/kernel.h"

probe_read_fn probe_read_c, probe_read_avx2, probe_read_avx512, probe_read_neon;
probe_ops_fn probe_int8_c, probe_int8_avx2, probe_int8_avxvnni, probe_int8_avx512, probe_int8_amx, probe_int8_neon;
probe_ops_fn probe_f32_c, probe_f32_avx2, probe_f32_avx512, probe_f32_neon;

#endif
