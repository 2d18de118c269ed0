/* kernel_attention: the speed of one core's attention, for every instruction set that this CPU has.
 *
 *   kernel_attention [ISA]
 *
 * Prints {"results": [{"isa", "cache", "case", "head_dim", "queries", "keys", "window", "softcap", "memory", "us", "gflops",
 * "gb_per_s"}, ..]}, of the best of several runs in CPU time; us is one call.  gflops counts 4 head_dim per query and key that it
 * sees; gb_per_s counts each K and V byte once.  `memory` is "near" when the calls share one cache, "far" when they walk 128 MiB of
 * caches, as the heads and layers of a decode do.  With a window a query sees its last keys only, and the tiles before them are
 * NULL. */
#include "base/base.h"
#include "base/float_mode.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAR_BYTES ((size_t)128 << 20)
#define REPEAT 7
#define RUN_S 0.03

/* Queries i of the same i / heads are one token's; each token sees one key less than the one after it. */
static const struct bench_case {
    const char *name;
    uint32_t head_dim, n_queries, heads, n_keys;
    bool far;
    uint32_t window;
    float softcap;
} cases[] = {
    { "span",    64,  8,  8,  256, false, 0, 0.0f },
    { "decode",  64,  3,  3,  512, false, 0, 0.0f },
    { "decode",  64,  3,  3, 4096, false, 0, 0.0f },
    { "decode",  64,  8,  8,  512, false, 0, 0.0f },
    { "decode",  64,  8,  8, 4096, false, 0, 0.0f },
    { "decode", 128,  4,  4, 4096, false, 0, 0.0f },
    { "decode", 128,  8,  8, 4096, false, 0, 0.0f },
    { "decode",  64,  3,  3, 4096, true, 0, 0.0f },
    { "decode", 128,  4,  4, 4096, true, 0, 0.0f },
    { "decode", 128,  8,  8, 4096, true, 0, 0.0f },
    { "prefill", 64, 64,  3,  512, false, 0, 0.0f },
    { "prefill", 64, 64,  8, 4096, false, 0, 0.0f },
    { "prefill", 128, 64, 4, 2048, false, 0, 0.0f },
    { "decode", 128,  4,  4,  512, false, 0, 0.0f },
    { "decode", 128,  4,  4, 100096, false, 512, 0.0f },        /* two spans, */
    { "decode", 128,  4,  4, 100000, false, 512, 0.0f },        /* and three */
    { "decode", 128,  4,  4,  512, false, 0, 50.0f },
    { "prefill", 128, 64, 4, 2048, false, 512, 0.0f },
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds a call, the best of REPEAT runs; call c takes the tiles of cache c % n_caches. */
static double best_seconds(attention_fn *run, struct attention_args *args, const void *const *tiles, uint32_t n_tiles,
                           uint32_t n_caches)
{
    double best = INFINITY;

    for (int r = 0; r < REPEAT; r++) {
        double start = cpu_seconds(), seconds;
        uint32_t n_calls = 0;
        do {
            args->tiles = tiles + (size_t)(n_calls % n_caches) * n_tiles;
            run(args);
            n_calls++;
            seconds = cpu_seconds() - start;
        } while (seconds < RUN_S);
        best = MIN(best, seconds / n_calls);
    }
    return best;
}

static void bench(const struct kernels *kernels, enum dtype type, const struct bench_case *c, bool first)
{
    static float q_rows[ATTENTION_MAX_QUERIES][ATTENTION_MAX_DIM], out_rows[ATTENTION_MAX_QUERIES][ATTENTION_MAX_DIM];
    const float *q[ATTENTION_MAX_QUERIES];
    float *out[ATTENTION_MAX_QUERIES], kv[ATTENTION_MAX_DIM];
    uint32_t first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES], n_tiles = DIV_UP(c->n_keys, BLOCK_TOKENS);
    uint32_t n_tokens = DIV_UP(c->n_queries, c->heads), n_skipped = 0;          /* tiles that no query sees */
    if (c->window && c->window + n_tokens < c->n_keys)
        n_skipped = (c->n_keys + 1 - n_tokens - c->window) / BLOCK_TOKENS;
    size_t tile_bytes = kv_tile_bytes(type, c->head_dim), cache_bytes = (n_tiles - n_skipped) * tile_bytes;
    uint32_t n_caches = c->far ? (uint32_t)(FAR_BYTES / cache_bytes) : 1;
    const void **tiles = calloc((size_t)n_caches * n_tiles, sizeof *tiles);
    char *memory = aligned_alloc(CACHE_LINE, n_caches * cache_bytes);
    double flops = 0.0, seconds;

    for (uint32_t d = 0; d < c->head_dim; d++)
        kv[d] = 0.5f - (float)(d % 7) / 8.0f;
    for (size_t t = 0, n_filled = 0; t < (size_t)n_caches * n_tiles; t++) {
        if (t % n_tiles < n_skipped)
            continue;
        char *tile = memory + n_filled++ * tile_bytes;
        tiles[t] = tile;
        for (uint32_t slot = 0; slot < BLOCK_TOKENS; slot++) {
            kv[t % c->head_dim] += 1.0f / 64;
            kernels->kv_store[type](tile, slot, kv, kv, c->head_dim);
        }
    }
    for (uint32_t i = 0; i < c->n_queries; i++) {
        for (uint32_t d = 0; d < c->head_dim; d++)
            q_rows[i][d] = (float)((i + d) % 13) / 6.0f - 1.0f;
        q[i] = q_rows[i];
        out[i] = out_rows[i];
        n_keys[i] = c->n_keys + 1 - n_tokens + i / c->heads;
        first_key[i] = c->window && n_keys[i] > c->window ? n_keys[i] - c->window : 0;
        flops += 4.0 * (n_keys[i] - first_key[i]) * c->head_dim;
    }
    struct attention_args args = { .n_queries = c->n_queries, .q = q, .out = out, .first_key = c->window ? first_key : NULL,
                                   .n_keys = n_keys, .head_dim = c->head_dim, .scale = 1.0f / sqrtf((float)c->head_dim),
                                   .softcap = c->softcap };
    seconds = best_seconds(kernels->attention[type], &args, tiles, n_tiles, n_caches);
    printf("%s  {\"isa\": \"%s\", \"cache\": \"%s\", \"case\": \"%s\", \"head_dim\": %u, \"queries\": %u, \"keys\": %u, "
           "\"window\": %u, \"softcap\": %g, \"memory\": \"%s\", \"us\": %.2f, \"gflops\": %.1f, \"gb_per_s\": %.1f}", first ? "" : ",\n",
           kernels->name, dtype_info[type].name, c->name, c->head_dim, c->n_queries, c->n_keys, c->window, (double)c->softcap,
           c->far ? "far" : "near", seconds * 1e6, flops / seconds * 1e-9, (double)cache_bytes / seconds * 1e-9);
    fflush(stdout);
    free(memory);
    free(tiles);
}

int main(int argc, char **argv)
{
    static const enum dtype types[] = { DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_Q8_0 };
    bool first = true;

    cpu_float_mode_set();
    printf("{\"results\": [\n");
    for (size_t v = 0; v < n_kernels; v++) {
        const struct kernels *kernels = kernels_all[v];
        if ((kernels->needs & cpu_features()) != kernels->needs || (argc > 1 && strcmp(argv[1], kernels->name)))
            continue;
        for (size_t t = 0; t < COUNT_OF(types); t++)
            for (size_t i = 0; i < COUNT_OF(cases); i++, first = false)
                bench(kernels, types[t], &cases[i], first);
    }
    printf("\n]}\n");
    return 0;
}
