/* chain.c: what nodes that join others are made of: their operands, and the strips of a matmul_chain. */
#include "graph/ops.h"

#include "base/base.h"

#include <string.h>

static bool is_in(struct tensor *const *list, uint32_t n, const struct tensor *t)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == t)
            return true;
    return false;
}

bool node_makes(const struct node *n, const struct tensor *t)
{
    for (uint32_t s = 0; s < n->n_steps; s++)
        if (is_in(n->step[s]->out, n->step[s]->n_out, t))
            return true;
    return false;
}

/* More uses in the graph than inside the chain. */
static bool used_outside(const struct node *chain, const uint32_t *uses, const struct tensor *t)
{
    uint32_t inside = 0;
    for (uint32_t s = 0; s < chain->n_steps; s++)
        for (uint32_t i = 0; i < chain->step[s]->n_in; i++)
            inside += chain->step[s]->in[i] == t;
    return uses[t->id] > inside;
}

bool chain_operands(struct node *chain, const uint32_t *uses)
{
    chain->n_in = chain->n_out = 0;
    for (uint32_t s = 0; s < chain->n_steps; s++) {
        const struct node *step = chain->step[s];
        for (uint32_t i = 0; i < step->n_in; i++) {
            if (node_makes(chain, step->in[i]) || is_in(chain->in, chain->n_in, step->in[i]))
                continue;
            if (chain->n_in == NODE_MAX_INPUTS)
                return false;
            chain->in[chain->n_in++] = step->in[i];
        }
        for (uint32_t i = 0; i < step->n_out; i++) {
            if (!used_outside(chain, uses, step->out[i]))
                continue;
            if (chain->n_out == NODE_MAX_OUTPUTS)
                return false;
            chain->out[chain->n_out++] = step->out[i];
        }
    }
    return chain->n_out > 0;
}

const struct tensor *node_rows(const struct node *n)
{
    return n->op == OP_kv_store ? n->in[0] : n->out[0];
}

bool nodes_share_rows(const struct node *a, const struct node *b)
{
    const struct tensor *x = node_rows(a), *y = node_rows(b);
    return x->dim[0].symbol == y->dim[0].symbol && x->dim[0].mul == y->dim[0].mul && tensor_rows_are_split(x) == tensor_rows_are_split(y);
}

/* ---- strips ---- */
/* Columns that a row operator needs together; 0: all of them. */
static uint32_t unit_of(const struct node *n)
{
    switch (op_info[n->op].columns) {
    case COLUMNS_ANY:   return 1;
    case COLUMNS_BLOCK: return dtype_info[DTYPE_ACT8].block;
    case COLUMNS_HEAD:  return n->attr.head_dim;
    default:            return 0;
    }
}

static uint32_t common_multiple(uint32_t a, uint32_t b)
{
    uint32_t x = a, y = b;
    while (y) {
        uint32_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

#define NO_STRIP NODE_MAX_OUTPUTS

/* The strip of a tensor that the product or a later step before `end` makes. */
static uint32_t strip_of(const struct strips *s, const struct node *chain, uint32_t end, const struct tensor *t)
{
    const struct node *product = chain->step[chain->product];
    for (uint32_t i = 0; i < product->n_out; i++)
        if (product->out[i] == t)
            return s->of_product[i];
    for (uint32_t k = chain->product + 1; k < end; k++)
        if (is_in(chain->step[k]->out, chain->step[k]->n_out, t))
            return s->of_step[k];
    return NO_STRIP;
}

/* Strip b goes into strip a; the last one takes its number. */
static void merge_strips(struct strips *s, uint32_t a, uint32_t b)
{
    uint32_t last = s->n - 1;
    s->strip[a].unit = common_multiple(s->strip[a].unit, s->strip[b].unit);
    s->strip[b] = s->strip[last];
    for (uint32_t i = 0; i < NODE_MAX_OUTPUTS; i++)
        s->of_product[i] = (uint8_t)(s->of_product[i] == b ? a : s->of_product[i] == last ? b : s->of_product[i]);
    for (uint32_t k = 0; k < NODE_MAX_STEPS; k++)
        s->of_step[k] = (uint8_t)(s->of_step[k] == b ? a : s->of_step[k] == last ? b : s->of_step[k]);
    s->n--;
}

/* A step ties the strips of its inputs together, and works on what they have become. */
static const char *add_step(struct strips *s, const struct node *chain, uint32_t k)
{
    const struct node *step = chain->step[k];
    struct node before = { .n_steps = chain->product };
    uint32_t mine = NO_STRIP, unit = unit_of(step);
    if (op_info[step->op].kind != KIND_ROWS || !unit)
        return "needs more than the columns of a chunk to make";
    if (!nodes_share_rows(step, chain->step[chain->product]))
        return "has other rows than the product:";
    memcpy(before.step, chain->step, sizeof before.step);
    for (uint32_t i = 0; i < step->n_in; i++) {
        if (node_makes(&before, step->in[i]))
            return "has an epilogue that takes of the prologue, in";
        uint32_t strip = strip_of(s, chain, k, step->in[i]);
        if (strip == NO_STRIP)
            continue;
        if (tensor_columns(step->in[i]) != tensor_columns(step->in[0]))
            return "reads other columns of the product than it makes, in";
        if (mine == NO_STRIP || mine == strip)
            mine = strip;
        else {
            uint32_t a = MIN(mine, strip), b = MAX(mine, strip);
            merge_strips(s, a, b);
            mine = a;
        }
    }
    if (mine == NO_STRIP)
        return "takes nothing of the product:";
    s->strip[mine].unit = common_multiple(s->strip[mine].unit, unit);
    s->of_step[k] = (uint8_t)mine;
    return NULL;
}

static bool is_partial(const struct tensor *t)
{
    for (int a = 0; a < N_AXES; a++)
        if (t->placement[a].kind == PLACE_PARTIAL)
            return true;
    return false;
}

/* Each thread may do it, for itself; it has room for one part of each output. */
static const char *check_prologue(const struct node *chain)
{
    const struct node *product = chain->step[chain->product];
    bool makes_input = !chain->product;
    for (uint32_t k = 0; k < chain->product; k++) {
        const struct node *step = chain->step[k];
        if (op_info[step->op].kind != KIND_ROWS || step->op == OP_kv_store || !nodes_share_rows(step, product))
            return "has a prologue that not every thread may do:";
        for (uint32_t i = 0; i < step->n_out; i++)
            if (is_partial(step->out[i]))
                return "has a prologue whose results are parts:";
        makes_input |= is_in(step->out, step->n_out, product->in[0]);
    }
    return makes_input ? NULL : "has a prologue that does not make the product's input:";
}

const char *chain_strips(struct strips *s, const struct node *chain)
{
    if (chain->product >= chain->n_steps || !node_multiplies(chain->step[chain->product]))
        return "has no product:";
    const struct node *product = chain->step[chain->product];
    const char *wrong = check_prologue(chain);
    bool has_epilogue = chain->n_steps > chain->product + 1;
    *s = (struct strips){ .n = product->n_out };
    for (uint32_t i = 0; !wrong && i < product->n_out; i++) {
        if (has_epilogue && is_partial(product->out[i]))
            wrong = "works on partial sums:";
        s->strip[i] = (struct strip){ .n_columns = tensor_columns(product->out[i]), .unit = WEIGHT_PANEL };
        s->of_product[i] = (uint8_t)i;
    }
    for (uint32_t k = chain->product + 1; !wrong && k < chain->n_steps; k++)
        wrong = add_step(s, chain, k);
    return wrong;
}
