/* sequence.c: sequences: which group along dp is their home, their KV blocks, and what they want next.
 *
 *   WAITING ──all of the prompt planned──> RUNNING ──last token, or stopped──> DONE
 *      └────────────────────────stopped───────────────────────────────────────^
 *   WAITING  n_planned < n_prompt: chunks of the prompt are planned, several may be in flight
 *   RUNNING  one token at a time: planned only when the token before is known
 *   DONE     nothing is planned any more; what is in flight is still collected
 *
 * n_planned counts the tokens that a plan holds already, n_tokens those that are known.  Blocks for the whole of prompt and
 * answer are taken when a sequence is added, so a running sequence never runs out. */
#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it wants ---- */
static uint32_t n_wanted(const struct sequence *s)
{
    return s->request.n_tokens + s->request.n_new;
}

bool sequence_is_done(const struct sequence *s)
{
    return sequence_end(s) != SEQUENCE_RUNS;
}

/* ---- how it ends ---- */
enum sequence_end sequence_end(const struct sequence *s)
{
    if (s->end != SEQUENCE_RUNS)
        return s->end;
    return s->n_planned >= s->request.n_tokens && s->n_tokens >= n_wanted(s) && !s->n_in_flight ? SEQUENCE_LENGTH : SEQUENCE_RUNS;
}

int32_t sequence_stop_id(const struct sequence *s)
{
    return s->stop_id;
}

int sequence_error(const struct sequence *s)
{
    return s->end == SEQUENCE_FAILED ? error_set(ERR_FAILED, "%s", s->why) : 0;
}

void sequence_end_with(struct sequence *s, enum sequence_end end)
{
    if (sequence_end(s) == SEQUENCE_RUNS)
        s->end = end;
    s->stopped = true;
}

void sequence_stop(struct sequence *s)
{
    sequence_end_with(s, SEQUENCE_CANCELLED);
}

void sequence_fail(struct sequence *s)
{
    snprintf(s->why, sizeof s->why, "%s", error_text());
    sequence_end_with(s, SEQUENCE_FAILED);
}

const int32_t *sequence_new_tokens(const struct sequence *s, uint32_t *n)
{
    *n = s->n_tokens - s->request.n_tokens;
    return s->tokens + s->request.n_tokens;
}

bool sequence_wants_prefill(const struct sequence *s)
{
    return !s->stopped && s->n_planned < s->request.n_tokens;
}

bool sequence_is_running(const struct sequence *s)
{
    return !s->stopped && s->n_planned >= s->request.n_tokens && s->n_tokens < n_wanted(s);
}

bool sequence_wants_decode(const struct sequence *s)
{
    return sequence_is_running(s) && s->n_planned < s->n_tokens && !s->n_in_flight;
}

bool sequence_wants_token(const struct sequence *s, uint32_t position)
{
    return position == s->n_tokens && s->n_tokens < n_wanted(s) && !s->stopped;
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
    if (s->n_tokens >= n_wanted(s) || s->stopped)
        return;
    if (is_stop_id(s, event->id)) {
        s->stop_id = event->id;
        sequence_end_with(s, SEQUENCE_STOP);
        return;
    }
    event->index = s->request.n_generated + s->n_tokens - s->request.n_tokens;
    s->tokens[s->n_tokens++] = event->id;
    if (s->request.on_token)
        s->request.on_token(s->request.user, event);
}

void sequence_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab)
{
    if (s->request.on_row)
        s->request.on_row(s->request.user, position, logits, n_vocab);
}

/* ---- coming and going ---- */
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
    if (!r->n_tokens)
        return error_set(ERR_USAGE, "the prompt is empty");
    if (r->n_tokens > e->options.context || r->n_new > e->options.context - r->n_tokens)
        return error_set(ERR_USAGE, "%u prompt tokens and %u new ones are more than the context of %u", r->n_tokens, r->n_new, e->options.context);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || (uint32_t)r->tokens[i] >= e->model.n_vocab)
            return error_set(ERR_USAGE, "token %d does not exist: the vocabulary has %u", r->tokens[i], e->model.n_vocab);
    return 0;
}

/* What an error leaves half taken belongs to the sequence. */
static int take_blocks(struct engine *e, struct sequence *s, uint32_t n_positions)
{
    int err = 0;
    for (uint32_t g = 0; !err && g < e->limits.n_cache_groups; g++)
        err = block_pool_take(&e->group[s->group].pool[g], s->table[g], &s->n_blocks[g], cache_blocks_table(&e->limits.cache[g], n_positions));
    return err;
}

