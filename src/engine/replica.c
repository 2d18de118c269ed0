#include "engine/replica.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "engine/replica_outbox.h"
#include "wire/server.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_S 0.1                  /* between two, while there is something to do */
#define IDLE_BEAT_S 0.5                 /* while there is nothing */

struct replica_request {
    struct replica_request *next;
    struct replica *replica;
    uint64_t connection, number;
    struct sequence *sequence;
    double give_up_s;                   /* when it has not been let in by then; INFINITY: never */
};

struct replica {
    const struct replica_options *options;
    struct engine *engine;
    struct wire_server *server;
    struct replica_request *first;      /* in no order that matters; n_requests of them */
    uint32_t n_requests;
    struct outbox outbox;
    int32_t *tokens;                    /* [context]: prompt and answer so far of the request that comes in */
    struct logit_bias *bias;            /* of that request */
    size_t bias_room;
    Stoa__Wire__RankTime *time, **times;        /* [ranks] */
    bool is_measured;                   /* a step has been, and fronts know */
    double next_progress_s, end_s;      /* end_s: INFINITY until it is told to end */
};

/* ---- what goes out ---- */
static void on_token(void *user, const struct token_event *event)
{
    struct replica_request *request = user;
    outbox_add(&request->replica->outbox, request->connection, request->number, event);
}

/* After each step its tokens are sent first, so nothing of the request is left to come. */
static void finish(struct replica *r, uint64_t connection, Stoa__Wire__Finish *finish)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    frame.body_case = STOA__WIRE__FRAME__BODY_FINISH;
    frame.finish = finish;
    wire_server_send(r->server, connection, &frame);
}

static void refuse(struct replica *r, const struct wire_event *event, bool is_full, const char *why)
{
    Stoa__Wire__Finish f = STOA__WIRE__FINISH__INIT;
    char text[256];
    snprintf(text, sizeof text, "%s", why);
    f.request = event->request;
    f.reason = STOA__WIRE__REASON__REASON_REFUSED;
    f.error = text;
    f.is_full = is_full;
    finish(r, event->connection, &f);
}

static void add_times(struct replica *r, Stoa__Wire__Progress *progress)
{
    const struct rank_time *from = engine_rank_times(r->engine);
    progress->n_ranks = (size_t)engine_n_ranks(r->engine);
    progress->ranks = r->times;
    for (size_t i = 0; i < progress->n_ranks; i++) {
        r->time[i] = (Stoa__Wire__RankTime)STOA__WIRE__RANK_TIME__INIT;
        r->time[i].rank = (uint32_t)i;
        r->time[i].compute_s = from[i].compute_s;
        r->time[i].wait_s = from[i].wait_s;
        r->time[i].wire_s = from[i].wire_s;
        r->times[i] = &r->time[i];
    }
}

static void send_progress(struct replica *r)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Progress progress = STOA__WIRE__PROGRESS__INIT;
    struct engine_load load;
    engine_load(r->engine, &load);
    progress.steps = load.steps;
    progress.predicted_us = engine_predicted_us(r->engine);
    progress.running = load.running;
    progress.waiting = load.waiting;
    progress.free_blocks = load.free_blocks;
    progress.n_blocks = load.n_blocks;
    progress.preemptions = load.preemptions;
    progress.prefix_queries = load.prefix_queries;
    progress.prefix_hits = load.prefix_hits;
    progress.prompt_tokens = load.prompt_tokens;
    progress.generated_tokens = load.generated_tokens;
    progress.step_tokens = load.step_tokens;
    progress.n_steps_of_size = STEP_SIZES;
    progress.steps_of_size = load.steps_of_size;
    add_times(r, &progress);
    frame.body_case = STOA__WIRE__FRAME__BODY_PROGRESS;
    frame.progress = &progress;
    wire_server_send(r->server, WIRE_ALL, &frame);
    r->next_progress_s = seconds_now() + (r->first ? PROGRESS_S : IDLE_BEAT_S);
}

