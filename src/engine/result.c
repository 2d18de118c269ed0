/* result.c: what the last stage finds, on its way to the leader.
 *
 * For each wanted row, in order: the slice of logits, when whole rows are wanted; else a candidate_row and its candidates.
 * Slices join in the order of ranks, which is the order of ids. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"

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

/* The rows' maxima over the whole vocabulary, where a row's candidates depend on it. */
static int find_maxima(struct engine *e, const struct plan *plan)
{
    bool needed = false;
    uint32_t n = n_pickable(e);
    for (uint32_t i = 0; i < plan->header.n_rows; i++) {
        bool needs = sample_needs_max(&plan->row[i].params);
        e->row_max[i] = needs && n ? e->kernels->row_max(slice_row(e, i), n) : -INFINITY;
        needed |= needs;
    }
    return needed && e->axis[AXIS_TP] ? comm_all_max(e->axis[AXIS_TP], e->row_max, plan->header.n_rows) : 0;
}

int result_collect(struct engine *e, const struct plan *plan, struct buffer *out)
{
    uint32_t n_rows = plan->header.n_rows;
    if (plan->header.flags & PLAN_FULL_LOGITS) {
        buffer_add(out, e->logits, (size_t)n_rows * e->n_slice * sizeof(float));
    } else {
        int err = find_maxima(e, plan);
        if (err < 0)
            return err;
        for (uint32_t i = 0; i < n_rows; i++)
            sample_collect(out, slice_row(e, i), n_pickable(e), (int32_t)e->vocab.begin, e->row_max[i], plan->row[i].position,
                           e->model.n_ids, &plan->row[i].params);
    }
    return out->failed ? error_set(ERR_NO_MEMORY, "no memory for candidates") : 0;
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

static int room_for_candidates(struct engine *e, size_t n)
{
    if (n <= e->candidates_room)
        return 0;
    struct candidate *more = realloc(e->candidates, 2 * n * sizeof *more);
    if (!more)
        return error_set(ERR_NO_MEMORY, "no memory for candidates");
    e->candidates = more;
    e->candidates_room = 2 * n;
    return 0;
}

/* Row after row; taken[] remembers where the next row of each rank starts. */
static int pick_token(struct engine *e, const struct sample_params *params, int32_t *id)
{
    size_t n = 0;
    uint64_t mass = 0;
    bool is_broken = false;
    for (uint32_t i = 0; i < e->mesh.size[AXIS_TP]; i++) {
        struct candidate_row row;
        if (e->incoming[i].size - e->taken[i] < sizeof row)
            return error_set(ERR_PEER, "a result is too short");
        memcpy(&row, e->incoming[i].bytes + e->taken[i], sizeof row);
        size_t n_bytes = row.n_candidates * sizeof(struct candidate);
        if (e->incoming[i].size - e->taken[i] - sizeof row < n_bytes)
            return error_set(ERR_PEER, "a result is too short");
        int err = room_for_candidates(e, n + row.n_candidates);
        if (err < 0)
            return err;
        if (n_bytes)
            memcpy(e->candidates + n, e->incoming[i].bytes + e->taken[i] + sizeof row, n_bytes);
        e->taken[i] += sizeof row + n_bytes;
        n += row.n_candidates;
        mass += row.mass;
        is_broken |= row.is_broken;
    }
    return sample_pick(id, e->candidates, is_broken ? 0 : n, mass, params);
}

static int take_candidates(struct engine *e, struct group_plan *p)
{
    int err = 0;
    memset(e->taken, 0, e->mesh.size[AXIS_TP] * sizeof *e->taken);
    for (uint32_t r = 0; !err && r < p->plan->header.n_rows; r++) {
        struct token_event event = { 0 };
        if ((err = pick_token(e, &p->plan->row[r].params, &event.id)) == 0)
            sequence_take_token(p->row_sequence[r], &event);
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

static int take_rows(struct engine *e, struct group_plan *p)
{
    int err = 0;
    for (uint32_t r = 0; !err && r < p->plan->header.n_rows; r++) {
        struct sequence *s = p->row_sequence[r];
        const struct plan_row *row = &p->plan->row[r];
        if ((err = join_row(e, r)) < 0)
            break;
        float max = e->kernels->row_max(e->full_row, e->model.n_vocab);
        if (!sample_can_pick(max))
            return error_set(ERR_FAILED, "a logit after position %u is not a number, or infinite", row->position - 1);
        sequence_take_row(s, row->position - 1, e->full_row, e->model.n_vocab);
        if (!sequence_wants_token(s, row->position))
            continue;
        struct buffer *one = &e->result;
        one->size = 0;
        max = e->kernels->row_max(e->full_row, e->model.n_ids);
        sample_collect(one, e->full_row, e->model.n_ids, 0, max, row->position, e->model.n_ids, &row->params);
        if (one->failed)
            return error_set(ERR_NO_MEMORY, "no memory for candidates");
        struct candidate_row found;
        struct token_event event = { 0 };
        memcpy(&found, one->bytes, sizeof found);
        if ((err = sample_pick(&event.id, (struct candidate *)(void *)(one->bytes + sizeof found), found.n_candidates, found.mass, &row->params)) == 0)
            sequence_take_token(s, &event);
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
