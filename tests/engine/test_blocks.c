/* test_blocks.c: how long tables are, and that a pool knows of each block who holds it. */
#include "engine/blocks.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

enum { CONTEXT = 512, CHUNK = 24, N_SEQUENCES = 3, N_BLOCKS = 32 };

static void test_tables(void)
{
    struct cache_blocks all = cache_blocks(0, CONTEXT, CHUNK, N_SEQUENCES, 0), ring = cache_blocks(40, CONTEXT, CHUNK, N_SEQUENCES, 0),
                        wide = cache_blocks(500, CONTEXT, CHUNK, N_SEQUENCES, 0), wider = cache_blocks(4096, CONTEXT, CHUNK, N_SEQUENCES, 0);
    check_begin("a table grows with its sequence, that of a window to a ring's length");
    check_int(all.n_sequence, CONTEXT / 16);
    check_int(all.n_all, N_SEQUENCES * CONTEXT / 16);
    check_int(cache_blocks_table(&all, 1), 1);
    check_int(cache_blocks_table(&all, 16), 1);
    check_int(cache_blocks_table(&all, 17), 2);
    check_int(cache_blocks_table(&all, CONTEXT), CONTEXT / 16);
    check_int(ring.n_sequence, 5);          /* 39 + 24 positions, from the last one of a block */
    check_int(ring.n_all, N_SEQUENCES * 5);
    check_int(cache_blocks_table(&ring, 1), 1);
    check_int(cache_blocks_table(&ring, 65), 5);
    check_int(cache_blocks_table(&ring, CONTEXT), 5);
    check_int(wide.n_sequence, CONTEXT / 16);
    check_int(wider.n_sequence, CONTEXT / 16);
    check_begin("a pool is no larger than it may be");
    check_int(cache_blocks(0, CONTEXT, CHUNK, N_SEQUENCES, 8).n_all, 8);
    check_int(cache_blocks(40, CONTEXT, CHUNK, N_SEQUENCES, 8).n_all, 8);
    check_int(cache_blocks(40, CONTEXT, CHUNK, N_SEQUENCES, 1000).n_all, N_SEQUENCES * 5);
}

static void test_seen(void)
{
    static const uint32_t windows[] = { 0, 1, 2, 15, 16, 17, 40, 100, 300, 511, 512, 513, 4096 };
    for (size_t w = 0; w < COUNT_OF(windows); w++) {
        check_begin("what a token sees of a window of %u, and that a ring holds it beside a step", windows[w]);
        struct cache_blocks c = cache_blocks(windows[w], CONTEXT, CHUNK, N_SEQUENCES, 0);
        for (uint32_t p = 0; p < CONTEXT; p++) {
            uint32_t first = windows[w] && p + 1 > windows[w] ? p + 1 - windows[w] : 0, last = MIN(p + CHUNK, CONTEXT) - 1;
            check_int(cache_blocks_first_seen(&c, p), first / 16);
            check(last / 16 - first / 16 < c.n_sequence);
        }
    }
}

/* Blocks are taken, held again, let go, become known and are forgotten in every order; the pool is compared with plain counts. */
static void test_pool(void)
{
    struct block_pool pool;
    uint32_t refs[N_BLOCKS] = { 0 }, node, n_evicted = 0;
    bool is_known[N_BLOCKS] = { false };
    check_begin("a pool: no block twice, none lost, one that is known is taken last");
    check_int(block_pool_init(&pool, N_BLOCKS), 0);
    for (uint64_t step = 0; step < 20000; step++) {
        uint32_t b = (uint32_t)(random_u64(1, step) % N_BLOCKS), available = 0, n_free = 0;
        for (uint32_t i = 0; i < N_BLOCKS; i++) {
            available += !refs[i];
            n_free += !refs[i] && !is_known[i];
        }
        check_int(block_pool_available(&pool), available);
        uint64_t what = random_u64(2, step) % 10;
        if (what < 5 && available) {
            b = block_pool_take(&pool, &node);
            check(b < N_BLOCKS && !refs[b] && is_known[b] == !n_free);
            check_int(node, is_known[b] ? 100 + b : NO_NODE);
            n_evicted += is_known[b];
            refs[b] = 1;
            is_known[b] = false;
        } else if (what == 5 && (refs[b] || is_known[b])) {
            block_pool_hold(&pool, b);
            refs[b]++;
        } else if (what == 6 && is_known[b]) {
            block_pool_forget(&pool, b);
            is_known[b] = false;
        } else if (what == 7 && refs[b] && !is_known[b]) {
            pool.block[b].node = 100 + b;
            is_known[b] = true;
        } else if (refs[b]) {
            block_pool_let_go(&pool, b);
            refs[b]--;
        }
        block_pool_check(&pool);
    }
    check(n_evicted > 100);
    block_pool_release(&pool);
}

static void test_oldest(void)
{
    struct block_pool pool;
    uint32_t node, block[4];
    check_begin("of known blocks the one that was let go first is taken first");
    check_int(block_pool_init(&pool, 4), 0);
    for (uint32_t i = 0; i < 4; i++) {
        block[i] = block_pool_take(&pool, &node);
        pool.block[block[i]].node = i;
    }
    for (uint32_t i = 0; i < 4; i++)
        block_pool_let_go(&pool, block[(i + 2) % 4]);
    block_pool_hold(&pool, block[3]);
    block_pool_let_go(&pool, block[3]);
    static const uint32_t want[] = { 2, 0, 1, 3 };
    for (uint32_t i = 0; i < 4; i++) {
        check_int(block_pool_take(&pool, &node), block[want[i]]);
        check_int(node, want[i]);
    }
    check_int(block_pool_available(&pool), 0);
    block_pool_release(&pool);
}

int main(void)
{
    test_tables();
    test_seen();
    test_pool();
    test_oldest();
    return check_done();
}
