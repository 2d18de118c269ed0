/* attend.c: the KV cache as instructions see it: keys and values are stored row by row, and attention reads them.
 *
 * A chunk of attention is a few tokens of a sequence at one KV head.  Where those are fewer than the threads could do, long
 * contexts are cut too: a chunk computes one run of spans, and who finishes the last run of a few tokens merges them, in the
 * order that kernel.h gives.  So neither the cut nor who computes what changes a bit. */
#include "run/instr.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

static const struct kv_cache *cache_of(const struct program *p, const struct instr *in)
{
    return &p->cache[in->attr->cache_group];
}

/* Of positions BLOCK_TOKENS * block and up. */
static void *cache_tile(const struct program *p, const struct instr *in, const struct step_sequence *sequence, uint32_t block,
                        uint32_t kv_head)
{
    const struct step_table *table = &sequence->table[in->attr->cache_group];
    return kv_cache_tile(cache_of(p, in), table->blocks[block % table->n_blocks], in->attr->cache_layer, kv_head);
}

void program_kv_store(struct program *p, struct instr *in, const struct piece *at)
{
    const struct step_sequence *sequence = &p->step->sequences[p->sequence_of[at->row]];
    uint32_t position = (uint32_t)p->step->positions[at->row], head_dim = in->attr->head_dim;
    const float *k = piece_at(&in->in[0], at), *v = piece_at(&in->in[1], at);
    for (uint32_t head = at->begin / head_dim; head < at->end / head_dim; head++, k += head_dim, v += head_dim) {
        void *tile = cache_tile(p, in, sequence, position / BLOCK_TOKENS, head);
        p->options.kernels->kv_store[p->graph->cache_type](tile, position % BLOCK_TOKENS, k, v, head_dim);
    }
}

struct head_group {
    uint32_t begin, end;        /* this rank's query heads, from 0, that read the KV head */
};

static struct head_group heads_of(const struct instr *in, uint32_t kv_head)
{
    const struct node_attr *a = in->attr;
    uint32_t n_heads = in->out[0].n_columns / a->head_dim;
    uint32_t first = (a->first_kv_head + kv_head) * a->heads_per_kv, last = first + a->heads_per_kv;
    return (struct head_group){ MAX(first, a->first_head) - a->first_head, MIN(last, a->first_head + n_heads) - a->first_head };
}

/* ---- how a step's attention is cut ---- */

/* Long prefills are cut so that there is work for every thread. */
#define ITEM_TOKENS 16
/* Up to so many chunks for each thread, long contexts are cut into runs of spans. */
#define THREAD_RUNS 8

static uint32_t most_heads_per_kv(const struct graph *g)
{
    uint32_t most = 1;
    for (const struct node *n = g->first; n; n = n->next)
        if (n->op == OP_attention)
            most = MAX(most, n->attr.heads_per_kv);
    return most;
}

int attend_open(struct program *p)
{
    struct attend *a = &p->attend;
    size_t n_threads = (size_t)pool_n_threads(p->options.pool), n_tokens = p->graph->symbol_max[SYMBOL_T];
    uint32_t heads = most_heads_per_kv(p->graph);
    a->item_tokens = MAX(1, MIN(ITEM_TOKENS, ATTENTION_MAX_QUERIES / heads));
    a->max_runs = n_threads > 1 && heads <= ATTENTION_MAX_QUERIES ? (uint32_t)n_threads * THREAD_RUNS : 0;
    a->max_blocks = DIV_UP(p->options.context, BLOCK_TOKENS);
    a->item = calloc(n_tokens + 1, sizeof *a->item);
    a->tiles = calloc(n_threads * a->max_blocks + 1, sizeof *a->tiles);
    a->partials = aligned_alloc(CACHE_LINE, (a->max_runs + 1) * ATTENTION_MAX_QUERIES * sizeof *a->partials);
    a->n_done = calloc(a->max_runs + 1, sizeof *a->n_done);
    bool ok = a->item && a->tiles && a->partials && a->n_done;
    for (uint32_t g = 0; g < p->graph->n_cache_groups; g++)
        ok = (a->cut[g].part = calloc(n_tokens + a->max_runs + 1, sizeof *a->cut[g].part)) && ok;
    return ok ? 0 : error_set(ERR_NO_MEMORY, "no memory for attention");
}

void attend_release(struct attend *a)
{
    free(a->item);
    free(a->tiles);
    free(a->partials);
    free(a->n_done);
    for (uint32_t g = 0; g < GRAPH_MAX_CACHE_GROUPS; g++)
        free(a->cut[g].part);
}

static uint32_t first_key_of(uint32_t n_keys, uint32_t window)
{
    return window && n_keys > window ? n_keys - window : 0;
}

/* The runs of 1 << shift spans that an item's tokens see something of. */
static struct range item_runs(const struct program *p, const struct attention_item *item, uint32_t window, uint32_t shift)
{
    uint32_t first = (uint32_t)p->step->positions[item->first_token], last = first + item->n_tokens - 1;
    return (struct range){ first_key_of(first + 1, window) / SPAN_TOKENS >> shift, (last / SPAN_TOKENS >> shift) + 1 };
}

static uint32_t count_runs(const struct program *p, uint32_t window, uint32_t shift)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->attend.n_items; i++) {
        struct range runs = item_runs(p, &p->attend.item[i], window, shift);
        n += runs.end - runs.begin;
    }
    return n;
}

