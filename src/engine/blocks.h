/* blocks.h: which KV blocks there are and who holds them, as the leader counts; the bytes are run/kv_cache.h's.
 *
 * Every cache group of the model has a pool of its own in each group along dp, and each sequence a table in every cache group.  Position
 * p is in entry p / BLOCK_TOKENS, modulo the longest table: in a group that keeps all positions no entry is used twice; for a window
 * the table is a ring, whose entry lets its old block go when a new one comes.
 *
 *   FREE ──take──> HELD (by refs tables) ──last one lets go──> FREE, or IDLE when the prefix cache knows it (node)
 *   IDLE ──a prefix is found again──> HELD                     IDLE ──the oldest, when no other is free──> HELD, without its node
 *
 * A block can be given to another sequence as soon as the last plan that reads it has been made: every rank runs plans in their order. */
#ifndef STOA_ENGINE_BLOCKS_H
#define STOA_ENGINE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define NO_BLOCK UINT32_MAX
#define NO_NODE UINT32_MAX

/* The blocks of one cache group: what every rank knows. */
struct cache_blocks {
    uint32_t window;                /* 0: all positions are kept */
    uint32_t n_sequence;            /* the longest table of a sequence */
    uint32_t n_all;                 /* of the group; ids are below */
};

/* n_sequences of at most `context` tokens, at most n_step of one sequence in a step; no more than n_most blocks, 0: as many as all
 * sequences can need. */
struct cache_blocks cache_blocks(uint32_t window, uint32_t context, uint32_t n_step, uint32_t n_sequences, uint32_t n_most);
/* How long the table of a sequence is that has this many positions. */
uint32_t cache_blocks_table(const struct cache_blocks *c, uint32_t n_positions);
/* The first block of positions that the token at `position` sees something of. */
uint32_t cache_blocks_first_seen(const struct cache_blocks *c, uint32_t position);

struct block {
    uint32_t refs;                  /* tables that name it */
    uint32_t node;                  /* what it holds, in the prefix cache; or NO_NODE */
    uint32_t older, newer;          /* while IDLE: its neighbours, NO_BLOCK at the ends */
};

struct block_pool {
    uint32_t n_blocks, n_free, n_idle;
    uint32_t *free;                 /* [n_free], the next one last */
    struct block *block;            /* [n_blocks] */
    uint32_t oldest, newest;        /* IDLE ones */
};

int block_pool_init(struct block_pool *pool, uint32_t n_blocks);
void block_pool_release(struct block_pool *pool);
/* Those that can be taken. */
uint32_t block_pool_available(const struct block_pool *pool);
/* Takes one of those, a FREE one if there is any; *node is what an IDLE one stood for, else NO_NODE. */
uint32_t block_pool_take(struct block_pool *pool, uint32_t *node);
/* One more table names a block that is HELD or IDLE. */
void block_pool_hold(struct block_pool *pool, uint32_t block);
/* One table fewer. */
void block_pool_let_go(struct block_pool *pool, uint32_t block);
/* The prefix cache does not know the block any more. */
void block_pool_forget(struct block_pool *pool, uint32_t block);
/* Walks the invariants: a block is FREE, HELD or IDLE, as its fields and the lists say. */
void block_pool_check(const struct block_pool *pool);

#endif
