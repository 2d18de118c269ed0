/* result_merge.c: the leader's part of results: what the ranks of the last stage have sent (result.c), merged and handed to the sequences.
 *
 * Slices join in the order of ranks, which is the order of ids. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <string.h>

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
    for (uint32_t i = 0; i < e->mesh.size[AXIS_TP]; i++) {
        struct range ids = engine_vocab(e, i);
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
        sample_find_cut(&row, NULL, e->bins, e->scratch);
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
