/* schedule.c: what each step computes.
 *
 * A step has one plan for each group along dp, made of the sequences that run there.  Groups do not wait for each other's sequences,
 * only for the step: one that has nothing to do joins it with an empty plan.
 *
 * In a plan: the next token of sequences that have theirs, who has waited for it longest first, an even part of them in each plan of
 * a pipeline; then chunks of prompts, by standing; no more than the time of a step allows (pace.h).  Blocks are taken for what is
 * planned.  Where there are none, the last by standing that is not in this plan is pushed out, and nobody is let in until another has
 * ended: so what is computed again is bounded by what ends. */
#include "engine/engine_impl.h"

#include "base/base.h"

/* ---- who comes in ---- */
static bool may_come(const struct group *group, uint32_t n_sequences)
{
    return group->n_sequences == n_sequences && !group->is_tight;
}

/* Of the groups that have so many sequences the one that knows most of its beginning, the first of several; else any that has room. */
static bool admit_beside(struct engine *e, struct sequence *s, uint32_t n_sequences)
{
    uint32_t best = 0, most = 0;
    for (uint32_t g = 0; g < e->n_groups && e->n_groups > 1; g++) {
        uint32_t n = may_come(&e->group[g], n_sequences) ? tables_known(e, s, g) : 0;
        if (n > most) {
            most = n;
            best = g;
        }
    }
    for (uint32_t i = 0; i < e->n_groups; i++) {
        uint32_t g = (best + i) % e->n_groups;
        if (may_come(&e->group[g], n_sequences) && sequence_begin(e, s, g))
            return true;
    }
    return false;
}

/* The fewer sequences a group has, the better. */
static bool admit(struct engine *e, struct sequence *s)
{
    for (uint32_t n = 0; n < e->limits.n_sequences; n++)
        if (admit_beside(e, s, n))
            return true;
    return false;
}

/* In the order of the queue; who finds no room is not overtaken. */
static void let_all_in(struct engine *e)
{
    struct sequence *s;
    while ((s = queue_next(&e->queue, e->counted.steps)) != NULL) {
        sequence_settle(e, s);
        if (s->state == SEQUENCE_WAITING && !admit(e, s))
            return;
    }
}

static void settle_all(struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (struct sequence *s = e->group[g].sequences, *next; s; s = next) {
            next = s->next;
            sequence_settle(e, s);
        }
}

/* ---- what they get ---- */
static void add_row(struct group_plan *to, struct sequence *s, uint32_t token, uint32_t position)
{
    struct plan *p = to->plan;
    to->row_sequence[p->header.n_rows] = s;
    p->rows[p->header.n_rows] = (int32_t)token;
    p->row[p->header.n_rows++] = (struct plan_row){ .params = s->request.params, .position = position + 1, .n_top = s->request.n_top,
                                                    .wants_logprobs = s->request.wants_logprobs };
    if (edit_table_room(&s->edits) && !(p->header.flags & PLAN_FULL_LOGITS) && sequence_wants_token(s, position + 1)) {
        p->header.late_room += p->header.late_room ? 0 : sizeof(struct late_header);
        p->header.late_room += late_edits_bytes(edit_table_room(&s->edits));
    }
}

static void add_copies(struct engine *e, struct group_plan *to, struct sequence *s)
{
    struct plan *p = to->plan;
    for (uint32_t g = 0; s->has_copy && g < e->limits.n_cache_groups; g++)
        p->copy[p->header.n_copies++] = (struct plan_copy){ g, s->copy_from[g], tables_copy_to(e, s, g) };
    tables_drop_copy(e, s);
}

/* What was computed before it was pushed out costs its client nothing. */
static void charge(struct sequence *s)
{
    if (s->n_planned <= s->n_charged)
        return;
    s->client->served += s->n_planned - s->n_charged;
    s->n_charged = s->n_planned;
}

/* Puts the next n tokens of s into the plan; it has the blocks. */
static void add_tokens(struct engine *e, struct group_plan *to, struct sequence *s, uint32_t n)
{
    struct plan *p = to->plan;
    struct plan_header *h = &p->header;
    sequence_count_in(e, s);
    add_copies(e, to, s);
    to->sequence[h->n_sequences] = s;
    struct step_sequence *q = &p->sequences[h->n_sequences++];
    *q = (struct step_sequence){ .first_token = h->n_tokens, .n_tokens = n, .position = s->n_planned };
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        q->table[g] = (struct step_table){ cache_blocks_table(&e->limits.cache[g], s->n_planned + n), s->table[g] };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = s->n_planned + i;
        p->tokens[h->n_tokens] = s->tokens[position];
        p->positions[h->n_tokens] = (int32_t)position;
        if (sequence_wants_row(s, position)) {
            add_row(to, s, h->n_tokens, position);
            s->next_row = position + 1;
        }
        h->n_tokens++;
    }
    s->n_planned += n;
    s->n_in_flight++;
    s->last_plan = e->next_number;
    charge(s);
}

