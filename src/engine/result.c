/* result.c: what the last stage finds, on its way to the leader.
 *
 * For each wanted row, in order: the slice of logits, when whole rows are wanted; else a candidate_row and its candidates.
 * Slices join in the order of ranks, which is the order of ids. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
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

/* ---- a rank of the last stage ---- */
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

/* ---- leader ---- */
static int receive_results(struct engine *e, struct flight *f, uint32_t group)
{
    for (uint32_t i = 0; i < e->mesh.size[AXIS_TP]; i++) {
        uint32_t rank = engine_last_stage_rank(e, group, i);
        struct buffer *in = &e->incoming[i];
        size_t n_bytes;
        int err;
        in->size = 0;
        if (rank == e->rank) {
            buffer_add(in, f->own_result.bytes, f->own_result.size);
        } else {
            if ((err = comm_probe(e->control, (int)rank, TAG_RESULT, false, -1, &n_bytes, NULL)) < 0)
                return err;
            buffer_reserve(in, n_bytes);
            if (!in->failed && (err = comm_receive(e->control, in->bytes, n_bytes, (int)rank, TAG_RESULT)) < 0)
                return err;
            in->size = n_bytes;
        }
        if (in->failed)
            return error_set(ERR_NO_MEMORY, "no memory for a result");
    }
    return 0;
}

static void add_up(struct candidate_row *all, const struct candidate_row *row)
{
    all->n_candidates += row->n_candidates;
    all->n_top += row->n_top;
    all->is_broken |= row->is_broken;
    all->is_cut |= row->is_cut;
    all->mass += row->mass;
    all->raw_mass += row->raw_mass;
    all->raw_max = row->raw_max;
}

/* A rank's next row, added to what others have found; *taken moves on. */
static int take_found(struct engine *e, const struct buffer *from, size_t *taken, struct candidate_row *all)
{
    struct candidate_row row;
    if (from->size - *taken < sizeof row)
        return error_set(ERR_PEER, "a result is too short");
    memcpy(&row, from->bytes + *taken, sizeof row);
    size_t n = row.n_candidates, n_bytes = (n + row.n_top) * sizeof(struct candidate);
    if (from->size - *taken - sizeof row < n_bytes || n > SAMPLE_MAX_LIST || row.n_top > SAMPLE_MAX_TOP)
        return error_set(ERR_PEER, "a result has more candidates than it can");
    const char *at = from->bytes + *taken + sizeof row;
    if (n)
        memcpy(e->candidates + all->n_candidates, at, n * sizeof(struct candidate));
    if (row.n_top)
        memcpy(e->largest + all->n_top, at + n * sizeof(struct candidate), row.n_top * sizeof(struct candidate));
    *taken += sizeof row + n_bytes;
    add_up(all, &row);
    return 0;
}

/* Picks from e->candidates and hands the token over.  A row of which none can be picked ends its own sequence. */
static void pick_token(struct engine *e, struct sequence *s, const struct plan_row *wanted, const struct candidate_row *all)
{
    struct token_logprob top[SAMPLE_MAX_TOP];
    struct candidate picked;
    struct token_event event = { .top = top };
    if (sample_pick(&picked, e->candidates, all->n_candidates, all, &wanted->params) < 0) {
        sequence_fail(s);
        return;
    }
    event.id = picked.id;
    if (wanted->wants_logprobs) {
        event.logprob = sample_logprob(picked.raw, all);
        event.n_top = (uint32_t)sample_largest(e->largest, all->n_top, wanted->n_top);
    }
    for (uint32_t i = 0; i < event.n_top; i++)
        top[i] = (struct token_logprob){ e->largest[i].id, sample_logprob(e->largest[i].raw, all) };
    sequence_take_token(s, &event);
}

/* Row after row; taken[] remembers where the next row of each rank starts. */
static int take_candidates(struct engine *e, struct group_plan *p)
{
    int err = 0;
    memset(e->taken, 0, e->mesh.size[AXIS_TP] * sizeof *e->taken);
    for (uint32_t r = 0; !err && r < p->plan->header.n_rows; r++) {
        struct candidate_row all = { 0 };
        for (uint32_t i = 0; !err && i < e->mesh.size[AXIS_TP]; i++)
            err = take_found(e, &e->incoming[i], &e->taken[i], &all);
        if (!err && sequence_wants_token(p->row_sequence[r], p->plan->row[r].position))
            pick_token(e, p->row_sequence[r], &p->plan->row[r], &all);
    }
    return err;
}

