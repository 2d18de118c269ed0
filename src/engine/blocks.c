#include "engine/blocks.h"

#include "base/base.h"
#include "base/error.h"
#include "kernel/kernel.h"
#include "run/kv_cache.h"

#include <stdlib.h>

struct cache_blocks cache_blocks(uint32_t window, uint32_t context, uint32_t n_step, uint32_t n_sequences)
{
    uint32_t n = kv_sequence_blocks(window, context, n_step);
    return (struct cache_blocks){ .window = window, .n_sequence = n, .n_all = n * n_sequences };
}

uint32_t cache_blocks_table(const struct cache_blocks *c, uint32_t n_positions)
{
    return c->window ? c->n_sequence : DIV_UP(n_positions, BLOCK_TOKENS);
}

/* A ring's place of position p is taken by p + its length, so the oldest position still wanted must be less than a length
 * behind the newest stored.  One number for the newest is enough although a sequence may go back and on several times: it
 * goes back only to where this holds, and what it stores from there on is newer than what it wanted. */
bool cache_blocks_keep(const struct cache_blocks *c, uint32_t n_common, uint32_t n_stored)
{
    uint32_t oldest = n_common >= c->window ? n_common + 1 - c->window : 0;
    return !c->window || oldest == n_common || (uint64_t)oldest + c->n_sequence * BLOCK_TOKENS >= n_stored;
}

int block_pool_init(struct block_pool *pool, uint32_t n_blocks)
{
    *pool = (struct block_pool){ .block = calloc(n_blocks, sizeof *pool->block) };
    if (!pool->block)
        return error_set(ERR_NO_MEMORY, "no memory for the numbers of %u KV blocks", n_blocks);
    while (pool->n_free < n_blocks) {
        pool->block[pool->n_free] = n_blocks - 1 - pool->n_free;
        pool->n_free++;
    }
    return 0;
}

void block_pool_release(struct block_pool *pool)
{
    free(pool->block);
    *pool = (struct block_pool){ 0 };
}

int block_pool_take(struct block_pool *pool, uint32_t *table, uint32_t *n_blocks, uint32_t wanted)
{
    if (wanted <= *n_blocks)
        return 0;
    if (wanted - *n_blocks > pool->n_free)
        return error_set(ERR_FULL, "%u KV blocks wanted, %u are free", wanted - *n_blocks, pool->n_free);
    while (*n_blocks < wanted)
        table[(*n_blocks)++] = pool->block[--pool->n_free];
    return 0;
}

void block_pool_give_back(struct block_pool *pool, const uint32_t *table, uint32_t n_blocks)
{
    while (n_blocks)
        pool->block[pool->n_free++] = table[--n_blocks];
}
