/* kv_cache.h: the paged KV cache of one rank, for one group of layers that are kept alike (all positions, or a window).
 *
 *   block   BLOCK_TOKENS consecutive positions of one sequence, for every layer of the group in this rank's stage: one contiguous
 *           region [layers][kv_heads][tile], so that it can be moved or sent; kv_heads is this rank's share
 *   tile    k [head_dim][BLOCK_TOKENS] then v [BLOCK_TOKENS][head_dim], with scales in q8_0 (kernel/kernel.h)
 *
 * Block ids are the leader's and hold on all ranks; this file only keeps the bytes.  They are mapped at open and touched
 * when they are first written, so an unused cache costs address space and no memory. */
#ifndef STOA_RUN_KV_CACHE_H
#define STOA_RUN_KV_CACHE_H

#include "base/dtype.h"

#include <stddef.h>
#include <stdint.h>

struct kv_cache {
    uint32_t n_layers, n_kv_heads, n_blocks;
    size_t tile_bytes, n_bytes;
    unsigned char *bytes;
};

/* Bytes of one block. */
size_t kv_block_bytes(uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim, enum dtype type);
int kv_cache_open(struct kv_cache *kv, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim, enum dtype type, uint32_t n_blocks);
void kv_cache_release(struct kv_cache *kv);

/* `to` gets the bytes of `from`, another block. */
void kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to);

/* Blocks that one sequence of at most `context` tokens needs, of which a step adds at most `n_step`: its own number for window 0,
 * else as many as hold the window of the step's first token and the step, used as a ring. */
uint32_t kv_sequence_blocks(uint32_t window, uint32_t context, uint32_t n_step);

static inline void *kv_cache_tile(const struct kv_cache *kv, uint32_t block, uint32_t layer, uint32_t kv_head)
{
    return kv->bytes + (((size_t)block * kv->n_layers + layer) * kv->n_kv_heads + kv_head) * kv->tile_bytes;
}

#endif