/* The shortest runs of which there are not too many; whole items, if those alone are enough for all threads. */
static void cut_group(struct program *p, uint32_t group)
{
    struct attend *a = &p->attend;
    struct attention_cut *cut = &a->cut[group];
    uint32_t window = p->graph->cache_group[group].window, n_kv_heads = MAX(1, p->cache[group].n_kv_heads), place = 0;
    cut->n_parts = cut->run_shift = 0;
    while (cut->run_shift < ATTENTION_MAX_LEVELS && (uint64_t)count_runs(p, window, cut->run_shift) * n_kv_heads > a->max_runs)
        cut->run_shift++;
    for (uint32_t i = 0; i < a->n_items; i++) {
        struct range runs = item_runs(p, &a->item[i], window, cut->run_shift);
        uint32_t n = runs.end - runs.begin;
        for (uint32_t r = 0; r < n; r++)
            cut->part[cut->n_parts++] = (struct attention_part){ i, runs.begin, n, r, place };
        place += n;
    }
}

void attend_prepare(struct program *p)
{
    struct attend *a = &p->attend;
    a->n_items = 0;
    for (uint32_t s = 0; s < p->step->n_sequences; s++) {
        const struct step_sequence *q = &p->step->sequences[s];
        for (uint32_t t = 0; t < q->n_tokens; t += a->item_tokens)
            a->item[a->n_items++] = (struct attention_item){ s, q->first_token + t, MIN(a->item_tokens, q->n_tokens - t) };
    }
    for (uint32_t g = 0; g < p->graph->n_cache_groups; g++)
        cut_group(p, g);
}

uint32_t program_attention_chunks(const struct program *p, const struct instr *in)
{
    return p->attend.cut[in->attr->cache_group].n_parts * cache_of(p, in)->n_kv_heads;
}

/* ---- a chunk ---- */

struct queries {
    uint32_t n, first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES];
    const float *q[ATTENTION_MAX_QUERIES];
    float *out[ATTENTION_MAX_QUERIES];
};

static void load_queries(struct queries *to, const struct program *p, const struct instr *in, const struct attention_item *item,
                         struct head_group heads)
{
    uint32_t window = p->graph->cache_group[in->attr->cache_group].window, head_dim = in->attr->head_dim;
    to->n = 0;
    for (uint32_t t = item->first_token; t < item->first_token + item->n_tokens; t++)
        for (uint32_t h = heads.begin; h < heads.end; h++, to->n++) {
            to->q[to->n] = (const float *)operand_row(&in->in[0], t, 0) + h * head_dim;
            to->out[to->n] = (float *)operand_row(&in->out[0], t, 0) + h * head_dim;
            to->n_keys[to->n] = (uint32_t)p->step->positions[t] + 1;
            to->first_key[to->n] = first_key_of(to->n_keys[to->n], window);
        }
}

/* Addresses of the tiles that the queries see; of one run only, if there are several. */
static const void *const *load_tiles(const struct program *p, const struct instr *in, const struct attention_part *part,
                                     const struct queries *q, uint32_t kv_head, int thread)
{
    const struct attend *a = &p->attend;
    const struct step_sequence *sequence = &p->step->sequences[a->item[part->item].sequence];
    const void **tiles = a->tiles + (size_t)thread * a->max_blocks;
    uint32_t begin = q->first_key[0] / BLOCK_TOKENS, end = DIV_UP(q->n_keys[q->n - 1], BLOCK_TOKENS);
    if (part->n_runs > 1) {
        uint32_t run_blocks = SPAN_TOKENS / BLOCK_TOKENS << a->cut[in->attr->cache_group].run_shift, run = part->first_run + part->run;
        begin = MAX(begin, run * run_blocks);
        end = MIN(end, (run + 1) * run_blocks);
    }
    for (uint32_t b = begin; b < end; b++)
        tiles[b] = cache_tile(p, in, sequence, b, kv_head);
    return tiles;
}

/* One run of several; who comes last merges them. */
static void attend_run(struct program *p, const struct instr *in, struct attention_args *args, const struct attention_part *part,
                       uint32_t kv_head)
{
    struct attend *a = &p->attend;
    uint32_t place = part->place * cache_of(p, in)->n_kv_heads + kv_head * part->n_runs;
    struct attention_partial *partials = a->partials + (size_t)place * ATTENTION_MAX_QUERIES;
    args->run_shift = a->cut[in->attr->cache_group].run_shift;
    args->run = part->first_run + part->run;
    args->partials = partials + (size_t)part->run * args->n_queries;
    p->options.kernels->attention[p->graph->cache_type](args);
    if (atomic_fetch_add_explicit(&a->n_done[place], 1, memory_order_acq_rel) + 1 < part->n_runs)
        return;
    atomic_store_explicit(&a->n_done[place], 0, memory_order_relaxed);          /* for the next layer */
    args->run = part->first_run;
    args->partials = partials;
    p->options.kernels->attention_merge(args);
}

/* More heads than a call takes go in several; they are not cut into runs. */
void program_attention(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    uint32_t n_kv_heads = cache_of(p, in)->n_kv_heads, kv_head = chunk % n_kv_heads;
    const struct attention_part *part = &p->attend.cut[in->attr->cache_group].part[chunk / n_kv_heads];
    struct head_group all = heads_of(in, kv_head);
    struct queries q;
    for (uint32_t h = all.begin; h < all.end; h += ATTENTION_MAX_QUERIES) {
        load_queries(&q, p, in, &p->attend.item[part->item], (struct head_group){ h, MIN(h + ATTENTION_MAX_QUERIES, all.end) });
        struct attention_args args = {
            .tiles = load_tiles(p, in, part, &q, kv_head, thread), .n_queries = q.n, .q = q.q, .out = q.out, .first_key = q.first_key,
            .n_keys = q.n_keys, .head_dim = in->attr->head_dim, .scale = in->attr->scale, .softcap = in->attr->softcap,
        };
        if (part->n_runs > 1)
            attend_run(p, in, &args, part, kv_head);
        else
            p->options.kernels->attention[p->graph->cache_type](&args);
    }
}
