/* attention.h: attention and the KV store of kernel.h by name, for its table and for tests.
 *
 * attention_c.c defines the answer, a query at a time.  The files of other instruction sets are one body, attention_simd.h, over
 * the vectors of simd.h; it takes queries in groups so that a key or value is loaded once for all of a group.  Nothing is
 * allocated: the scratch of a group, up to 320 KiB of which a short context touches a tenth, is on the stack. */
#ifndef STOA_KERNEL_ATTENTION_H
#define STOA_KERNEL_ATTENTION_H

#include "kernel/kernel.h"

attention_fn attention_f16_c, attention_f16_avx2, attention_f16_avx512, attention_f16_neon;
attention_fn attention_bf16_c, attention_bf16_avx2, attention_bf16_avx512, attention_bf16_neon;
attention_fn attention_f32_c, attention_f32_avx2, attention_f32_avx512, attention_f32_neon;

kv_store_fn kv_store_f16_c, kv_store_f16_avx2, kv_store_f16_avx512, kv_store_f16_neon;
kv_store_fn kv_store_bf16_c, kv_store_bf16_avx2, kv_store_bf16_avx512, kv_store_bf16_neon;
kv_store_fn kv_store_f32_c, kv_store_f32_avx2, kv_store_f32_avx512, kv_store_f32_neon;

#endif