/* ---- requests ---- */
static struct replica_request **find(struct replica *r, uint64_t connection, uint64_t number)
{
    for (struct replica_request **link = &r->first; *link; link = &(*link)->next)
        if ((*link)->connection == connection && (*link)->number == number)
            return link;
    return NULL;
}

static void forget(struct replica *r, struct replica_request **link)
{
    struct replica_request *request = *link;
    *link = request->next;
    r->n_requests--;
    engine_remove(r->engine, request->sequence);
    free(request);
}

static Stoa__Wire__Reason reason(enum sequence_end end)
{
    switch (end) {
    case SEQUENCE_END_STOP:
        return STOA__WIRE__REASON__REASON_STOP;
    case SEQUENCE_END_CANCELLED:
        return STOA__WIRE__REASON__REASON_CANCELLED;
    case SEQUENCE_END_FAILED:
        return STOA__WIRE__REASON__REASON_FAILED;
    default:
        return STOA__WIRE__REASON__REASON_LENGTH;
    }
}

/* The last word on a request, and its end. */
static void end(struct replica *r, struct replica_request **link, Stoa__Wire__Reason why, const char *text)
{
    struct replica_request *request = *link;
    Stoa__Wire__Finish f = STOA__WIRE__FINISH__INIT;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    f.request = request->number;
    f.reason = why;
    f.stop_id = why == STOA__WIRE__REASON__REASON_STOP ? (uint32_t)sequence_stop_id(request->sequence) : 0;
    f.cached_tokens = sequence_n_cached(request->sequence);
    f.preemptions = sequence_n_preemptions(request->sequence);
    f.error = copy;
    finish(r, request->connection, &f);
    forget(r, link);
}

static void end_those_that_are_done(struct replica *r)
{
    double now_s = seconds_now();
    for (struct replica_request **link = &r->first; *link;) {
        struct sequence *s = (*link)->sequence;
        if (sequence_is_done(s))
            end(r, link, reason(sequence_end(s)), sequence_error(s) < 0 ? error_text() : "");
        else if (now_s >= (*link)->give_up_s && sequence_is_queued(s))
            end(r, link, STOA__WIRE__REASON__REASON_TIMEOUT, "it has waited for too long");
        else
            link = &(*link)->next;
    }
}

/* ---- what comes in ---- */
static int copy_bias(struct replica *r, const Stoa__Wire__Sampling *from)
{
    if (from->n_bias > r->bias_room) {
        struct logit_bias *more = realloc(r->bias, from->n_bias * sizeof *more);
        if (!more)
            return error_set(ERR_NO_MEMORY, "no memory for %zu biases", from->n_bias);
        r->bias = more;
        r->bias_room = from->n_bias;
    }
    for (size_t i = 0; i < from->n_bias; i++)
        r->bias[i] = (struct logit_bias){ .id = (int32_t)from->bias[i]->id, .add = from->bias[i]->add };
    return 0;
}

/* Prompt and answer so far, one after the other. */
static int copy_tokens(struct replica *r, const Stoa__Wire__Submit *s)
{
    uint32_t context = engine_context(r->engine);
    if (s->n_prompt > context || s->n_so_far > context - s->n_prompt)
        return error_set(ERR_USAGE, "%zu tokens are more than the context of %u", s->n_prompt + s->n_so_far, context);
    if (s->n_prompt)
        memcpy(r->tokens, s->prompt, s->n_prompt * sizeof *r->tokens);
    if (s->n_so_far)
        memcpy(r->tokens + s->n_prompt, s->so_far, s->n_so_far * sizeof *r->tokens);
    return 0;
}

static struct sample_params params(const Stoa__Wire__Sampling *s)
{
    return (struct sample_params){ .temperature = s->temperature, .top_p = s->top_p, .min_p = s->min_p, .top_k = s->top_k,
                                   .choice = s->choice, .seed = s->seed };
}

