/* sequence.c: sequences: how they come, run and go.
 *
 *   WAITING ──let in──> RUNNING ──last row and token, or stopped──> DONE
 *      ^                   │                                         ^
 *      └────pushed out─────┘          (also a WAITING one is stopped ┘)
 *   WAITING  in the queue; holds no block.  What was in flight when it was pushed out still brings its rows
 *   RUNNING  in a group along dp; holds blocks for what is planned.  While it is behind its tokens, chunks of them are planned, several
 *            may be in flight; then one token at a time, planned when the token before is known
 *   DONE     in neither; holds nothing.  What is still in flight brings nothing
 *
 * n_planned counts the tokens that a plan holds already, n_tokens those that are known, whether of the prompt or generated: who was
 * pushed out is computed again like a prompt.  A row is planned once. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it wants ---- */
static uint32_t n_wanted(const struct sequence *s)
{
    return s->request.n_tokens + s->request.n_new;
}

static bool has_work(const struct sequence *s)
{
    return !s->stopped && (s->n_tokens < n_wanted(s) || s->next_row < s->request.n_tokens);
}

bool sequence_is_done(const struct sequence *s)
{
    return sequence_end(s) != SEQUENCE_END_NONE;
}

/* ---- how it ends ---- */
enum sequence_end sequence_end(const struct sequence *s)
{
    if (s->end != SEQUENCE_END_NONE)
        return s->end;
    return has_work(s) || s->n_in_flight ? SEQUENCE_END_NONE : SEQUENCE_END_LENGTH;
}

int32_t sequence_stop_id(const struct sequence *s)
{
    return s->stop_id;
}

int sequence_error(const struct sequence *s)
{
    return s->end == SEQUENCE_END_FAILED ? error_set(ERR_FAILED, "%s", s->why) : 0;
}

void sequence_end_with(struct sequence *s, enum sequence_end end)
{
    if (sequence_end(s) == SEQUENCE_END_NONE)
        s->end = end;
    s->stopped = true;
}

void sequence_stop(struct sequence *s)
{
    sequence_end_with(s, SEQUENCE_END_CANCELLED);
}

void sequence_fail(struct sequence *s)
{
    if (!s)
        return;
    snprintf(s->why, sizeof s->why, "%s", error_text());
    sequence_end_with(s, SEQUENCE_END_FAILED);
}

const int32_t *sequence_new_tokens(const struct sequence *s, uint32_t *n)
{
    *n = s->n_tokens - s->request.n_tokens;
    return s->tokens + s->request.n_tokens;
}

bool sequence_is_queued(const struct sequence *s)
{
    return s->state == SEQUENCE_WAITING && !s->n_preemptions;
}

uint32_t sequence_n_cached(const struct sequence *s)
{
    return s->n_cached;
}

uint32_t sequence_n_preemptions(const struct sequence *s)
{
    return s->n_preemptions;
}

uint32_t sequence_n_left(const struct sequence *s)
{
    return has_work(s) ? s->n_tokens - s->n_planned : 0;
}

bool sequence_is_decoding(const struct sequence *s)
{
    return has_work(s) && s->n_tokens < n_wanted(s) && s->n_planned >= s->request.n_tokens && s->n_planned + 1 >= s->n_tokens;
}

bool sequence_wants_row(const struct sequence *s, uint32_t position)
{
    return position >= s->next_row && (s->request.all_rows || position + 1 >= s->request.n_tokens);
}

bool sequence_wants_token(const struct sequence *s, uint32_t position)
{
    return s && position == s->n_tokens && s->n_tokens < n_wanted(s) && !s->stopped;
}

bool sequence_bans_stop_ids(const struct sequence *s)
{
    return s->n_tokens - s->request.n_tokens < s->request.min_new;
}

static bool is_stop_id(const struct sequence *s, int32_t id)
{
    for (uint32_t i = 0; i < s->request.n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

void sequence_take_token(struct sequence *s, struct token_event *event)
{
    if (!s || s->n_tokens >= n_wanted(s) || s->stopped)
        return;
    if (is_stop_id(s, event->id)) {
        s->stop_id = event->id;
        sequence_end_with(s, SEQUENCE_END_STOP);
        return;
    }
    event->index = s->request.n_generated + s->n_tokens - s->request.n_tokens;
    if (s->n_tokens == s->request.n_tokens) {
        event->queue_s = s->begun_s - s->arrived_s;
        event->prefill_s = seconds_now() - s->begun_s;
    }
    s->tokens[s->n_tokens++] = event->id;
    edit_table_take(&s->edits, event->id);
    if (s->request.on_token)
        s->request.on_token(s->request.user, event);
}

void sequence_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab)
{
    if (s && s->request.on_row)
        s->request.on_row(s->request.user, position, logits, n_vocab);
}

/* ---- from state to state ---- */
static void unlink_from(struct sequence **list, struct sequence *s)
{
    while (*list != s)
        list = &(*list)->next;
    *list = s->next;
}

/* Behind all others, but before those of its client that matter less. */
static void link_by_standing(struct group *group, struct sequence *s)
{
    struct sequence **at = &group->sequences;
    while (*at && ((*at)->client != s->client || (*at)->request.priority <= s->request.priority))
        at = &(*at)->next;
    s->next = *at;
    *at = s;
    group->n_sequences++;
}

/* Beside what the others of the group have yet to take for the tokens that they know. */
static bool has_room(const struct engine *e, const struct sequence *s)
{
    const struct group *group = &e->group[s->group];
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        uint64_t wanted = tables_wanted(e, s, g, s->n_tokens);
        for (const struct sequence *other = group->sequences; other; other = other->next)
            wanted += tables_wanted(e, other, g, other->n_tokens);
        if (wanted > block_pool_available(&group->pool[g]))
            return false;
    }
    return true;
}

