/* ops.c: the operator table, the shape rules and the cost rules. */
#include "graph/ops.h"

#include "base/base.h"
#include "base/error.h"

#include <string.h>

const struct op_info op_info[N_OPS] = {
#define OP(name, n_inputs, n_outputs, kind, columns, shape, shard_rule, cost) \
    [OP_##name] = { #name, n_inputs, n_outputs, KIND_##kind, COLUMNS_##columns, shape, shard_rule, cost },
#include "graph/ops.def"
#undef OP
};

/* ---- shapes ---- */
static bool dims_equal(const struct tensor *a, const struct tensor *b)
{
    if (a->n_dims != b->n_dims)
        return false;
    for (uint32_t d = 0; d < a->n_dims; d++)
        if (a->dim[d].mul != b->dim[d].mul || a->dim[d].add != b->dim[d].add || a->dim[d].symbol != b->dim[d].symbol)
            return false;
    return true;
}

static void copy_dims(struct tensor *to, const struct tensor *from)
{
    to->n_dims = from->n_dims;
    memcpy(to->dim, from->dim, sizeof to->dim);
}

/* [dim of rows.dim[0]][column] */
static void set_rows(struct tensor *to, const struct tensor *rows, struct dim column)
{
    to->n_dims = 2;
    to->dim[0] = rows->dim[0];
    to->dim[1] = column;
}

static int wrong(const char *what, const struct tensor *a, const struct tensor *b)
{
    return error_set(ERR_BAD_FILE, "%s: %s[%llu] does not fit %s[%llu]", what, a->name, (unsigned long long)a->dim[a->n_dims - 1].add,
                     b->name, (unsigned long long)b->dim[b->n_dims - 1].add);
}

int shape_given(struct graph *g, struct node *n)
{
    (void)g, (void)n;
    return 0;
}

int shape_nothing(struct graph *g, struct node *n)
{
    (void)g;
    n->out[0]->n_dims = 1;
    n->out[0]->dim[0] = DIM(0);
    n->out[0]->type = DTYPE_I32;
    return 0;
}

/* The output is as the first input; another input of the same rank of dims must have the same columns. */
int shape_same(struct graph *g, struct node *n)
{
    (void)g;
    copy_dims(n->out[0], n->in[0]);
    bool vector = n->op == OP_rms_norm || n->op == OP_add_bias;
    if ((n->op == OP_add || n->op == OP_swiglu || n->op == OP_geglu) && !dims_equal(n->in[0], n->in[1]))
        return wrong("operands", n->in[0], n->in[1]);
    if (vector && tensor_columns(n->in[0]) != n->in[1]->dim[1].add)
        return wrong("weight", n->in[1], n->in[0]);
    return 0;
}

int shape_head_norm(struct graph *g, struct node *n)
{
    (void)g;
    copy_dims(n->out[0], n->in[0]);
    if (n->in[1]->dim[1].add != n->attr.head_dim || tensor_columns(n->in[0]) % n->attr.head_dim)
        return wrong("weight", n->in[1], n->in[0]);
    return 0;
}

int shape_embed(struct graph *g, struct node *n)
{
    (void)g;
    set_rows(n->out[0], n->in[0], n->in[1]->dim[1]);
    return 0;
}

int shape_rows(struct graph *g, struct node *n)
{
    (void)g;
    set_rows(n->out[0], n->in[1], n->in[0]->dim[1]);
    n->out[0]->type = n->in[0]->type;
    return 0;
}

/* ---- experts ---- */
int shape_route(struct graph *g, struct node *n)
{
    (void)g;
    set_rows(n->out[0], n->in[0], DIM(n->attr.n_used));
    set_rows(n->out[1], n->in[0], DIM(n->attr.n_used));
    n->out[0]->type = DTYPE_I32;
    if (!n->attr.n_used || n->attr.n_used > tensor_columns(n->in[0]))
        return wrong("no such number of experts is chosen", n->in[0], n->in[0]);
    return 0;
}

/* Experts of rows: numbers, in columns. */
static bool are_ids(const struct tensor *t)
{
    return t->type == DTYPE_I32 && t->n_dims == 2;
}

/* Which row of x each of the experts' rows is; where each row of x went; where each expert's rows begin. */
int shape_sort(struct graph *g, struct node *n)
{
    const struct tensor *ids = n->in[0];
    (void)g;
    if (!are_ids(ids))
        return wrong("experts of rows", ids, ids);
    n->out[0]->n_dims = n->out[2]->n_dims = 1;
    n->out[0]->dim[0] = (struct dim){ .mul = 1, .symbol = SYMBOL_P };
    copy_dims(n->out[1], ids);
    n->out[2]->dim[0] = DIM(n->attr.experts.end - n->attr.experts.begin + 1);
    for (uint32_t i = 0; i < 3; i++)
        n->out[i]->type = DTYPE_I32;
    return 0;
}

int shape_expert_matmul(struct graph *g, struct node *n)
{
    (void)g;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct tensor *x = n->in[0], *begin = n->in[1], *w = n->in[2 + i];
        if (w->n_dims != 3 || tensor_columns(x) != w->dim[2].add)
            return wrong("input columns", w, x);
        if (begin->type != DTYPE_I32 || begin->n_dims != 1 || begin->dim[0].add != w->dim[0].add + 1)
            return wrong("experts", w, begin);
        set_rows(n->out[i], x, w->dim[1]);
        n->out[i]->name = w->name;
    }
    return 0;
}

