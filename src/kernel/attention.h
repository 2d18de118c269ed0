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
attention_fn attention_q8_0_c, attention_q8_0_avx2, attention_q8_0_avx512, attention_q8_0_neon;
attention_merge_fn attention_merge_c, attention_merge_avx2, attention_merge_avx512, attention_merge_neon;

kv_store_fn kv_store_f16_c, kv_store_f16_avx2, kv_store_f16_avx512, kv_store_f16_neon;
kv_store_fn kv_store_bf16_c, kv_store_bf16_avx2, kv_store_bf16_avx512, kv_store_bf16_neon;
kv_store_fn kv_store_f32_c, kv_store_f32_avx2, kv_store_f32_avx512, kv_store_f32_neon;
kv_store_fn kv_store_q8_0_c, kv_store_q8_0_avx2, kv_store_q8_0_avx512, kv_store_q8_0_neon;

/* The store of q8_0: `quantize` makes 32 quants and returns their scale. */
static inline void kv_store_blocks(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim,
                                   uint16_t (*quantize)(int8_t q[KV_BLOCK], const float *x))
{
    int8_t *tile_k = (int8_t *)tile + slot, *tile_v = (int8_t *)tile + (size_t)head_dim * (BLOCK_TOKENS + slot), q[KV_BLOCK];

    for (uint32_t d = 0; d < head_dim; d += KV_BLOCK) {
        uint16_t *scales_k = (uint16_t *)((char *)tile + kv_scales_at(head_dim, false, d));
        uint16_t *scales_v = (uint16_t *)((char *)tile + kv_scales_at(head_dim, true, d));
        scales_v[slot] = quantize(tile_v + d, v + d);
        scales_k[slot] = quantize(q, k + d);
        for (uint32_t i = 0; i < KV_BLOCK; i++)
            tile_k[(d + i) * BLOCK_TOKENS] = q[i];
    }
}

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

/* a takes in b, which is newer; each instruction set has its own. */
typedef void partial_merge_fn(struct attention_partial *a, const struct attention_partial *b, uint32_t head_dim);

static inline void stack_merge_top(struct partial_stack *stack, uint32_t head_dim, partial_merge_fn *merge)
{
    merge(stack->part[stack->depth - 2], stack->part[stack->depth - 1], head_dim);
    stack->depth--;
}

/* The partial of span (or run) `number` is there, above the topmost; see kernel.h for the order of the merges. */
static inline void stack_push(struct partial_stack *stack, uint32_t number, uint32_t head_dim, partial_merge_fn *merge)
{
    stack->depth++;
    for (; (number & 1) && stack->depth > 1; number >>= 1)          /* depth 1: the older is absent */
        stack_merge_top(stack, head_dim, merge);
}

static inline void stack_merge_all(struct partial_stack *stack, uint32_t head_dim, partial_merge_fn *merge)
{
    while (stack->depth > 1)
        stack_merge_top(stack, head_dim, merge);
}

#endif
