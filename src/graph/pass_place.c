/* pass_place.c: a place in the rank's activation arena for every tensor.
 *
 * A tensor is alive from the node that makes it to the last that uses it, both included; outputs of the graph live to the
 * end.  In order of birth each gets the lowest place that is free of those alive with it.  Sizes are at the symbols'
 * maxima, so a step never allocates. */
#include "graph/graph.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

struct alive {
    struct tensor *tensor;
    uint32_t born, dies;
};

static size_t tensor_bytes(const struct graph *g, const struct tensor *t, packed_bytes_fn *packed_bytes)
{
    if (t->is_packed) {
        uint64_t n_matrices = t->n_dims == 3 ? t->dim[0].add : 1;
        size_t matrix_bytes = packed_bytes(t->type, (uint32_t)t->dim[t->n_dims - 2].add, (uint32_t)t->dim[t->n_dims - 1].add);
        return ROUND_UP(n_matrices * matrix_bytes, CACHE_LINE);
    }
    uint64_t rows = dim_max(g, &t->dim[0]) * tensor_n_parts(t);
    return ROUND_UP(tensor_row_bytes(t) * rows, CACHE_LINE);
}

/* dies[id]: the last node that uses a tensor, 0 when none does. */
static void find_last_uses(const struct graph *g, uint32_t *dies)
{
    uint32_t at = 0;
    for (const struct node *n = g->first; n; n = n->next, at++)
        for (uint32_t i = 0; i < n->n_in; i++)
            dies[n->in[i]->id] = at;
}

static size_t lowest_free(const struct alive *list, size_t n, const struct alive *mine)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const struct tensor *t = list[i].tensor;
            if (list[i].dies < mine->born || offset + mine->tensor->n_bytes <= t->offset || t->offset + t->n_bytes <= offset)
                continue;
            offset = t->offset + t->n_bytes;
            moved = true;
        }
    }
    return offset;
}

/* What died before node `at` is in nobody's way any more. */
static size_t drop_dead(struct alive *list, size_t n, uint32_t at)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].dies >= at)
            list[kept++] = list[i];
    return kept;
}

int pass_place(struct graph *g, bool reuse, packed_bytes_fn *packed_bytes)
{
    struct alive *list = calloc(g->n_tensors + 1, sizeof *list);
    uint32_t *dies = calloc(g->n_tensors + 1, sizeof *dies), at = 0;
    size_t n_placed = 0;
    if (!list || !dies) {
        free(list);
        free(dies);
        return error_set(ERR_NO_MEMORY, "out of memory for placing tensors");
    }
    find_last_uses(g, dies);
    g->arena_bytes = 0;
    for (struct node *n = g->first; n; n = n->next, at++)
        for (uint32_t i = 0; i < n->n_out && n->op != OP_input; i++) {
            struct tensor *t = n->out[i];
            struct alive mine = { .tensor = t, .born = at, .dies = t->is_output ? UINT32_MAX : MAX(at, dies[t->id]) };
            t->n_bytes = tensor_bytes(g, t, packed_bytes);
            t->has_buffer = true;
            t->offset = reuse ? lowest_free(list, n_placed, &mine) : g->arena_bytes;
            n_placed = drop_dead(list, n_placed, at);
            list[n_placed++] = mine;
            g->arena_bytes = MAX(g->arena_bytes, t->offset + t->n_bytes);
        }
    free(list);
    free(dies);
    return graph_verify(g);
}
