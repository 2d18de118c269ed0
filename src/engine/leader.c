/* leader.c: sequences, their KV blocks, and the plans that move them on.
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

#include <stdlib.h>
#include <string.h>

struct sequence {
    struct sequence *next;
    struct sequence_request request;
    int32_t *tokens;
    uint32_t n_tokens, n_planned, n_in_flight;
    uint32_t *blocks, n_blocks;
    bool stopped;
};

bool sequence_is_done(const struct sequence *s)
{
    return s->stopped || (s->n_planned >= s->request.n_tokens && s->n_tokens >= s->request.n_tokens + s->request.n_new && !s->n_in_flight);
}

void sequence_stop(struct sequence *s)
{
    s->stopped = true;
}

const int32_t *sequence_new_tokens(const struct sequence *s, uint32_t *n)
{
    *n = s->n_tokens - s->request.n_tokens;
    return s->tokens + s->request.n_tokens;
}

bool leader_wants_token(const struct sequence *s, uint32_t position)
{
    return position == s->n_tokens && s->n_tokens < s->request.n_tokens + s->request.n_new && !s->stopped;
}

void leader_take_token(struct sequence *s, int32_t id)
{
    if (s->n_tokens < s->request.n_tokens + s->request.n_new && !s->stopped)
        s->tokens[s->n_tokens++] = id;
}

void leader_take_row(struct sequence *s, uint32_t position, const float *logits, uint32_t n_vocab)
{
    if (s->request.on_row)
        s->request.on_row(s->request.user, position, logits, n_vocab);
}

/* ---- open and close ---- */
static int flight_open(struct engine *e, struct flight *f)
{
    int err = plan_open(&f->plan, e->plan->max_tokens, e->plan->max_rows, e->plan->max_sequences, e->plan->max_blocks);
    if (err < 0)
        return err;
    f->row_sequence = calloc(f->plan->max_rows, sizeof *f->row_sequence);
    f->sequence = calloc(f->plan->max_sequences, sizeof *f->sequence);
    f->bytes = malloc(plan_max_bytes(f->plan));
    f->request = calloc(e->n_ranks, sizeof *f->request);
    return f->row_sequence && f->sequence && f->bytes && f->request ? 0 : error_set(ERR_NO_MEMORY, "no memory for step plans");
}

int leader_open(struct engine *e)
{
    e->n_blocks = e->options.max_sequences * DIV_UP(e->options.context, BLOCK_TOKENS);
    e->n_flights = e->mesh.size[AXIS_PP] == 1 ? 1 : e->mesh.size[AXIS_PP] + 1;
    e->flight = calloc(e->n_flights, sizeof *e->flight);
    e->free_block = calloc(e->n_blocks, sizeof *e->free_block);
    e->full_row = calloc(e->model.n_vocab, sizeof *e->full_row);
    e->incoming = calloc(e->mesh.size[AXIS_TP], sizeof *e->incoming);
    if (!e->flight || !e->free_block || !e->full_row || !e->incoming)
        return error_set(ERR_NO_MEMORY, "no memory for the leader");
    while (e->n_free_blocks < e->n_blocks) {
        e->free_block[e->n_free_blocks] = e->n_blocks - 1 - e->n_free_blocks;
        e->n_free_blocks++;
    }
    int err = 0;
    for (uint32_t i = 0; !err && i < e->n_flights; i++)
        err = flight_open(e, &e->flight[i]);
    return err;
}

/* ---- plans on their way ---- */
static int send_plan(struct engine *e, struct flight *f)
{
    int err = 0;
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)       /* the bytes may still be on their way from the last time */
        err = comm_wait(e->control, &f->request[r]);
    if (err < 0)
        return err;
    f->plan->header.number = e->next_number++;
    size_t n_bytes = plan_encode(f->plan, f->bytes);
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)
        err = comm_send_start(e->control, &f->request[r], f->bytes, n_bytes, (int)r, TAG_PLAN);
    return err;
}

static void land(struct engine *e, struct flight *f)
{
    for (uint32_t i = 0; i < f->plan->header.n_sequences; i++)
        f->sequence[i]->n_in_flight--;
    e->first_flight = (e->first_flight + 1) % e->n_flights;
    e->n_in_flight--;
}

/* After an error nothing is waited for any more: other ranks may hang in a collective.  What is in flight is dropped, and
 * sequences forget what they had computed, since a step may have been left half way. */
static int fail(struct engine *e, int err)
{
    while (e->n_in_flight)
        land(e, &e->flight[e->first_flight]);
    for (struct sequence *s = e->sequences; s; s = s->next) {
        s->n_planned = 0;
        s->stopped = true;
    }
    e->has_failed = e->has_failed || e->n_ranks > 1;
    return err;
}