void sequence_count_in(struct engine *e, struct sequence *s)
{
    s->is_fresh = false;
    if (s->is_counted)
        return;
    s->is_counted = true;
    s->begun_s = seconds_now();
    s->n_cached = s->n_charged = s->n_planned;
    e->counted.prompt_tokens += s->request.n_tokens;
    e->counted.prefix_queries += s->node == NO_NODE ? 0 : s->request.n_tokens;
    e->counted.prefix_hits += s->n_cached;
}

bool sequence_begin(struct engine *e, struct sequence *s, uint32_t group)
{
    s->group = group;
    tables_begin(e, s);
    if (!has_room(e, s) && s->has_copy) {       /* what it copies from may be what it lacks */
        tables_drop_copy(e, s);
        s->n_planned = s->n_confirmed = s->n_published * BLOCK_TOKENS;
    }
    if (!has_room(e, s)) {
        tables_release(e, s);
        s->n_planned = s->n_confirmed = 0;
        return false;
    }
    queue_admit(&e->queue, s);
    link_by_standing(&e->group[group], s);
    s->state = SEQUENCE_RUNNING;
    s->is_fresh = true;
    return true;
}

static void leave_group(struct engine *e, struct sequence *s)
{
    struct group *group = &e->group[s->group];
    unlink_from(&group->sequences, s);
    group->n_sequences--;
    tables_release(e, s);
}

void sequence_preempt(struct engine *e, struct sequence *s)
{
    leave_group(e, s);
    e->group[s->group].is_tight = true;
    s->n_planned = s->n_confirmed = 0;
    s->n_stale = s->n_in_flight;
    s->n_preemptions++;
    e->counted.preemptions++;
    s->state = SEQUENCE_WAITING;
    queue_add(&e->queue, s);
}

void sequence_settle(struct engine *e, struct sequence *s)
{
    if (s->state == SEQUENCE_DONE || !sequence_is_done(s))
        return;
    if (s->state == SEQUENCE_RUNNING) {
        leave_group(e, s);
        e->group[s->group].is_tight = false;
    } else {
        queue_remove(&e->queue, s);
    }
    queue_leave_client(&e->queue, s->client);
    s->client = NULL;
    s->state = SEQUENCE_DONE;
    s->next = e->done;
    e->done = s;
}

/* ---- coming and going ---- */
static int check_tokens(const struct engine *e, const struct sequence_request *r)
{
    if (!r->n_tokens)
        return error_set(ERR_USAGE, "the prompt is empty");
    if (r->n_tokens > e->options.context || r->n_new > e->options.context - r->n_tokens)
        return error_set(ERR_USAGE, "%u prompt tokens and %u new ones are more than the context of %u", r->n_tokens, r->n_new,
                         e->options.context);
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (cache_blocks_table(&e->limits.cache[g], r->n_tokens) > e->limits.cache[g].n_all)
            return error_set(ERR_USAGE, "%u prompt tokens are more than the %u that the KV cache can hold", r->n_tokens,
                             e->limits.cache[g].n_all * BLOCK_TOKENS);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || (uint32_t)r->tokens[i] >= e->model.n_vocab)
            return error_set(ERR_USAGE, "token %d does not exist: the vocabulary has %u", r->tokens[i], e->model.n_vocab);
    return 0;
}

static int check_request(const struct engine *e, const struct sequence_request *r)
{
    int err = sample_check(&r->params);
    if (err < 0)
        return err;
    if (r->n_top > SAMPLE_MAX_TOP)
        return error_set(ERR_USAGE, "%u top logprobs are more than %u", r->n_top, SAMPLE_MAX_TOP);
    if (r->n_generated > r->n_tokens)
        return error_set(ERR_USAGE, "%u of %u tokens can not be generated", r->n_generated, r->n_tokens);
    if (r->all_rows && !e->options.full_logits)
        return error_set(ERR_USAGE, "all rows are wanted of an engine without full logits");
    if ((err = edits_check(r, &e->model)) < 0)
        return err;
    return check_tokens(e, r);
}

