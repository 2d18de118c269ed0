/* experts.c: a mixture of experts on one rank: rows sorted by expert, each expert's matrices, the weighted sum. */
#include "run/instr.h"

#include "base/base.h"

#include <string.h>

/* in: ids [T][k].  out: of each expert's row which row of T it is; of each (row of T, choice) which expert's row it became, -1 where
 * the expert is not here; where each expert's rows begin.  Rows that do not exist name row 0. */
void program_sort_by_expert(struct program *p, struct instr *in)
{
    struct range here = in->attr->experts, rows = program_rows(p, in);
    uint32_t k = in->in[0].n_columns, n_experts = here.end - here.begin, n_ids = rows.end * k;
    const int32_t *ids = (const int32_t *)in->in[0].base;
    int32_t *row_from = (int32_t *)in->out[0].base, *row_to = (int32_t *)in->out[1].base;
    uint32_t *begin = (uint32_t *)in->out[2].base;
    memset(begin, 0, (n_experts + 1) * sizeof *begin);
    for (uint32_t i = 0; i < n_ids; i++)
        if ((uint32_t)ids[i] - here.begin < n_experts)
            begin[(uint32_t)ids[i] - here.begin + 1]++;
    p->n_active = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        if (begin[e + 1])
            p->active[p->n_active++] = e;
        begin[e + 1] += begin[e];
    }
    p->n_pairs = begin[n_experts];
    for (uint32_t i = 0; i < n_ids; i++) {
        uint32_t e = (uint32_t)ids[i] - here.begin;
        row_to[i] = -1;
        if (e < n_experts) {
            row_to[i] = (int32_t)begin[e];
            row_from[begin[e]++] = (int32_t)(i / k);
        }
    }
    memmove(begin + 1, begin, n_experts * sizeof *begin);       /* each has become the end of its expert */
    begin[0] = 0;
    in->n_pairs = p->n_pairs;
    in->n_active = p->n_active;
    memset(row_from + p->n_pairs, 0, (program_max_rows(p, in) * k - p->n_pairs) * sizeof *row_from);
}

bool program_expert(const struct program *p, const struct instr *in, uint32_t i, uint32_t *expert, struct range *rows)
{
    const uint32_t *begin = (const uint32_t *)in->in[1].base;
    if (i >= p->n_active)
        return false;
    *expert = p->active[i];
    *rows = (struct range){ begin[*expert], begin[*expert + 1] };
    return true;
}

/* The work is (an expert that has rows) x (some of its panels). */
void program_expert_matmul(struct program *p, struct instr *in, uint32_t chunk)
{
    struct range rows, panels = cuts_at(&in->cuts, chunk % in->cuts.n);
    uint32_t expert;
    if (program_expert(p, in, chunk / in->cuts.n, &expert, &rows))
        program_matmul(p, in, &in->in[0], rows.begin, rows.end - rows.begin, expert, panels.begin, panels.end);
}

#define BLOCK 256               /* floats of a row that are summed at a time, so that the stack stays in L1 */
#define MAX_CHOICES 64

struct choice {
    int32_t expert;
    float weight;
    const float *y;
};

/* The choices of a row that are computed here, in ascending order of expert. */
static uint32_t find_choices(struct choice *list, const struct instr *in, uint32_t row)
{
    uint32_t k = in->in[1].n_columns, n = 0;
    const int32_t *row_to = operand_row(&in->in[1], row, 0), *ids = operand_row(&in->in[2], row, 0);
    const float *weights = operand_row(&in->in[3], row, 0);
    for (uint32_t i = 0; i < k; i++) {
        if (row_to[i] < 0)
            continue;
        uint32_t at = n++;
        for (; at && list[at - 1].expert > ids[i]; at--)
            list[at] = list[at - 1];
        list[at] = (struct choice){ ids[i], weights[i], operand_row(&in->in[0], (uint32_t)row_to[i], 0) };
    }
    return n;
}

/* A group's sum: each output times its weight, rounded, then added. */
static void sum_group(float *sum, const struct choice *choice, uint32_t n, size_t begin, size_t n_floats)
{
    for (size_t i = 0; i < n_floats; i++)
        sum[i] = choice[0].weight * choice[0].y[begin + i];
    for (uint32_t c = 1; c < n; c++)
        for (size_t i = 0; i < n_floats; i++) {
            float product = choice[c].weight * choice[c].y[begin + i];
            sum[i] += product;
        }
}

/* Of the two topmost entries, `below` becomes the sum; an absent one takes no part. */
static bool merge(float *below, bool has_below, const float *top, bool has_top, size_t n_floats)
{
    if (has_below && has_top)
        for (size_t i = 0; i < n_floats; i++)
            below[i] += top[i];
    else if (has_top)
        memcpy(below, top, n_floats * sizeof *below);
    return has_below || has_top;
}

static void sum_block(float *y, size_t part_stride, const struct tree *tree, const struct choice *choice, uint32_t n_choices, size_t begin,
                      size_t n_floats)
{
    float stack[MAX_GROUPS][BLOCK];
    bool is_there[MAX_GROUPS];
    uint32_t depth = 0, c = 0;
    for (uint32_t leaf = 0; leaf < tree->n_leaves; leaf++) {
        uint32_t first = c;
        while (c < n_choices && (uint32_t)choice[c].expert < tree->leaf[leaf].end)
            c++;
        is_there[depth] = c > first;
        if (c > first)
            sum_group(stack[depth], choice + first, c - first, begin, n_floats);
        depth++;
        for (uint32_t m = 0; m < tree->n_merges[leaf]; m++, depth--)
            is_there[depth - 2] = merge(stack[depth - 2], is_there[depth - 2], stack[depth - 1], is_there[depth - 1], n_floats);
    }
    /* -0 is what changes no number that it is added to */
    for (uint32_t part = 0; part < tree->n_parts; part++)
        for (size_t i = 0; i < n_floats; i++)
            y[part * part_stride + begin + i] = is_there[part] ? stack[part][i] : -0.0f;
}

/* in: the experts' rows y, where each choice went, ids, weights.  A part that has none of the row's experts is all -0. */
void program_expert_sum(struct program *p, struct instr *in, uint32_t row, int thread)
{
    struct choice choice[MAX_CHOICES];
    size_t n = in->out[0].n_columns, part_stride = program_rows(p, in).end * n;
    uint32_t n_choices = find_choices(choice, in, row);
    for (size_t begin = 0; begin < n; begin += BLOCK)
        sum_block((float *)operand_row(&in->out[0], row, thread), part_stride, &in->attr->tree, choice, n_choices, begin,
                  MIN(n - begin, (size_t)BLOCK));
}
