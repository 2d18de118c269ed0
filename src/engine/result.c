/* result.c: what a rank of the last stage finds, for the leader; result_merge.c takes it.
 *
 * For each wanted row, in order: the slice of logits, when whole rows are wanted; else a candidate_row and its candidates. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

static const float *slice_row(const struct engine *e, uint32_t row)
{
    return e->logits + (size_t)row * e->n_slice;
}

/* How many of the slice's ids the tokenizer has; only these can be picked. */
static uint32_t n_pickable(const struct engine *e)
{
    uint32_t n_before = MIN(e->vocab.begin, e->model.n_ids);
    return MIN(e->n_slice, e->model.n_ids - n_before);
}

/* ---- late input ---- */
/* The late input comes while this rank computes, or after. */
static int receive_late(struct engine *e, const struct plan *plan)
{
    size_t n_bytes;
    int err = comm_probe(e->control, 0, TAG_LATE, false, -1, &n_bytes, NULL);
    if (err < 0)
        return err;
    if (n_bytes > plan->header.late_room)
        return error_set(ERR_PEER, "a late input of %zu bytes is too long", n_bytes);
    e->late.size = 0;
    buffer_reserve(&e->late, plan->header.late_room);
    if (e->late.failed)
        return error_set(ERR_NO_MEMORY, "no memory for the late input of a plan");
    e->late.size = n_bytes;
    return comm_receive(e->control, e->late.bytes, n_bytes, 0, TAG_LATE);
}

static int take_late(struct engine *e, const struct plan *plan, const struct buffer *late)
{
    memset(e->late_row, 0, plan->header.n_rows * sizeof *e->late_row);
    if (!plan->header.late_room)
        return 0;
    int err = late ? 0 : receive_late(e, plan);
    late = late ? late : &e->late;
    return err < 0 ? err : late_read(e->late_row, plan->header.n_rows, late->bytes, late->size, plan->header.number);
}

static float *scratch_of(const struct engine *e, int thread)
{
    return e->scratch + (size_t)thread * e->model.n_vocab;
}

/* ---- rows: none depends on another, so that threads take one each ---- */
struct row_work {
    struct engine *e;
    const struct plan *plan;
};

static void for_rows(struct row_work *w, program_item_fn *fn)
{
    uint32_t n = w->plan->header.n_rows;
    if (n > 1 && pool_n_threads(w->e->pool) > 1)
        program_run_items(w->e->program, fn, w, n);
    else
        for (uint32_t i = 0; i < n; i++)
            fn(w, i, 0);
}

/* The row as this rank has it; its edited logits are in a buffer that the thread's next row takes.  The maxima are yet to be found. */
static struct sample_row own_row(const struct row_work *w, uint32_t i, int thread)
{
    const struct engine *e = w->e;
    const struct plan_row *wanted = &w->plan->row[i];
    const struct late_row *late = &e->late_row[i];
    struct sample_row row = {
        .kernels = e->kernels, .raw = slice_row(e, i), .logits = slice_row(e, i), .n = n_pickable(e), .first_id = (int32_t)e->vocab.begin,
        .n_vocab = e->model.n_ids, .position = wanted->position, .raw_max = -INFINITY, .max = -INFINITY,
        .wants_logprobs = wanted->wants_logprobs, .n_top = wanted->n_top, .params = &wanted->params,
    };
    if (late->n_edits && row.n) {
        float *edited = e->edited + (size_t)thread * e->model.n_vocab;
        memcpy(edited, row.raw, row.n * sizeof *edited);
        edits_apply(edited, row.n, row.first_id, late->edits, late->n_edits);
        row.logits = edited;
    }
    return row;
}

/* Of this slice, where candidates or logprobs depend on them. */
static void find_maxima(struct sample_row *row)
{
    if (row->wants_logprobs && row->n)
        row->raw_max = row->kernels->row_max(row->raw, row->n);
    if (sample_needs_max(row->params) && row->n)
        row->max = row->kernels->row_max(row->logits, row->n);
}

/* A row without a maximum is broken on all ranks. */
static bool wants_cut(const struct sample_row *row, float n_listed)
{
    return n_listed > SAMPLE_MAX_LIST && (!sample_needs_max(row->params) || sample_can_pick(row->max));
}

static void collect(const struct row_work *w, uint32_t i, const struct sample_row *row)
{
    w->e->found[i].size = 0;
    sample_collect(&w->e->found[i], row);
}

