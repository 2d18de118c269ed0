/* attend.c: the KV cache as instructions see it: keys and values are stored row by row, and attention reads them.
 *
 * A chunk of attention is a few tokens of a sequence at one KV head.  Who computes which chunk never changes a bit. */
#include "run/instr.h"

#include "base/base.h"

static const struct kv_cache *cache_of(const struct program *p, const struct instr *in)
{
    return &p->cache[in->attr->cache_group];
}

/* Of positions BLOCK_TOKENS * block and up. */
static void *cache_tile(const struct program *p, const struct instr *in, const struct step_sequence *sequence, uint32_t block, uint32_t kv_head)
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

/* heads and n_tokens: at most ATTENTION_MAX_QUERIES together. */
static void attend(struct program *p, struct instr *in, const struct attention_item *item, uint32_t kv_head, struct head_group heads,
                   uint32_t first_token, uint32_t n_tokens, int thread)
{
    const struct step_sequence *sequence = &p->step->sequences[item->sequence];
    const float *q[ATTENTION_MAX_QUERIES];
    float *out[ATTENTION_MAX_QUERIES];
    uint32_t first_key[ATTENTION_MAX_QUERIES], n_keys[ATTENTION_MAX_QUERIES], n = 0, head_dim = in->attr->head_dim;
    uint32_t window = p->graph->cache_group[in->attr->cache_group].window;
    for (uint32_t t = first_token; t < first_token + n_tokens; t++)
        for (uint32_t h = heads.begin; h < heads.end; h++, n++) {
            q[n] = (const float *)operand_row(&in->in[0], t, 0) + h * head_dim;
            out[n] = (float *)operand_row(&in->out[0], t, 0) + h * head_dim;
            n_keys[n] = (uint32_t)p->step->positions[t] + 1;
            first_key[n] = window && n_keys[n] > window ? n_keys[n] - window : 0;
        }
    uint32_t n_blocks = DIV_UP((uint32_t)p->step->positions[first_token + n_tokens - 1] + 1, BLOCK_TOKENS);
    const void **tiles = p->tiles + (size_t)thread * p->max_blocks;
    for (uint32_t b = first_key[0] / BLOCK_TOKENS; b < n_blocks; b++)
        tiles[b] = cache_tile(p, in, sequence, b, kv_head);
    struct attention_args args = { .tiles = tiles, .n_queries = n, .q = q, .out = out, .first_key = window ? first_key : NULL, .n_keys = n_keys,
                                   .head_dim = head_dim, .scale = in->attr->scale, .softcap = in->attr->softcap };
    p->options.kernels->attention[p->graph->cache_type](&args);
}

/* Heads and tokens of an item go to the kernel as many at a time as fit its queries. */
void program_attention(struct program *p, struct instr *in, uint32_t chunk, int thread)
{
    uint32_t n_kv_heads = cache_of(p, in)->n_kv_heads, kv_head = chunk % n_kv_heads;
    const struct attention_item *item = &p->item[chunk / n_kv_heads];
    struct head_group all = heads_of(in, kv_head);
    for (uint32_t h = all.begin; h < all.end; h += ATTENTION_MAX_QUERIES) {
        struct head_group heads = { h, MIN(h + ATTENTION_MAX_QUERIES, all.end) };
        uint32_t fit = ATTENTION_MAX_QUERIES / (heads.end - heads.begin);
        for (uint32_t t = 0; t < item->n_tokens; t += fit)
            attend(p, in, item, kv_head, heads, item->first_token + t, MIN(fit, item->n_tokens - t), thread);
    }
}

uint32_t program_attention_chunks(const struct program *p, const struct instr *in)
{
    return p->n_items * cache_of(p, in)->n_kv_heads;
}