static int collect_oldest(struct engine *e)
{
    struct flight *f = &e->flight[e->first_flight];
    int err = result_apply(e, f);
    land(e, f);
    return err < 0 ? fail(e, err) : 0;
}

/* A plan without tokens, after all others are done: counters, stop. */
static int send_empty_plan(struct engine *e, unsigned flags)
{
    int err = 0;
    while (!err && e->n_in_flight)
        err = collect_oldest(e);
    struct flight *f = &e->flight[e->first_flight];
    if (err < 0)
        return err;
    plan_clear(f->plan);
    f->plan->header.flags = flags;
    return send_plan(e, f);
}

void leader_close(struct engine *e)
{
    if (e->flight && e->n_ranks > 1 && !e->has_failed)
        send_empty_plan(e, PLAN_STOP);
    for (uint32_t i = 0; e->flight && i < e->n_flights; i++) {
        struct flight *f = &e->flight[i];
        for (uint32_t r = 1; f->request && r < e->n_ranks && !e->has_failed; r++)
            comm_wait(e->control, &f->request[r]);
        plan_close(f->plan);
        free(f->row_sequence);
        free(f->sequence);
        free(f->bytes);
        free(f->request);
        buffer_release(&f->own_result);
    }
    while (e->sequences)
        engine_remove(e, e->sequences);
    for (uint32_t i = 0; e->incoming && i < e->mesh.size[AXIS_TP]; i++)
        buffer_release(&e->incoming[i]);
    free(e->incoming);
    free(e->flight);
    free(e->free_block);
    free(e->full_row);
    free(e->candidates);
}

int engine_counters(struct engine *e, struct rank_counters *counters, bool reset)
{
    int err = send_empty_plan(e, PLAN_COUNTERS | (reset ? PLAN_RESET_COUNTERS : 0));
    if (err < 0)
        return err;
    engine_own_counters(e, &counters[0], reset);
    for (uint32_t r = 1; !err && r < e->n_ranks; r++)
        err = comm_receive(e->control, &counters[r], sizeof *counters, (int)r, TAG_COUNTERS);
    return err;
}

/* ---- sequences ---- */
static int check_request(const struct engine *e, const struct sequence_request *r)
{
    int err = sample_check(&r->params);
    if (err < 0)
        return err;
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

static void give_back_blocks(struct engine *e, struct sequence *s)
{
    while (s->n_blocks)
        e->free_block[e->n_free_blocks++] = s->blocks[--s->n_blocks];
}

static int take_blocks(struct engine *e, struct sequence *s, uint32_t n_blocks)
{
    if (n_blocks <= s->n_blocks)
        return 0;
    if (n_blocks - s->n_blocks > e->n_free_blocks)
        return error_set(ERR_FULL, "%u KV blocks wanted, %u are free", n_blocks - s->n_blocks, e->n_free_blocks);
    while (s->n_blocks < n_blocks)
        s->blocks[s->n_blocks++] = e->free_block[--e->n_free_blocks];
    return 0;
}

static uint32_t blocks_for(const struct sequence_request *r)
{
    return DIV_UP(r->n_tokens + r->n_new, BLOCK_TOKENS);
}

int engine_add(struct engine *e, struct sequence **out, const struct sequence_request *request)
{
    int err = check_request(e, request);
    if (err < 0)
        return err;
    if (e->n_sequences == e->options.max_sequences)
        return error_set(ERR_FULL, "%u sequences are running already", e->n_sequences);
    struct sequence *s = calloc(1, sizeof *s);
    if (s) {
        s->tokens = calloc(e->options.context, sizeof *s->tokens);
        s->blocks = calloc(DIV_UP(e->options.context, BLOCK_TOKENS), sizeof *s->blocks);
    }
    if (!s || !s->tokens || !s->blocks || (err = take_blocks(e, s, blocks_for(request))) < 0) {
        if (s) {
            free(s->tokens);
            free(s->blocks);
        }
        free(s);
        return err < 0 ? err : error_set(ERR_NO_MEMORY, "no memory for a sequence");
    }
    s->request = *request;
    memcpy(s->tokens, request->tokens, request->n_tokens * sizeof *s->tokens);
    s->n_tokens = request->n_tokens;
    struct sequence **end = &e->sequences;
    while (*end)
        end = &(*end)->next;
    *end = s;
    e->n_sequences++;
    *out = s;
    return 0;
}

static int drain(struct engine *e, const struct sequence *s)
{
    int err = 0;
    while (!err && s->n_in_flight)
        err = collect_oldest(e);
    return err;
}

int engine_continue(struct engine *e, struct sequence *s, const struct sequence_request *request)
{
    int err;
    if ((err = check_request(e, request)) < 0 || (err = drain(e, s)) < 0 || (err = take_blocks(e, s, blocks_for(request))) < 0)
        return err;
    uint32_t common = 0, most = MIN(MIN(s->n_planned, s->n_tokens), request->n_tokens - 1);
    while (common < most && s->tokens[common] == request->tokens[common])
        common++;
    s->request = *request;
    memcpy(s->tokens, request->tokens, request->n_tokens * sizeof *s->tokens);
    s->n_tokens = request->n_tokens;
    s->n_planned = common;
    s->stopped = false;
    return 0;
}

void engine_remove(struct engine *e, struct sequence *s)
{
    struct sequence **link = &e->sequences;
    s->stopped = true;
    drain(e, s);
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    e->n_sequences--;
    give_back_blocks(e, s);
    free(s->tokens);
    free(s->blocks);
    free(s);
}

/* ---- planning ---- */
static bool wants_prefill(const struct sequence *s)
{
    return !s->stopped && s->n_planned < s->request.n_tokens;
}

static bool wants_decode(const struct sequence *s)
{
    return !s->stopped && s->n_planned >= s->request.n_tokens && s->n_planned < s->n_tokens && !s->n_in_flight &&
           s->n_tokens < s->request.n_tokens + s->request.n_new;
}

static void add_row(struct flight *f, struct sequence *s, uint32_t token, uint32_t position)
{
    struct plan *p = f->plan;
    f->row_sequence[p->header.n_rows] = s;
    p->rows[p->header.n_rows] = (int32_t)token;
    p->row[p->header.n_rows++] = (struct plan_row){ .params = s->request.params, .position = position + 1 };
}

/* Puts the next n tokens of s into the plan. */
static void add_tokens(struct flight *f, struct sequence *s, uint32_t n)
{
    struct plan *p = f->plan;
    struct plan_header *h = &p->header;
    f->sequence[h->n_sequences] = s;
    p->sequences[h->n_sequences++] = (struct step_sequence){ h->n_tokens, n, s->n_planned, .table = { { DIV_UP(s->n_planned + n, BLOCK_TOKENS), s->blocks } } };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = s->n_planned + i;
        p->tokens[h->n_tokens] = s->tokens[position];
        p->positions[h->n_tokens] = (int32_t)position;
        if (s->request.all_rows || position + 1 >= s->request.n_tokens)
            add_row(f, s, h->n_tokens, position);
        h->n_tokens++;
    }
    s->n_planned += n;
    s->n_in_flight++;
}

