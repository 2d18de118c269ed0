#include "engine/blocks.h"

#include "base/base.h"
#include "base/error.h"
#include "kernel/kernel.h"
#include "run/kv_cache.h"

#include <stdlib.h>

struct cache_blocks cache_blocks(uint32_t window, uint32_t context, uint32_t n_step, uint32_t n_sequences, uint32_t n_most)
{
    uint32_t n = kv_sequence_blocks(window, context, n_step), n_all = n * n_sequences;
    return (struct cache_blocks){ .window = window, .n_sequence = n, .n_all = n_most ? MIN(n_most, n_all) : n_all };
}

uint32_t cache_blocks_table(const struct cache_blocks *c, uint32_t n_positions)
{
    return MIN(c->n_sequence, DIV_UP(n_positions, BLOCK_TOKENS));
}

uint32_t cache_blocks_first_seen(const struct cache_blocks *c, uint32_t position)
{
    return c->window && position >= c->window ? (position + 1 - c->window) / BLOCK_TOKENS : 0;
}

int block_pool_init(struct block_pool *pool, uint32_t n_blocks)
{
    *pool = (struct block_pool){ .n_blocks = n_blocks, .oldest = NO_BLOCK, .newest = NO_BLOCK,
                                 .free = calloc(n_blocks, sizeof *pool->free), .block = calloc(n_blocks, sizeof *pool->block) };
    if (!pool->free || !pool->block)
        return error_set(ERR_NO_MEMORY, "no memory for the numbers of %u KV blocks", n_blocks);
    while (pool->n_free < n_blocks) {
        pool->block[pool->n_free].node = NO_NODE;
        pool->free[pool->n_free] = n_blocks - 1 - pool->n_free;
        pool->n_free++;
    }
    return 0;
}

void block_pool_release(struct block_pool *pool)
{
    free(pool->free);
    free(pool->block);
    *pool = (struct block_pool){ 0 };
}

uint32_t block_pool_available(const struct block_pool *pool)
{
    return pool->n_free + pool->n_idle;
}

static void unlink_idle(struct block_pool *pool, uint32_t id)
{
    struct block *b = &pool->block[id];
    *(b->older == NO_BLOCK ? &pool->oldest : &pool->block[b->older].newer) = b->newer;
    *(b->newer == NO_BLOCK ? &pool->newest : &pool->block[b->newer].older) = b->older;
    pool->n_idle--;
}

static void append_idle(struct block_pool *pool, uint32_t id)
{
    struct block *b = &pool->block[id];
    b->older = pool->newest;
    b->newer = NO_BLOCK;
    *(pool->newest == NO_BLOCK ? &pool->oldest : &pool->block[pool->newest].newer) = id;
    pool->newest = id;
    pool->n_idle++;
}

uint32_t block_pool_take(struct block_pool *pool, uint32_t *node)
{
    assert(block_pool_available(pool) > 0);
    uint32_t id = pool->n_free ? pool->free[--pool->n_free] : pool->oldest;
    struct block *b = &pool->block[id];
    *node = b->node;
    if (b->node != NO_NODE)
        unlink_idle(pool, id);
    b->node = NO_NODE;
    b->refs = 1;
    return id;
}

void block_pool_hold(struct block_pool *pool, uint32_t id)
{
    struct block *b = &pool->block[id];
    if (b->refs++ == 0)
        unlink_idle(pool, id);
}

void block_pool_let_go(struct block_pool *pool, uint32_t id)
{
    struct block *b = &pool->block[id];
    assert(b->refs > 0);
    if (--b->refs)
        return;
    if (b->node != NO_NODE)
        append_idle(pool, id);
    else
        pool->free[pool->n_free++] = id;
}

void block_pool_forget(struct block_pool *pool, uint32_t id)
{
    struct block *b = &pool->block[id];
    assert(b->node != NO_NODE);
    b->node = NO_NODE;
    if (b->refs)
        return;
    unlink_idle(pool, id);
    pool->free[pool->n_free++] = id;
}

void block_pool_check(const struct block_pool *pool)
{
    uint32_t n_held = 0, n_idle = 0, n_known = 0, before = NO_BLOCK;
    for (uint32_t i = 0; i < pool->n_free; i++) {
        const struct block *b = &pool->block[pool->free[i]];
        assert(b->refs == 0 && b->node == NO_NODE);
    }
    for (uint32_t id = pool->oldest; id != NO_BLOCK; before = id, id = pool->block[id].newer, n_idle++) {
        const struct block *b = &pool->block[id];
        assert(n_idle < pool->n_blocks && b->refs == 0 && b->node != NO_NODE && b->older == before);
    }
    assert(before == pool->newest && n_idle == pool->n_idle);
    for (uint32_t i = 0; i < pool->n_blocks; i++) {
        n_held += pool->block[i].refs > 0;
        n_known += !pool->block[i].refs && pool->block[i].node != NO_NODE;
    }
    assert(n_known == n_idle && n_held + n_idle + pool->n_free == pool->n_blocks);
}