/* One row of whole logits, joined from the slices. */
static int join_row(struct engine *e, uint32_t row)
{
    struct label_info labels[N_LABELS] = { [LABEL_VOCAB] = { .n_elements = e->model.n_vocab, .width = 1, .unit = 16 } };
    for (uint32_t i = 0; i < e->mesh.size[AXIS_TP]; i++) {
        struct range ids = label_range(labels, LABEL_VOCAB, e->mesh.n_shares ? e->mesh.share : NULL, e->mesh.size[AXIS_TP], i);
        size_t n_bytes = (ids.end - ids.begin) * sizeof(float);
        if (e->incoming[i].size < (row + 1) * n_bytes)
            return error_set(ERR_PEER, "a result is too short");
        if (n_bytes)
            memcpy(e->full_row + ids.begin, e->incoming[i].bytes + row * n_bytes, n_bytes);
    }
    return 0;
}

/* The leader is the only rank of a row that it has whole. */
static int pick_from_row(struct engine *e, struct sequence *s, const struct plan_row *wanted)
{
    uint32_t n = e->model.n_ids;
    float max = e->kernels->row_max(e->full_row, n);
    struct sample_row row = {
        .kernels = e->kernels, .raw = e->full_row, .logits = e->full_row, .n = n, .n_vocab = n, .position = wanted->position,
        .raw_max = max, .max = max, .wants_logprobs = wanted->wants_logprobs, .n_top = wanted->n_top, .params = &wanted->params,
    };
    if (edit_table_room(&s->edits)) {
        e->late.size = 0;
        buffer_reserve(&e->late, edit_table_room(&s->edits) * sizeof(struct row_edit));
        if (e->late.failed)
            return error_set(ERR_NO_MEMORY, "no memory for penalties");
        struct row_edit *edits = (struct row_edit *)(void *)e->late.bytes;
        memcpy(e->edited, e->full_row, n * sizeof *e->edited);
        edits_apply(e->edited, n, 0, edits, edit_table_list(&s->edits, sequence_bans_stop_ids(s), edits));
        row.logits = e->edited;
        row.max = e->kernels->row_max(e->edited, n);
    }
    if (sample_n_listed(&row) > SAMPLE_MAX_LIST && sample_can_pick(row.max))
        sample_find_cut(&row, NULL, e->bins, scratch_of(e, 0));
    struct candidate_row all = { 0 };
    size_t taken = 0;
    e->result.size = 0;
    sample_collect(&e->result, &row);
    if (e->result.failed)
        return error_set(ERR_NO_MEMORY, "no memory for candidates");
    int err = take_found(e, &e->result, &taken, &all);
    if (!err)
        pick_token(e, s, wanted, &all);
    return err;
}

static int take_rows(struct engine *e, struct group_plan *p)
{
    int err = 0;
    for (uint32_t r = 0; !err && r < p->plan->header.n_rows; r++) {
        struct sequence *s = p->row_sequence[r];
        const struct plan_row *row = &p->plan->row[r];
        if ((err = join_row(e, r)) < 0)
            break;
        if (!s)
            continue;
        if (!sample_can_pick(e->kernels->row_max(e->full_row, e->model.n_vocab))) {
            error_set(ERR_FAILED, "a logit after position %u is not a number, or infinite", row->position - 1);
            sequence_fail(s);
        }
        if (sequence_error(s))
            continue;
        sequence_take_row(s, row->position - 1, e->full_row, e->model.n_vocab);
        if (sequence_wants_token(s, row->position))
            err = pick_from_row(e, s, row);
    }
    return err;
}

int result_apply(struct engine *e, struct flight *f)
{
    int err = 0;
    for (uint32_t g = 0; !err && g < e->n_groups; g++) {
        struct group_plan *p = &f->group[g];
        if ((err = receive_results(e, f, g)) == 0)
            err = p->plan->header.flags & PLAN_FULL_LOGITS ? take_rows(e, p) : take_candidates(e, p);
    }
    return err;
}
