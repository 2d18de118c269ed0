#include "engine/edits.h"

#include "base/base.h"
#include "base/error.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct touched {
    int32_t id;
    float add;
    uint32_t n_answer;          /* how often it is in the answer */
    bool is_seen;               /* in prompt or answer */
    bool is_stop;
};

static bool repeats(const struct sample_penalties *p)
{
    return p->repetition != 0 && p->repetition != 1;
}

static bool counts(const struct sample_penalties *p)
{
    return p->frequency != 0 || p->presence != 0;
}

/* ---- the table ---- */
static struct touched *touch(struct edit_table *t, int32_t id)
{
    uint32_t i = (uint32_t)random_mix((uint64_t)id) & (t->n_slots - 1);
    while (t->slot[i] && t->touched[t->slot[i] - 1].id != id)
        i = (i + 1) & (t->n_slots - 1);
    if (!t->slot[i]) {
        assert(t->n < t->room);
        t->touched[t->n] = (struct touched){ .id = id };
        t->slot[i] = ++t->n;
    }
    return &t->touched[t->slot[i] - 1];
}

int edits_check(const struct sequence_request *r, const struct model_info *model)
{
    uint32_t n_ids = model->n_ids;
    for (uint32_t i = 0; i < r->n_bias; i++) {
        if (r->bias[i].id < 0 || (uint32_t)r->bias[i].id >= n_ids)
            return error_set(ERR_USAGE, "a bias on token %d, which does not exist: there are %u", r->bias[i].id, n_ids);
        if (!(r->bias[i].add == -INFINITY || fabsf(r->bias[i].add) <= 1e6f))
            return error_set(ERR_USAGE, "a bias on token %d that is not a number, or too large", r->bias[i].id);
    }
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] < 0 || (uint32_t)r->stop_ids[i] >= n_ids)
            return error_set(ERR_USAGE, "stop token %d does not exist: there are %u", r->stop_ids[i], n_ids);
    return sample_check_penalties(&r->penalties);
}

static uint32_t room_for(const struct sequence_request *r, uint32_t n_vocab)
{
    uint64_t room = (uint64_t)r->n_bias + (r->min_new ? r->n_stop_ids : 0);
    if (repeats(&r->penalties))
        room += (uint64_t)r->n_tokens + r->n_new;
    else if (counts(&r->penalties))
        room += (uint64_t)r->n_generated + r->n_new;
    return (uint32_t)MIN(room, n_vocab);
}

static void fill(struct edit_table *t, const struct sequence_request *r)
{
    for (uint32_t i = 0; i < r->n_bias; i++)
        touch(t, r->bias[i].id)->add = r->bias[i].add;
    for (uint32_t i = 0; i < r->n_stop_ids && r->min_new; i++)
        touch(t, r->stop_ids[i])->is_stop = true;
    uint32_t n_prompt = r->n_tokens - r->n_generated;
    for (uint32_t i = 0; i < n_prompt && repeats(&r->penalties); i++)
        touch(t, r->tokens[i])->is_seen = true;
    for (uint32_t i = n_prompt; i < r->n_tokens; i++)
        edit_table_take(t, r->tokens[i]);
}

int edit_table_open(struct edit_table *t, const struct sequence_request *request, uint32_t n_vocab)
{
    *t = (struct edit_table){ .penalties = request->penalties, .room = room_for(request, n_vocab), .n_slots = 1 };
    if (!t->room)
        return 0;
    while (t->n_slots < 2 * t->room)
        t->n_slots *= 2;
    t->touched = calloc(t->room, sizeof *t->touched);
    t->slot = calloc(t->n_slots, sizeof *t->slot);
    if (!t->touched || !t->slot) {
        edit_table_release(t);
        return error_set(ERR_NO_MEMORY, "no memory for the penalties of %u tokens", request->n_tokens);
    }
    fill(t, request);
    return 0;
}

void edit_table_release(struct edit_table *t)
{
    free(t->touched);
    free(t->slot);
    *t = (struct edit_table){ 0 };
}

void edit_table_take(struct edit_table *t, int32_t id)
{
    if (!repeats(&t->penalties) && !counts(&t->penalties))
        return;
    struct touched *touched = touch(t, id);
    touched->is_seen = true;
    touched->n_answer++;
}

uint32_t edit_table_room(const struct edit_table *t)
{
    return t->room;
}

uint32_t edit_table_list(const struct edit_table *t, bool ban_stop_ids, struct row_edit *edits)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct touched *from = &t->touched[i];
        struct row_edit edit = { from->id, from->add, 1, 0 };
        if (ban_stop_ids && from->is_stop)
            edit.add = -INFINITY;
        if (from->is_seen && repeats(&t->penalties))
            edit.repetition = t->penalties.repetition;
        if (from->n_answer)
            edit.subtract = t->penalties.frequency * (float)from->n_answer + t->penalties.presence;
        if (edit.add != 0 || edit.repetition != 1 || edit.subtract != 0)
            edits[n++] = edit;
    }
    return n;
}

/* ---- the edits ---- */
void edits_apply(float *logits, uint32_t n, int32_t first_id, const struct row_edit *edits, uint32_t n_edits)
{
    for (uint32_t i = 0; i < n_edits; i++) {
        const struct row_edit *edit = &edits[i];
        if (edit->id < first_id || (uint32_t)(edit->id - first_id) >= n)
            continue;
        float *logit = &logits[edit->id - first_id], l = *logit + edit->add;
        l = l > 0 ? l / edit->repetition : l * edit->repetition;
        *logit = l - edit->subtract;
    }
}