static void close_sequence(struct engine *e, struct sequence *s)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        block_pool_give_back(&e->group[s->group].pool[g], s->table[g], s->n_blocks[g]);
        free(s->table[g]);
    }
    free(s->stop_ids);
    free(s->tokens);
    free(s);
}

static int open_sequence(struct engine *e, struct sequence **out, uint32_t group, uint32_t n_positions)
{
    struct sequence *s = calloc(1, sizeof *s);
    bool have_all = s && (s->tokens = calloc(e->options.context, sizeof *s->tokens));
    for (uint32_t g = 0; have_all && g < e->limits.n_cache_groups; g++)
        have_all = (s->table[g] = calloc(e->limits.cache[g].n_sequence, sizeof *s->table[g])) != NULL;
    int err = have_all ? 0 : error_set(ERR_NO_MEMORY, "no memory for a sequence");
    if (s)
        s->group = group;
    if (err < 0 || (err = take_blocks(e, s, n_positions)) < 0) {
        if (s)
            close_sequence(e, s);
        return err;
    }
    *out = s;
    return 0;
}

/* The group with the fewest sequences, the first of several. */
static int find_home(const struct engine *e, uint32_t *home)
{
    *home = 0;
    for (uint32_t g = 1; g < e->n_groups; g++)
        if (e->group[g].n_sequences < e->group[*home].n_sequences)
            *home = g;
    uint32_t n = e->group[*home].n_sequences;
    return n < e->limits.n_sequences ? 0 : error_set(ERR_FULL, "%u sequences are running already", n * e->n_groups);
}

static int copy_stop_ids(struct sequence *s, const struct sequence_request *request)
{
    int32_t *ids = realloc(s->stop_ids, (request->n_stop_ids + 1) * sizeof *ids);
    if (!ids)
        return error_set(ERR_NO_MEMORY, "no memory for %u stop ids", request->n_stop_ids);
    s->stop_ids = ids;
    if (request->n_stop_ids)
        memcpy(ids, request->stop_ids, request->n_stop_ids * sizeof *ids);
    return 0;
}

static void begin(struct sequence *s, const struct sequence_request *request, uint32_t n_common)
{
    s->request = *request;
    memcpy(s->tokens, request->tokens, request->n_tokens * sizeof *s->tokens);
    s->n_tokens = request->n_tokens;
    s->n_planned = n_common;
    s->n_stored = n_common ? s->n_stored : 0;
    s->stopped = false;
    s->end = SEQUENCE_RUNS;
}

int engine_add(struct engine *e, struct sequence **out, const struct sequence_request *request)
{
    struct sequence *s;
    uint32_t home;
    int err;
    if ((err = check_request(e, request)) < 0 || (err = find_home(e, &home)) < 0 ||
        (err = open_sequence(e, &s, home, request->n_tokens + request->n_new)) < 0)
        return err;
    if ((err = copy_stop_ids(s, request)) < 0) {
        close_sequence(e, s);
        return err;
    }
    begin(s, request, 0);
    struct sequence **end = &e->group[home].sequences;
    while (*end)
        end = &(*end)->next;
    *end = s;
    e->group[home].n_sequences++;
    *out = s;
    return 0;
}

static int drain(struct engine *e, const struct sequence *s)
{
    int err = 0;
    while (!err && s->n_in_flight)
        err = flight_collect_oldest(e);
    return err;
}

/* How many of the prompt's first tokens need not be computed: the last one always is, for its logits. */
static uint32_t n_common(const struct engine *e, const struct sequence *s, const struct sequence_request *request)
{
    uint32_t n = 0, most = MIN(MIN(s->n_planned, s->n_tokens), request->n_tokens - 1);
    while (n < most && s->tokens[n] == request->tokens[n])
        n++;
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (!cache_blocks_keep(&e->limits.cache[g], n, s->n_stored))
            return 0;
    return n;
}

int engine_continue(struct engine *e, struct sequence *s, const struct sequence_request *request)
{
    int err;
    if ((err = check_request(e, request)) < 0 || (err = drain(e, s)) < 0 ||
        (err = take_blocks(e, s, request->n_tokens + request->n_new)) < 0 || (err = copy_stop_ids(s, request)) < 0)
        return err;
    begin(s, request, n_common(e, s, request));
    return 0;
}

void engine_remove(struct engine *e, struct sequence *s)
{
    struct sequence **link = &e->group[s->group].sequences;
    s->stopped = true;
    drain(e, s);
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    e->group[s->group].n_sequences--;
    close_sequence(e, s);
}
