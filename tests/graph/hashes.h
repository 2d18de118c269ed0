/* hashes.h: a graph is run on hashes instead of numbers: a value is the hash of its operator and its inputs, so two graphs give
 * equal hashes for an output when they compute it alike.  After pass_place() the run goes through a simulated arena, in which a
 * tensor that is overwritten while it is still wanted is seen. */
#ifndef STOA_TESTS_GRAPH_HASHES_H
#define STOA_TESTS_GRAPH_HASHES_H

#include "graph/graph.h"
#include "base/random.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRANULE = CACHE_LINE };

struct run {
    uint64_t value[4096];
    uint32_t *owner;            /* [arena_bytes / GRANULE]: which tensor's bytes stand there; NULL before pass_place() */
    uint32_t n_overwritten;
};

static inline uint64_t hash_text(const char *text)
{
    uint64_t h = 7;
    for (; *text; text++)
        h = random_mix(h * 31 + (unsigned char)*text);
    return h;
}

static inline uint64_t read_tensor(struct run *run, const struct tensor *t)
{
    if (t->weight)
        return hash_text(t->name);
    for (size_t at = t->offset; run->owner && t->has_buffer && at < t->offset + t->n_bytes; at += GRANULE)
        run->n_overwritten += run->owner[at / GRANULE] != t->id;
    return run->value[t->id];
}

static inline void write_tensor(struct run *run, const struct tensor *t, uint64_t value)
{
    run->value[t->id] = value;
    for (size_t at = t->offset; run->owner && t->has_buffer && at < t->offset + t->n_bytes; at += GRANULE)
        run->owner[at / GRANULE] = t->id;
}

static inline void run_node(struct run *run, const struct node *n)
{
    if (n->n_steps) {
        for (uint32_t s = 0; s < n->n_steps; s++)
            run_node(run, n->step[s]);
        return;
    }
    bool multiplies = node_multiplies(n);
    uint32_t first = node_first_weight(n);
    for (uint32_t o = 0; o < n->n_out; o++) {
        uint64_t h = random_mix((uint64_t)n->op + 1 + (multiplies ? 0 : 100 * (uint64_t)o));
        if (n->op == OP_input)
            h ^= hash_text(n->out[o]->name);
        for (uint32_t i = 0; i < n->n_in; i++)
            if (!multiplies || i < first || i == first + o)        /* an output is of its own weight */
                h = random_mix(h * 3 + read_tensor(run, n->in[i]));
        write_tensor(run, n->out[o], h);
    }
}

/* The hash of every output by name; the number of bytes of the arena that were lost is in *overwritten. */
struct outputs {
    struct { char name[16]; uint64_t value; } of[16];
    uint32_t n, n_overwritten;
};

static inline struct outputs run_graph(const struct graph *g, bool placed)
{
    static struct run run;
    struct outputs out = { 0 };
    run.n_overwritten = 0;
    run.owner = placed ? calloc(g->arena_bytes / GRANULE + 1, sizeof *run.owner) : NULL;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (const struct node *n = g->first; n; n = n->next) {
            if (!pass)
                run_node(&run, n);
            for (uint32_t i = 0; pass && i < n->n_out; i++)
                if (n->out[i]->is_output && out.n < COUNT_OF(out.of)) {
                    snprintf(out.of[out.n].name, sizeof out.of[0].name, "%s", n->out[i]->name);
                    out.of[out.n++].value = read_tensor(&run, n->out[i]);
                }
        }
    out.n_overwritten = run.n_overwritten;
    free(run.owner);
    return out;
}

static inline void check_outputs(const struct outputs *got, const struct outputs *want)
{
    check_int(got->n, want->n);
    for (uint32_t i = 0; i < want->n; i++) {
        uint32_t at = 0;
        while (at < got->n && strcmp(got->of[at].name, want->of[i].name))
            at++;
        if (check(at < got->n && "the output is there"))
            check(got->of[at].value == want->of[i].value);
    }
    check_int(got->n_overwritten, 0);
}

/* ---- places ---- */
static inline uint32_t index_of(const struct graph *g, const struct node *wanted)
{
    uint32_t at = 0;
    for (const struct node *n = g->first; n && n != wanted; n = n->next)
        at++;
    return at;
}

struct life {
    const struct tensor *tensor;
    uint32_t born, dies;
};

/* Every pair of tensors that are alive together has places of its own. */
static inline void check_places(const struct graph *g)
{
    static struct life life[4096];
    uint32_t n_lives = 0, at = 0;
    for (const struct node *n = g->first; n; n = n->next, at++)
        for (uint32_t i = 0; i < n->n_out; i++) {
            const struct tensor *t = n->out[i];
            if (!t->has_buffer || !t->n_bytes)
                continue;
            struct life mine = { t, at, t->is_output ? UINT32_MAX : at };
            for (const struct node *user = n; user; user = user->next)
                for (uint32_t k = 0; k < user->n_in; k++)
                    if (user->in[k] == t)
                        mine.dies = MAX(mine.dies, index_of(g, user));
            check(t->offset + t->n_bytes <= g->arena_bytes && t->offset % CACHE_LINE == 0);
            for (uint32_t k = 0; k < n_lives; k++)
                if (life[k].dies >= mine.born && mine.dies >= life[k].born)
                    check(t->offset + t->n_bytes <= life[k].tensor->offset ||
                          life[k].tensor->offset + life[k].tensor->n_bytes <= t->offset);
            life[n_lives++] = mine;
        }
}

#endif