static bool is_in_plan(const struct engine *e, const struct sequence *s)
{
    return s->n_in_flight && s->last_plan == e->next_number;
}

/* The last by standing that is not in the plan that is made. */
static struct sequence *last_in_standing(const struct engine *e, const struct group *group)
{
    struct sequence *last = NULL;
    for (struct sequence *s = group->sequences; s; s = s->next)
        if (!is_in_plan(e, s))
            last = s;
    return last;
}

/* Blocks for the first n_positions of s, also those of sequences that stand behind it. */
static bool make_room(struct engine *e, struct group *group, struct sequence *s, uint32_t n_positions)
{
    while (!tables_reserve(e, s, n_positions)) {
        struct sequence *last = last_in_standing(e, group);
        if (last == s)
            return false;
        sequence_preempt(e, last);
    }
    return true;
}

/* How many of the next n tokens of a prompt there are blocks for. */
static uint32_t reserve_chunk(struct engine *e, struct group *group, struct sequence *s, uint32_t n)
{
    uint32_t in_block = MIN(n, BLOCK_TOKENS - s->n_planned % BLOCK_TOKENS);
    while (n > in_block && !tables_reserve(e, s, s->n_planned + n))
        n -= MIN((s->n_planned + n - 1) % BLOCK_TOKENS + 1, n - in_block);
    return n > in_block || make_room(e, group, s, s->n_planned + in_block) ? n : 0;
}

static bool wants_decode(const struct sequence *s)
{
    return sequence_is_decoding(s) && sequence_n_left(s) && !s->n_in_flight;
}

/* Who has waited longest for its next token, the first by standing of several. */
static struct sequence *next_to_decode(const struct engine *e, const struct group *group)
{
    struct sequence *next = NULL;
    for (struct sequence *s = group->sequences; s; s = s->next)
        if (wants_decode(s) && (!next || e->next_number - s->last_plan > e->next_number - next->last_plan))
            next = s;
    return next;
}

static uint32_t add_decode(struct engine *e, struct group *group, struct group_plan *to)
{
    uint32_t n_decoding = 0, n = 0;
    for (struct sequence *s = group->sequences; s; s = s->next)
        n_decoding += sequence_is_decoding(s);
    uint32_t share = pace_decode(&e->pace, DIV_UP(n_decoding, e->mesh.size[AXIS_PP]), schedule_limit_s(e));
    for (struct sequence *s; n < share && (s = next_to_decode(e, group)) != NULL;)
        if (make_room(e, group, s, s->n_planned + 1)) {
            add_tokens(e, to, s, 1);
            n++;
        } else if (group->n_sequences > 1) {
            sequence_preempt(e, s);
        } else {
            sequence_end_with(s, SEQUENCE_END_FULL);
            sequence_settle(e, s);
        }
    return n;
}

/* Who has just been let in looks again when there are blocks that were not there, and waits while another computes its next. */
static bool waits_for_another(struct engine *e, const struct group *group, struct sequence *s)
{
    if (s->is_fresh && s->n_seen != group->n_published) {
        tables_release(e, s);
        tables_begin(e, s);
    }
    return s->is_fresh && tables_are_coming(e, s);
}

static void add_prefill(struct engine *e, struct group *group, struct group_plan *to, uint32_t budget)
{
    for (struct sequence *s = group->sequences; s && budget; s = s->next) {
        if (!sequence_n_left(s) || sequence_is_decoding(s) || waits_for_another(e, group, s))
            continue;
        uint32_t n = reserve_chunk(e, group, s, MIN(MIN(budget, e->options.chunk), sequence_n_left(s)));
        if (n)
            add_tokens(e, to, s, n);
        budget -= n;
    }
}

double schedule_limit_s(const struct engine *e)
{
    return e->options.step_ms / 1000.0;
}

bool schedule_step(struct engine *e, struct flight *f)
{
    uint32_t n_all_tokens = 0;
    f->n_prefill = f->n_decode = 0;
    settle_all(e);
    let_all_in(e);
    for (uint32_t g = 0; g < e->n_groups; g++) {
        struct group_plan *to = &f->group[g];
        plan_clear(to->plan);
        to->plan->header.flags = e->options.full_logits ? PLAN_FULL_LOGITS : 0;
        uint32_t n_decode = add_decode(e, &e->group[g], to), n_tokens = e->limits.n_tokens - n_decode;
        add_prefill(e, &e->group[g], to, pace_prefill(&e->pace, n_tokens, n_decode, schedule_limit_s(e)));
        n_all_tokens += to->plan->header.n_tokens;
        f->n_decode = MAX(f->n_decode, n_decode);
        f->n_prefill = MAX(f->n_prefill, to->plan->header.n_tokens - n_decode);
    }
    for (uint32_t g = 0; g < e->n_groups; g++)
        f->group[g].plan->header.n_all_tokens = n_all_tokens;
    f->own_result.size = 0;
    return n_all_tokens > 0;
}
