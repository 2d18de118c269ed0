#include "run/compile.h"

#include "base/base.h"
#include "base/error.h"
#include "kernel/kernel.h"
#include "run/kv_cache.h"

#include <string.h>

/* What the flags call passes: one, or several in a row. */
static const struct { const char *name; enum pass first, last; bool must; } passes[] = {
    { "build", PASS_BUILD, PASS_BUILD, true },
    { "simplify", PASS_SIMPLIFY, PASS_SIMPLIFY, false },
    { "shard", PASS_SHARD, PASS_SHARD, true },
    { "fuse_matmuls", PASS_FUSE_MATMULS, PASS_FUSE_MATMULS, false },
    { "fuse_epilogues", PASS_FUSE_EPILOGUES, PASS_FUSE_EPILOGUES, false },
    { "fuse_rows", PASS_FUSE_ROWS, PASS_FUSE_ROWS, false },
    { "fuse_prologues", PASS_FUSE_PROLOGUES, PASS_FUSE_PROLOGUES, false },
    { "fuse", PASS_FUSE_MATMULS, PASS_FUSE_PROLOGUES, false },
    { "overlap", PASS_OVERLAP, PASS_OVERLAP, false },
    { "place", PASS_PLACE, PASS_PLACE, false },
};

/* The row of a name of n letters; COUNT_OF(passes) when there is none. */
static size_t find_row(const char *name, size_t n)
{
    size_t i = 0;
    while (i < COUNT_OF(passes) && (strlen(passes[i].name) != n || memcmp(passes[i].name, name, n)))
        i++;
    if (i == COUNT_OF(passes))
        error_set(ERR_USAGE, "there is no pass \"%.*s\": build, simplify, shard, fuse (fuse_matmuls, fuse_epilogues, fuse_rows, "
                  "fuse_prologues), overlap, place", (int)MIN(n, 64), name);
    return i;
}

int pass_find(enum pass *out, const char *name)
{
    size_t i = find_row(name, strlen(name));
    if (i == COUNT_OF(passes))
        return ERR_USAGE;
    *out = passes[i].last;
    return 0;
}

int pass_parse_without(unsigned *mask, const char *names)
{
    *mask = 0;
    while (names && *names) {
        size_t n = strcspn(names, ","), i = find_row(names, n);
        if (i == COUNT_OF(passes))
            return ERR_USAGE;
        if (passes[i].must)
            return error_set(ERR_USAGE, "pass %s cannot be left out: simplify, fuse (or one of its four), overlap and place can",
                             passes[i].name);
        for (unsigned pass = passes[i].first; pass <= passes[i].last; pass++)
            *mask |= 1u << pass;
        names += n + (names[n] == ',');
    }
    return 0;
}

static bool wanted(const struct compile_options *options, enum pass pass, enum pass last)
{
    return pass <= last && !(options->without & 1u << pass);
}

int compile_rank(struct graph **out, const struct model_file *file, const struct compile_options *options, uint32_t rank, enum pass last)
{
    struct graph *g = NULL, *mine = NULL;
    int err;
    if ((err = model_build(&g, file, &options->model)) < 0 || (wanted(options, PASS_SIMPLIFY, last) && (err = pass_simplify(g)) < 0))
        goto done;
    if (last < PASS_SHARD) {
        mine = g;
        g = NULL;
    } else if ((err = pass_shard(&mine, g, &options->mesh, options->gathered, rank)) < 0) {
        goto done;
    }
    if ((wanted(options, PASS_FUSE_MATMULS, last) && (err = pass_fuse_matmuls(mine)) < 0) ||
        (wanted(options, PASS_FUSE_EPILOGUES, last) && (err = pass_fuse_epilogues(mine)) < 0) ||
        (wanted(options, PASS_FUSE_ROWS, last) && (err = pass_fuse_rows(mine)) < 0) ||
        (wanted(options, PASS_FUSE_PROLOGUES, last) && (err = pass_fuse_prologues(mine)) < 0) ||
        (wanted(options, PASS_OVERLAP, last) && (err = pass_overlap(mine)) < 0) ||
        (last >= PASS_PLACE && (err = pass_place(mine, !(options->without & 1u << PASS_PLACE), matmul_packed_bytes)) < 0))
        goto done;
    *out = mine;
    mine = NULL;
done:
    graph_close(g);
    graph_close(mine);
    return err;
}

/* A context that no window and step reach. */
#define LONG_CONTEXT (1u << 30)

int predict_rank(struct rank_prediction *out, const struct model_file *file, const struct compile_options *options, uint32_t rank)
{
    struct graph *g;
    int err = compile_rank(&g, file, options, rank, PASS_PLACE);
    if (err < 0)
        return err;
    *out = (struct rank_prediction){
        .weight_bytes = graph_weight_bytes(g, matmul_packed_bytes), .activation_bytes = g->arena_bytes,
    };
    for (uint32_t i = 0; i < g->n_cache_groups; i++) {
        const struct cache_group *c = &g->cache_group[i];
        size_t bytes = kv_block_bytes(c->n_layers, c->n_kv_heads, c->head_dim, g->cache_type) / BLOCK_TOKENS;
        if (c->window)
            out->kv_window_bytes += bytes * BLOCK_TOKENS * kv_sequence_blocks(c->window, LONG_CONTEXT, options->model.max_tokens);
        else
            out->kv_bytes_per_token += bytes;
    }
    graph_close(g);
    return 0;
}
