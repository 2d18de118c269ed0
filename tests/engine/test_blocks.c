/* test_blocks.c: pools give each block to one sequence at a time, and a ring knows what it still holds. */
#include "engine/blocks.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <string.h>

enum { CONTEXT = 512, CHUNK = 24, N_SEQUENCES = 3 };

static void test_tables(void)
{
    struct cache_blocks all = cache_blocks(0, CONTEXT, CHUNK, N_SEQUENCES), ring = cache_blocks(40, CONTEXT, CHUNK, N_SEQUENCES),
                        wide = cache_blocks(500, CONTEXT, CHUNK, N_SEQUENCES), wider = cache_blocks(4096, CONTEXT, CHUNK, N_SEQUENCES);
    check_begin("a table of all positions grows, one of a window has its length from the start");
    check_int(all.n_sequence, CONTEXT / 16);
    check_int(all.n_all, N_SEQUENCES * CONTEXT / 16);
    check_int(cache_blocks_table(&all, 1), 1);
    check_int(cache_blocks_table(&all, 16), 1);
    check_int(cache_blocks_table(&all, 17), 2);
    check_int(cache_blocks_table(&all, CONTEXT), CONTEXT / 16);
    check_int(ring.n_sequence, 5);          /* 39 + 24 positions, from the last one of a block */
    check_int(ring.n_all, N_SEQUENCES * 5);
    check_int(cache_blocks_table(&ring, 1), 5);
    check_int(cache_blocks_table(&ring, CONTEXT), 5);
    check_int(wide.n_sequence, CONTEXT / 16);
    check_int(wider.n_sequence, CONTEXT / 16);
}

static void test_pool(void)
{
    struct block_pool pool;
    uint32_t table[N_SEQUENCES][20], n[N_SEQUENCES] = { 0 }, n_taken;
    bool taken[32];
    check_begin("a pool: no block twice, none lost, full is full");
    check_int(block_pool_init(&pool, 32), 0);
    for (uint64_t step = 0; step < 2000; step++) {
        uint32_t s = (uint32_t)(random_u64(1, step) % N_SEQUENCES), wanted = (uint32_t)(random_u64(2, step) % 21), before = n[s];
        if (random_u64(3, step) % 4 == 0) {
            block_pool_give_back(&pool, table[s], n[s]);
            n[s] = 0;
        } else {
            uint32_t free_blocks = 32 - n[0] - n[1] - n[2];
            bool fits = wanted <= before || wanted - before <= free_blocks;
            check_int(block_pool_take(&pool, table[s], &n[s], wanted), fits ? 0 : ERR_FULL);
            check_int(n[s], fits && wanted > before ? wanted : before);
        }
        memset(taken, 0, sizeof taken);
        n_taken = 0;
        for (uint32_t i = 0; i < N_SEQUENCES; i++)
            for (uint32_t k = 0; k < n[i]; k++, n_taken++) {
                check(table[i][k] < 32 && !taken[table[i][k]]);
                taken[table[i][k] % 32] = true;
            }
        check_int(pool.n_free, 32 - n_taken);
    }
    block_pool_release(&pool);
}

/* What each place of a ring really holds, while a sequence goes on, back to a common prefix, and on again. */
struct ring {
    struct cache_blocks cache;
    uint32_t n_stored, held[CONTEXT + 16];      /* held: position + 1 */
};

static void store(struct ring *r, uint32_t first, uint32_t end)
{
    for (uint32_t p = first; p < end; p++)
        r->held[p % (r->cache.n_sequence * 16)] = p + 1;
    r->n_stored = first ? MAX(r->n_stored, end) : end;
}

static bool holds(const struct ring *r, uint32_t n_common)
{
    uint32_t first = n_common >= r->cache.window ? n_common + 1 - r->cache.window : 0;
    for (uint32_t p = first; p < n_common; p++)
        if (r->held[p % (r->cache.n_sequence * 16)] != p + 1)
            return false;
    return true;
}

static void test_ring(void)
{
    static const uint32_t windows[] = { 1, 2, 15, 16, 17, 40, 100, 300, 511, 512, 513, 4096 };
    uint32_t n_kept = 0, n_lost = 0;
    for (size_t w = 0; w < COUNT_OF(windows); w++) {
        check_begin("a window of %u is kept exactly when all of it is there", windows[w]);
        for (uint64_t seed = 0; seed < 200; seed++) {
            struct ring r = { .cache = cache_blocks(windows[w], CONTEXT, CHUNK, 1) };
            uint32_t end = 1 + (uint32_t)(random_u64(seed, 0) % CONTEXT);
            store(&r, 0, end);
            for (uint64_t turn = 1; turn < 12; turn++) {
                uint32_t back = (uint32_t)(random_u64(seed, 2 * turn) % (turn % 3 ? 80 : CONTEXT)), common = end > back ? end - back : 0;
                bool keeps = cache_blocks_keep(&r.cache, common, r.n_stored);
                if (!check_int(keeps, holds(&r, common)))
                    break;
                *(keeps ? &n_kept : &n_lost) += 1;
                if (!keeps)
                    common = 0;
                end = common + (uint32_t)(random_u64(seed, 2 * turn + 1) % (MIN(100, CONTEXT - common) + 1));
                store(&r, common, end);
            }
        }
    }
    check(n_kept > 1000 && n_lost > 1000);
    check_begin("all positions are always kept");
    struct cache_blocks all = cache_blocks(0, CONTEXT, CHUNK, 1);
    check(cache_blocks_keep(&all, 0, CONTEXT) && cache_blocks_keep(&all, 1, CONTEXT) && cache_blocks_keep(&all, CONTEXT - 1, CONTEXT));
}

int main(void)
{
    test_tables();
    test_pool();
    test_ring();
    return check_done();
}