static void close_sequence(struct engine *e, struct sequence *s)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        free(s->table[g]);
    free(s->salt);
    edit_table_release(&s->edits);
    free(s->stop_ids);
    free(s->tokens);
    free(s);
}

/* In no list yet. */
static struct sequence *open_sequence(struct engine *e)
{
    struct sequence *s = calloc(1, sizeof *s);
    bool have_all = s != NULL;
    for (uint32_t g = 0; have_all && g < e->limits.n_cache_groups; g++) {
        size_t n_bytes = e->limits.cache[g].n_sequence * sizeof *s->table[g];
        if ((have_all = (s->table[g] = malloc(n_bytes)) != NULL))
            memset(s->table[g], 0xff, n_bytes);
    }
    if (have_all) {
        s->node = NO_NODE;
        return s;
    }
    if (s)
        close_sequence(e, s);
    return NULL;
}

/* ---- what a request brings, kept ---- */
static void *copy(const void *from, size_t n_bytes, size_t n_room)
{
    void *to = malloc(n_room + 1);
    if (to && n_bytes)
        memcpy(to, from, n_bytes);
    return to;
}

struct copies {
    struct edit_table edits;
    int32_t *tokens, *stop_ids;         /* tokens: with room for what it will get */
    void *salt;
};

static void copies_release(struct copies *c)
{
    edit_table_release(&c->edits);
    free(c->tokens);
    free(c->stop_ids);
    free(c->salt);
}

/* All, or an error and nothing is held. */
static int copies_init(struct copies *c, const struct engine *e, const struct sequence_request *r)
{
    size_t n_tokens = r->n_tokens * sizeof *c->tokens, n_stop_ids = r->n_stop_ids * sizeof *c->stop_ids;
    *c = (struct copies){ 0 };
    int err = edit_table_open(&c->edits, r, e->model.n_vocab);
    if (err < 0)
        return err;
    c->tokens = copy(r->tokens, n_tokens, n_tokens + r->n_new * sizeof *c->tokens);
    c->stop_ids = copy(r->stop_ids, n_stop_ids, n_stop_ids);
    c->salt = copy(r->salt.bytes, r->salt.n_bytes, r->salt.n_bytes);
    if (c->tokens && c->stop_ids && c->salt)
        return 0;
    copies_release(c);
    return error_set(ERR_NO_MEMORY, "no memory for a sequence");
}

/* Its own ones go, these stay. */
static void take_copies(struct sequence *s, struct copies *c)
{
    struct copies old = { s->edits, s->tokens, s->stop_ids, s->salt };
    s->edits = c->edits;
    s->tokens = c->tokens;
    s->stop_ids = c->stop_ids;
    s->salt = c->salt;
    copies_release(&old);
}

/* Into the queue, or an error and nothing has changed. */
static int enter(struct engine *e, struct sequence *s, const struct sequence_request *r)
{
    struct copies copies;
    int err = copies_init(&copies, e, r);
    if (err < 0)
        return err;
    if (!(s->client = queue_client(&e->queue, r->client))) {
        copies_release(&copies);
        return error_set(ERR_NO_MEMORY, "no memory for a client");
    }
    take_copies(s, &copies);
    s->request = *r;
    s->request.salt.bytes = r->salt.bytes ? s->salt : NULL;
    s->n_tokens = s->n_landed = r->n_tokens;
    s->n_planned = s->n_confirmed = s->n_in_flight = s->n_stale = s->n_charged = s->n_cached = s->n_preemptions = 0;
    s->next_row = r->all_rows ? 0 : r->n_tokens - 1;
    s->stopped = s->is_fresh = s->is_counted = false;
    s->end = SEQUENCE_END_NONE;
    s->arrival = e->queue.n_arrivals++;
    s->since_step = e->counted.steps;
    s->arrived_s = seconds_now();
    s->state = SEQUENCE_WAITING;
    queue_add(&e->queue, s);
    return 0;
}

int engine_add(struct engine *e, struct sequence **out, const struct sequence_request *request)
{
    int err = check_request(e, request);
    if (err < 0)
        return err;
    struct sequence *s = open_sequence(e);
    if (!s)
        return error_set(ERR_NO_MEMORY, "no memory for a sequence");
    if ((err = enter(e, s, request)) < 0) {
        close_sequence(e, s);
        return err;
    }
    *out = s;
    return 0;
}

/* To no list, and no step in flight knows it. */
static void withdraw(struct engine *e, struct sequence *s)
{
    sequence_stop(s);
    sequence_settle(e, s);
    flight_forget(e, s);
    unlink_from(&e->done, s);
}

int engine_continue(struct engine *e, struct sequence *s, const struct sequence_request *request)
{
    int err = check_request(e, request);
    if (err < 0)
        return err;
    withdraw(e, s);
    if ((err = enter(e, s, request)) < 0) {
        s->next = e->done;
        e->done = s;
    }
    return err;
}

void engine_remove(struct engine *e, struct sequence *s)
{
    withdraw(e, s);
    close_sequence(e, s);
}