/* The wire's counts are of the whole answer, the engine's of what is still to come. */
static int add_sequence(struct replica *r, struct replica_request *request, const Stoa__Wire__Submit *s)
{
    const Stoa__Wire__Sampling none = STOA__WIRE__SAMPLING__INIT, *sampling = s->sampling ? s->sampling : &none;
    uint32_t n_so_far = (uint32_t)s->n_so_far, n_tokens = (uint32_t)s->n_prompt + n_so_far;
    int err;
    if ((err = copy_tokens(r, s)) < 0 || (err = copy_bias(r, sampling)) < 0)
        return err;
    struct sequence_request q = {
        .tokens = r->tokens, .n_tokens = n_tokens, .n_generated = n_so_far,
        .n_new = MIN(s->max_tokens - MIN(s->max_tokens, n_so_far), engine_context(r->engine) - n_tokens),
        .min_new = s->min_tokens - MIN(s->min_tokens, n_so_far),
        .params = params(sampling), .client = s->client, .priority = s->priority,
        .salt = { s->cache_salt.len ? s->cache_salt.data : NULL, s->cache_salt.len },
        .penalties = { sampling->repetition_penalty, sampling->frequency_penalty, sampling->presence_penalty },
        .bias = r->bias, .n_bias = (uint32_t)sampling->n_bias,
        .stop_ids = (const int32_t *)s->stop_ids, .n_stop_ids = (uint32_t)s->n_stop_ids,
        .wants_logprobs = s->logprobs, .n_top = s->logprobs ? s->top_logprobs : 0,
        .on_token = on_token, .user = request,
    };
    return engine_add(r->engine, &request->sequence, &q);
}

static void submit(struct replica *r, const struct wire_event *event)
{
    if (r->end_s < INFINITY) {
        refuse(r, event, true, "the replica is about to end");
        return;
    }
    if (r->n_requests >= r->options->max_requests) {
        refuse(r, event, true, "as many requests are in work and waiting as may be");
        return;
    }
    struct replica_request *request = calloc(1, sizeof *request);
    int err = request ? 0 : error_set(ERR_NO_MEMORY, "no memory for a request");
    if (!err) {
        *request = (struct replica_request){ .replica = r, .connection = event->connection, .number = event->request,
                                              .give_up_s = INFINITY };
        if (event->submit->queue_ms)
            request->give_up_s = seconds_now() + event->submit->queue_ms / 1000.0;
        err = add_sequence(r, request, event->submit);
    }
    if (err < 0) {
        refuse(r, event, err != ERR_USAGE, error_text());
        free(request);
        return;
    }
    if (!r->first)                      /* fronts believe that nothing runs */
        r->next_progress_s = MIN(r->next_progress_s, seconds_now() + PROGRESS_S);
    request->next = r->first;
    r->first = request;
    r->n_requests++;
}

static void take(struct replica *r, const struct wire_event *event)
{
    struct replica_request **link = event->kind == WIRE_GONE ? &r->first : find(r, event->connection, event->request);
    switch (event->kind) {
    case WIRE_SUBMIT:
        if (link)
            wire_server_drop(r->server, event->connection, "it has two requests of one number");
        else
            submit(r, event);
        break;
    case WIRE_CANCEL:
        if (link)                       /* else it has just ended */
            end(r, link, STOA__WIRE__REASON__REASON_CANCELLED, "");
        break;
    case WIRE_GONE:
        while (*link)
            if ((*link)->connection == event->connection)
                forget(r, link);
            else
                link = &(*link)->next;
    }
}

/* All that has come; when there is nothing to compute, waits until something does or something is due. */
static void take_all(struct replica *r)
{
    double wait_s = r->first ? 0 : MAX(r->next_progress_s - seconds_now(), 0);
    struct wire_event *event;
    while ((event = wire_server_take(r->server, (int)ceil(wait_s * 1000)))) {
        take(r, event);
        wire_event_free(event);
        wait_s = 0;
    }
}

/* ---- the loop ---- */
/* In the stress build (make stress) all that is always true is looked at after whatever may break it. */
static void check_all(const struct replica *r)
{
#ifdef STRESS
    engine_check(r->engine);
#else
    (void)r;
#endif
}

