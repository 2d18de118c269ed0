/* attention.h: attention and the KV store of kernel.h by name, for its table and for tests.
 *
 * attention_c.c defines the answer, a query at a time.  The files of other instruction sets are one body, attention_simd.h, over
 * the vectors of simd.h; it takes all queries together so that a key or value is loaded and widened once for all of them.
 * Nothing is allocated: the scratch, 1.3 MiB of which a decode of a short context touches a twentieth, is on the stack. */
#ifndef STOA_KERNEL_ATTENTION_H
#define STOA_KERNEL_ATTENTION_H

#include "base/base.h"
#include "kernel/kernel.h"

attention_fn attention_f16_c, attention_f16_avx2, attention_f16_avx512, attention_f16_neon;
attention_fn attention_bf16_c, attention_bf16_avx2, attention_bf16_avx512, attention_bf16_neon;
attention_fn attention_f32_c, attention_f32_avx2, attention_f32_avx512, attention_f32_neon;
attention_merge_fn attention_merge_c, attention_merge_avx2, attention_merge_avx512, attention_merge_neon;

kv_store_fn kv_store_f16_c, kv_store_f16_avx2, kv_store_f16_avx512, kv_store_f16_neon;
kv_store_fn kv_store_bf16_c, kv_store_bf16_avx2, kv_store_bf16_avx512, kv_store_bf16_neon;
kv_store_fn kv_store_f32_c, kv_store_f32_avx2, kv_store_f32_avx512, kv_store_f32_neon;

/* Spans begin .. end - 1 */
struct spans {
    uint32_t begin, end;
};

/* The spans that have one of the keys first_key .. n_keys - 1, of the run that is asked for. */
static inline struct spans attention_spans(const struct attention_args *args, uint32_t first_key, uint32_t n_keys)
{
    struct spans spans = { first_key / SPAN_TOKENS, DIV_UP(n_keys, SPAN_TOKENS) };

    if (!args->partials)
        return spans;
    return (struct spans){ MAX(spans.begin, args->run << args->run_shift), MIN(spans.end, (args->run + 1) << args->run_shift) };
}

static inline uint32_t attention_first_key(const struct attention_args *args, uint32_t query)
{
    return args->first_key ? args->first_key[query] : 0;
}

/* The partials of a query that are not merged yet, oldest first. */
struct partial_stack {
    struct attention_partial *part[ATTENTION_MAX_LEVELS];
    uint32_t depth;
};

#endif
