/* blocks.h: whose each KV block is, as the leader counts them; the bytes are run/kv_cache.h's.
 *
 * Every cache group of the model has blocks of its own, and each sequence a table in every group: for a group that keeps all
 * positions the blocks of positions 0 .., growing with the sequence; for a window a ring, as long from the first token to the
 * last.  Position p is in entry p / BLOCK_TOKENS, modulo the length of the table. */
#ifndef STOA_ENGINE_BLOCKS_H
#define STOA_ENGINE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* The blocks of one cache group: what every rank knows. */
struct cache_blocks {
    uint32_t window;                /* 0: all positions are kept */
    uint32_t n_sequence;            /* of one sequence: at most, and with a window always */
    uint32_t n_all;                 /* of the group; ids are below */
};

/* n_sequences of at most `context` tokens, at most n_step of one sequence in a step. */
struct cache_blocks cache_blocks(uint32_t window, uint32_t context, uint32_t n_step, uint32_t n_sequences);
/* How long the table of a sequence is that has this many positions. */
uint32_t cache_blocks_table(const struct cache_blocks *c, uint32_t n_positions);
/* Whether a sequence whose first n_common positions are to be used again still has what the next token sees of them, after
 * positions 0 .. n_stored - 1 have been stored. */
bool cache_blocks_keep(const struct cache_blocks *c, uint32_t n_common, uint32_t n_stored);

/* Blocks that belong to no sequence. */
struct block_pool {
    uint32_t *block, n_free;
};

int block_pool_init(struct block_pool *pool, uint32_t n_blocks);
void block_pool_release(struct block_pool *pool);
/* Makes a table of *n_blocks blocks `wanted` long, when it is shorter.  ERR_FULL leaves it as it is. */
int block_pool_take(struct block_pool *pool, uint32_t *table, uint32_t *n_blocks, uint32_t wanted);
void block_pool_give_back(struct block_pool *pool, const uint32_t *table, uint32_t n_blocks);

#endif