static void look_for_the_end(struct replica *r)
{
    struct pollfd fd = { .fd = r->options->end_fd, .events = POLLIN };
    char byte;
    if (fd.fd < 0 || r->end_s < INFINITY || poll(&fd, 1, 0) <= 0 || read(fd.fd, &byte, 1) != 1)
        return;
    r->end_s = seconds_now() + r->options->drain_ms / 1000.0;
    log_info("the replica takes no more requests, and ends when those that run have ended");
}

static int step(struct replica *r)
{
    int err = engine_step(r->engine);
    check_all(r);
    if (err < 0 || (err = outbox_send(&r->outbox, r->server)) < 0)
        return err;
    if (!r->is_measured && engine_predicted_us(r->engine)) {    /* from now on fronts wait as long as steps take, not half a minute */
        r->is_measured = true;
        send_progress(r);
    }
    end_those_that_are_done(r);
    return 0;
}

static int loop(struct replica *r)
{
    int err = 0;
    while (!err) {
        take_all(r);
        check_all(r);
        look_for_the_end(r);
        if (seconds_now() >= r->end_s || (r->end_s < INFINITY && !r->first))
            return 0;
        bool is_idle = !r->first, is_due = seconds_now() >= r->next_progress_s;
        err = !is_idle ? step(r) : is_due ? engine_beat(r->engine) : 0;
        if (!err && (is_due || (!is_idle && !r->first)))        /* what fronts know of one that is idle is so */
            send_progress(r);
    }
    return err;
}

/* ---- open and close ---- */
static int open_server(struct replica *r)
{
    uint32_t n_ranks = (uint32_t)engine_n_ranks(r->engine);
    const struct rank_process *from = engine_processes(r->engine);
    Stoa__Wire__Hello hello = STOA__WIRE__HELLO__INIT;
    struct wire_server_options options = { .address = r->options->address, .epoch = r->options->epoch, .hello = &hello };
    Stoa__Wire__Process *process = calloc(n_ranks, sizeof *process), **list = calloc(n_ranks, sizeof *list);
    int err = process && list ? 0 : error_set(ERR_NO_MEMORY, "no memory for the Hello");
    for (uint32_t i = 0; !err && i < n_ranks; i++) {
        process[i] = (Stoa__Wire__Process)STOA__WIRE__PROCESS__INIT;
        process[i].host = (char *)(uintptr_t)from[i].host;
        process[i].pid = (uint32_t)from[i].pid;
        process[i].start_time = from[i].start_time;
        list[i] = &process[i];
    }
    hello.numerics = (char *)(uintptr_t)r->options->numerics;
    hello.model = (char *)(uintptr_t)r->options->model;
    hello.context = engine_longest(r->engine);
    hello.n_vocab = engine_model(r->engine)->n_vocab;
    hello.block_tokens = BLOCK_TOKENS;
    hello.max_sequences = r->options->max_sequences;
    hello.processes = list;
    hello.n_processes = n_ranks;
    if (!err)
        err = wire_server_open(&r->server, &options);
    free(process);
    free(list);
    return err;
}

int replica_run(struct engine *e, const struct replica_options *options)
{
    struct replica r = { .engine = e, .options = options, .end_s = INFINITY };
    r.tokens = calloc(engine_context(e), sizeof *r.tokens);
    r.time = calloc((size_t)engine_n_ranks(e), sizeof *r.time);
    r.times = calloc((size_t)engine_n_ranks(e), sizeof *r.times);
    int err = r.tokens && r.time && r.times ? open_server(&r) : error_set(ERR_NO_MEMORY, "no memory for the replica");
    if (!err) {
        log_info("the replica listens on %s", wire_server_address(r.server));
        wire_server_wake_by(r.server, options->end_fd);
        err = loop(&r);
    }
    while (r.first)
        if (err < 0)
            forget(&r, &r.first);
        else
            end(&r, &r.first, STOA__WIRE__REASON__REASON_FAILED, "the replica has ended before the answer was complete");
    wire_server_close(r.server);
    outbox_release(&r.outbox);
    free(r.tokens);
    free(r.time);
    free(r.times);
    free(r.bias);
    return err;
}