/* Decode tokens first, an even part of the running sequences in each plan of a pipeline; then chunks of prompts, dealt evenly
 * among the sequences that wait. */
static bool make_plan(struct engine *e, struct flight *f)
{
    uint32_t budget = f->plan->max_tokens, n_running = 0, n_waiting = 0, n_stages = e->mesh.size[AXIS_PP];
    plan_clear(f->plan);
    f->own_result.size = 0;
    f->plan->header.flags = e->options.full_logits ? PLAN_FULL_LOGITS : 0;
    for (struct sequence *s = e->sequences; s; s = s->next) {
        n_running += !s->stopped && s->n_planned >= s->request.n_tokens && s->n_tokens < s->request.n_tokens + s->request.n_new;
        n_waiting += wants_prefill(s);
    }
    uint32_t share = DIV_UP(n_running, n_stages);
    for (struct sequence *s = e->sequences; s && share; s = s->next)
        if (wants_decode(s)) {
            add_tokens(f, s, 1);
            budget--;
            share--;
        }
    for (struct sequence *s = e->sequences; s && budget; s = s->next)
        if (wants_prefill(s)) {
            uint32_t n = MIN(MIN(DIV_UP(budget, n_waiting), e->options.chunk), s->request.n_tokens - s->n_planned);
            add_tokens(f, s, n);
            budget -= n;
            n_waiting--;
        }
    return f->plan->header.n_tokens > 0;
}

static int launch(struct engine *e, struct flight *f)
{
    int err = send_plan(e, f);
    e->n_in_flight++;
    return err < 0 ? err : engine_run_plan(e, f->plan, &f->own_result);
}

int engine_step(struct engine *e)
{
    if (e->has_failed)
        return error_set(ERR_PEER, "the replica has failed before");
    while (e->n_in_flight < e->n_flights) {
        struct flight *f = &e->flight[(e->first_flight + e->n_in_flight) % e->n_flights];
        if (!make_plan(e, f))
            break;
        int err = launch(e, f);
        if (err < 0)
            return fail(e, err);
    }
    if (!e->n_in_flight)
        return 0;
    int err = collect_oldest(e);
    return err < 0 ? err : 1;
}