/* Where the slice is the whole row. */
static void collect_alone(void *user, uint32_t i, int thread)
{
    const struct row_work *w = user;
    struct sample_row row = own_row(w, i, thread);
    find_maxima(&row);
    if (wants_cut(&row, (float)sample_n_listed(&row)))
        sample_find_cut(&row, NULL, w->e->bins + (size_t)thread * SAMPLE_BINS, scratch_of(w->e, thread));
    collect(w, i, &row);
}

/* ---- and with slices on other ranks: what is done of all rows before the ranks speak ---- */
static void find_own_maxima(void *user, uint32_t i, int thread)
{
    const struct row_work *w = user;
    struct sample_row row = own_row(w, i, thread);
    find_maxima(&row);
    w->e->row_max[i] = row.max;
    w->e->raw_max[i] = row.raw_max;
}

/* With the maxima of all slices. */
static struct sample_row joined_row(const struct row_work *w, uint32_t i, int thread)
{
    struct sample_row row = own_row(w, i, thread);
    row.max = w->e->row_max[i];
    row.raw_max = w->e->raw_max[i];
    return row;
}

static void find_own_length(void *user, uint32_t i, int thread)
{
    const struct row_work *w = user;
    struct sample_row row = joined_row(w, i, thread);
    w->e->n_listed[i] = (float)sample_n_listed(&row);
}

static void collect_joined(void *user, uint32_t i, int thread)
{
    const struct row_work *w = user;
    struct sample_row row = joined_row(w, i, thread);
    row.is_cut = wants_cut(&row, w->e->n_listed[i]);
    row.cut = w->e->cut[i];
    collect(w, i, &row);
}

static int find_cuts(struct row_work *w, struct comm *tp)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < w->plan->header.n_rows; i++) {
        if (w->e->n_listed[i] <= SAMPLE_MAX_LIST)
            continue;
        struct sample_row row = joined_row(w, i, 0);
        if (!wants_cut(&row, w->e->n_listed[i]))
            continue;
        err = sample_find_cut(&row, tp, w->e->bins, scratch_of(w->e, 0));
        w->e->cut[i] = row.cut;
    }
    return err;
}

/* Maxima and lengths go round only where some row depends on them. */
static int collect_with_others(struct row_work *w, struct comm *tp)
{
    struct engine *e = w->e;
    uint32_t n_rows = w->plan->header.n_rows;
    bool need_max = false, need_raw = false, need_length = false;
    int err = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct sample_params *params = &w->plan->row[i].params;
        need_max |= sample_needs_max(params);
        need_raw |= w->plan->row[i].wants_logprobs;
        need_length |= params->temperature > 0 && params->top_p < 1 && !params->top_k;
    }
    for_rows(w, find_own_maxima);
    if (need_max)
        err = comm_all_max(tp, e->row_max, n_rows);
    if (!err && need_raw)
        err = comm_all_max(tp, e->raw_max, n_rows);
    if (err < 0)
        return err;
    for_rows(w, find_own_length);
    if (need_length)
        err = comm_all_max(tp, e->n_listed, n_rows);
    if (err < 0 || (err = find_cuts(w, tp)) < 0)
        return err;
    for_rows(w, collect_joined);
    return 0;
}

static int collect_rows(struct engine *e, const struct plan *plan, struct buffer *out)
{
    struct row_work w = { e, plan };
    int err = 0;
    if (e->axis[AXIS_TP])
        err = collect_with_others(&w, e->axis[AXIS_TP]);
    else
        for_rows(&w, collect_alone);
    for (uint32_t i = 0; !err && i < plan->header.n_rows; i++) {
        buffer_add(out, e->found[i].bytes, e->found[i].size);
        out->failed |= e->found[i].failed;
    }
    return err;
}

size_t result_max_row_bytes(void)
{
    return sizeof(struct candidate_row) + (SAMPLE_MAX_LIST + SAMPLE_MAX_TOP) * sizeof(struct candidate);
}

size_t result_max_bytes(const struct engine *e)
{
    size_t n_rows = e->options.full_logits ? 1 : e->limits.n_rows;
    return n_rows * result_max_row_bytes();
}

int result_collect(struct engine *e, const struct plan *plan, const struct buffer *late, struct buffer *out)
{
    int err = 0;
    if (plan->header.flags & PLAN_FULL_LOGITS)
        buffer_add(out, e->logits, (size_t)plan->header.n_rows * e->n_slice * sizeof(float));
    else if ((err = take_late(e, plan, late)) == 0)
        err = collect_rows(e, plan, out);
    return out->failed ? error_set(ERR_NO_MEMORY, "no memory for candidates") : err;
}