/* y, where each choice went, ids and weights. */
int shape_expert_sum(struct graph *g, struct node *n)
{
    const struct tensor *y = n->in[0], *row_to = n->in[1];
    (void)g;
    if (!are_ids(row_to) || !are_ids(n->in[2]) || !dims_equal(row_to, n->in[2]) || !dims_equal(row_to, n->in[3]))
        return wrong("choices", row_to, n->in[3]);
    if (y->n_dims != 2 || y->dim[0].symbol != SYMBOL_P)
        return wrong("rows of experts", y, row_to);
    set_rows(n->out[0], n->in[1], n->in[0]->dim[1]);
    return 0;
}

/* The rows that came (without other ranks: all of this one's), their experts and weights, and a book of what went where: the
 * number of rows for each rank, of rows from each, then the rows for each. */
int shape_dispatch(struct graph *g, struct node *n)
{
    (void)g;
    if (!are_ids(n->in[1]) || !dims_equal(n->in[1], n->in[2]))
        return wrong("choices", n->in[1], n->in[2]);
    for (uint32_t i = 0; i < 3; i++) {
        set_rows(n->out[i], n->in[i], n->in[i]->dim[1]);
        if (n->attr.n_ranks)
            n->out[i]->dim[0] = (struct dim){ .mul = 1, .symbol = SYMBOL_U };
        n->out[i]->type = n->in[i]->type;
    }
    n->out[3]->n_dims = 1;
    n->out[3]->dim[0] = n->in[0]->dim[0];
    n->out[3]->dim[0].mul *= n->attr.n_ranks;
    n->out[3]->dim[0].add += 2 * n->attr.n_ranks;
    n->out[3]->type = DTYPE_I32;
    return 0;
}

int shape_combine(struct graph *g, struct node *n)
{
    (void)g;
    set_rows(n->out[0], n->in[2], n->in[0]->dim[1]);
    return 0;
}

int shape_quantize(struct graph *g, struct node *n)
{
    (void)g;
    copy_dims(n->out[0], n->in[0]);
    n->out[0]->type = DTYPE_ACT8;
    if (tensor_columns(n->in[0]) % dtype_info[DTYPE_ACT8].block)
        return wrong("columns are no multiple of 32", n->in[0], n->in[0]);
    return 0;
}

int shape_rope_angles(struct graph *g, struct node *n)
{
    (void)g;
    set_rows(n->out[0], n->in[0], DIM(n->attr.n_rotated));
    return 0;
}

int shape_kv_store(struct graph *g, struct node *n)
{
    if (!dims_equal(n->in[0], n->in[1]))
        return wrong("k and v", n->in[0], n->in[1]);
    return shape_nothing(g, n);
}

int shape_matmul(struct graph *g, struct node *n)
{
    (void)g;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct tensor *x = n->in[0], *w = n->in[1 + i];
        if (tensor_columns(x) != w->dim[1].add)
            return wrong("input columns", w, x);
        set_rows(n->out[i], x, w->dim[0]);
        n->out[i]->name = w->name;
    }
    return 0;
}

int shape_all_reduce(struct graph *g, struct node *n)
{
    (void)g;
    copy_dims(n->out[0], n->in[0]);
    n->out[0]->name = n->in[0]->name;
    return 0;
}

int shape_all_gather(struct graph *g, struct node *n)
{
    (void)g;
    copy_dims(n->out[0], n->in[0]);
    n->out[0]->name = n->in[0]->name;
    n->out[0]->type = n->in[0]->type;
    return 0;
}

int shape_gather_weight(struct graph *g, struct node *n)
{
    int err = shape_all_gather(g, n);
    n->out[0]->is_packed = true;
    return err;
}

/* ---- costs of one row ---- */
void cost_none(const struct node *n, double *flops, double *weight_bytes)
{
    (void)n;
    *flops = *weight_bytes = 0;
}

void cost_copy(const struct node *n, double *flops, double *weight_bytes)
{
    cost_none(n, flops, weight_bytes);
}

void cost_row(const struct node *n, double *flops, double *weight_bytes)
{
    *flops = 4.0 * (double)tensor_columns(n->in[0]);
    *weight_bytes = 0;
}

void cost_matmul(const struct node *n, double *flops, double *weight_bytes)
{
    *flops = *weight_bytes = 0;
    for (uint32_t i = node_first_weight(n); i < n->n_in; i++) {
        const struct tensor *w = n->in[i];
        double elements = (double)w->dim[w->n_dims - 2].add * (double)w->dim[w->n_dims - 1].add;
        *flops += 2 * elements;
        *weight_bytes += elements / dtype_info[w->type].block * dtype_info[w->type].bytes;
    }
}

/* A row is one token at one of its experts. */
void cost_expert_matmul(const struct node *n, double *flops, double *weight_bytes)
{
    cost_matmul(n, flops, weight_bytes);
}

void cost_chain(const struct node *n, double *flops, double *weight_bytes)
{
    *flops = *weight_bytes = 0;
    for (uint32_t i = 0; i < n->n_steps; i++) {
        double f, b;
        op_info[n->step[i]->op].cost(n->step[i], &f, &b);
        *flops += f;
        *weight_bytes += b;
    }
}
