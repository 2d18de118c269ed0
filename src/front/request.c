/* request.c: one request to generate, from its body to its last byte.
 *
 *   READING ──read──> WAITING ──replica is up──> RUNNING ──tokens of all choices──> WRITING, or the stream's rest ──> gone
 *                        ^                          │
 *                        └──────replica died────────┘   at most once, and not when a byte of the answer has been sent
 *
 *   READING   the body is on a worker, with no pointer to the exchange: the client may leave meanwhile
 *   WAITING   answer and places are there; no choice has a ticket
 *   RUNNING   every choice that is not done has a ticket, and the replica its number
 *   WRITING   a worker makes the body of the answer, which is the worker's meanwhile
 *
 * Whoever calls http_answer(), http_stream_wake() or http_stream_end() does it last: the request may be gone after. */
#include "front/answer.h"
#include "front/front_impl.h"

#include "base/base.h"
#include "base/discard.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { STREAM_PIECE = 8192 };           /* with log-probabilities the loop is held up by a millisecond for some KB */

struct choice {
    uint64_t number;                    /* the replica's; 0: it does not have it */
    double last_s;                      /* when its last token came */
    uint32_t n_tokens;
};

struct request {
    struct front *front;
    struct http_exchange *x;            /* NULL: the client is gone */
    struct request *previous, *next;
    enum api_kind kind;
    char *body;
    size_t n_body;
    uint32_t client;                    /* its key's number; 0: none */

    struct worker_job job;
    bool is_with_worker;                /* READING, WRITING: the job's done() comes, unless on_gone() can take it back */
    struct api_request *api;            /* until the answer has it */
    struct api_error error;
    bool is_bad;

    struct answer *answer;              /* NULL: READING */
    struct buffer whole;                /* the body that is being made */
    struct choice *choices;
    uint32_t n_choices, n_places;
    uint64_t fairness;
    bool is_stream, has_headers, wants_comment;
    int n_deaths;
    struct timer keep_alive;
    int64_t sent_ms;                    /* the last bytes of a stream */
    double arrived_s, first_s, last_s;  /* the first and last token; 0: none yet */
    double queue_s, prefill_s;          /* of the first token, as the replica says */
    uint32_t n_tokens;                  /* that came, over all choices */
};

/* ---- tickets: from the replica's numbers to choices ---------------------------------------------------------------------- */
struct ticket {
    struct request *request;            /* NULL: free */
    uint32_t choice;
    uint32_t generation;                /* so that late frames of an old ticket find nobody */
    uint32_t next_free;
};

static uint64_t ticket_take(struct front *f, struct request *r, uint32_t choice)
{
    if (!f->free_ticket) {
        uint32_t n = f->n_tickets ? 2 * f->n_tickets : 64;
        struct ticket *more = realloc(f->tickets, n * sizeof *more);
        if (!more)
            return 0;
        for (uint32_t i = n; i-- > f->n_tickets;) {
            more[i] = (struct ticket){ .next_free = f->free_ticket };
            f->free_ticket = i + 1;
        }
        f->tickets = more;
        f->n_tickets = n;
    }
    uint32_t place = f->free_ticket - 1;
    struct ticket *t = &f->tickets[place];
    f->free_ticket = t->next_free;
    *t = (struct ticket){ .request = r, .choice = choice, .generation = t->generation + 1 };
    return (uint64_t)t->generation << 32 | place;
}

static struct ticket *ticket_find(const struct front *f, uint64_t number)
{
    uint32_t place = (uint32_t)number;
    struct ticket *t = place < f->n_tickets ? &f->tickets[place] : NULL;
    return t && t->request && t->generation == number >> 32 ? t : NULL;
}

static void ticket_return(struct front *f, struct choice *c)
{
    struct ticket *t = c->number ? ticket_find(f, c->number) : NULL;
    c->number = 0;
    if (!t)
        return;
    t->request = NULL;
    t->next_free = f->free_ticket;
    f->free_ticket = (uint32_t)(t - f->tickets) + 1;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */
/* The replica's Finish is still to come. */
static void send_cancel(struct request *r, const struct choice *c)
{
    Stoa__Wire__Cancel body = STOA__WIRE__CANCEL__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    body.request = c->number;
    frame.body_case = STOA__WIRE__FRAME__BODY_CANCEL;
    frame.cancel = &body;
    supervisor_send(r->front->supervisor, &frame);      /* a replica that does not hear it is dead, or about to be */
}

/* Nobody waits for it. */
static void cancel(struct request *r, struct choice *c)
{
    if (c->number)
        send_cancel(r, c);
    ticket_return(r->front, c);
}

static void cancel_all(struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++)
        cancel(r, &r->choices[i]);
}

/* What the replica did with it: with n choices from the first token of any to the last of all. */
static void observe_times(const struct request *r)
{
    struct metrics *m = &r->front->metrics;
    metrics_observe(m, HISTOGRAM_QUEUE, r->queue_s);
    metrics_observe(m, HISTOGRAM_PREFILL, r->prefill_s);
    metrics_observe(m, HISTOGRAM_DECODE, r->last_s - r->first_s);
    metrics_observe(m, HISTOGRAM_INFERENCE, r->prefill_s + r->last_s - r->first_s);
}

static void observe_end(struct request *r)
{
    struct metrics *m = &r->front->metrics;
    struct answer_usage usage = answer_usage(r->answer);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < r->n_choices; i++)
        longest = MAX(longest, r->choices[i].n_tokens);
    metrics_observe(m, HISTOGRAM_LONGEST, longest);
    metrics_observe(m, HISTOGRAM_WHOLE, seconds_now() - r->arrived_s);
    metrics_observe(m, HISTOGRAM_PROMPT_TOKENS, usage.prompt_tokens);
    metrics_observe(m, HISTOGRAM_NEW_TOKENS, r->n_tokens);
    metrics_observe(m, HISTOGRAM_MAX_TOKENS, answer_request(r->answer)->prompts[0].max_tokens);
    metrics_observe(m, HISTOGRAM_N, answer_request(r->answer)->n);
    if (r->first_s > 0)
        observe_times(r);
    if (r->n_tokens > r->n_choices)
        metrics_observe(m, HISTOGRAM_PER_TOKEN, (r->last_s - r->first_s) * r->n_choices / (r->n_tokens - r->n_choices));
}

static const char *kind_name(enum api_kind kind)
{
    return kind == API_CHAT ? "chat" : "completion";
}

/* One line, without what was said. */
static void tell(const struct request *r, enum request_end end, int status, const char *why)
{
    struct answer_usage usage = r->answer ? answer_usage(r->answer) : (struct answer_usage){ 0 };
    char first[32] = "-";
    if (r->first_s > 0)
        snprintf(first, sizeof first, "%.3f s", r->first_s - r->arrived_s);
    log_info("%s %s %d %s%s: %zu bytes, %u choices, %u prompt tokens (%u cached), %u new, first after %s, %.3f s%s%s",
             r->x ? http_request_id(r->x) : "(gone)", kind_name(r->kind), status, request_end_names[end],
             r->is_stream ? " stream" : "", r->n_body, r->n_choices, usage.prompt_tokens, usage.cached_tokens, r->n_tokens, first,
             seconds_now() - r->arrived_s, why ? ": " : "", why ? why : "");
}

/* Forgets it, whatever it was at; the exchange is not touched. */
static void request_end_for(struct request *r, enum request_end end, int status, const char *why)
{
    struct front *f = r->front;
    tell(r, end, status, why);
    f->metrics.ends[end]++;
    if (r->answer && end <= END_LENGTH) {
        observe_end(r);
        f->metrics.choices += r->n_choices;
    }
    cancel_all(r);
    *(r->previous ? &r->previous->next : &f->first) = r->next;
    if (r->next)
        r->next->previous = r->previous;
    f->n_places -= r->n_places;
    timer_clear(f->loop, &r->keep_alive);
    answer_close(r->answer);
    api_request_close(r->api);
    free(r->choices);
    http_give_back(f->http, r->body, r->n_body);
    free(r);
    front_request_ended(f);
}

static void request_end(struct request *r, enum request_end end, int status)
{
    request_end_for(r, end, status, NULL);
}

/* What the log may say: of a client's mistake the field, since the message may quote the client. */
static const char *reason_to_tell(const struct api_error *error)
{
    return error->status >= 429 ? error->message : error->code ? error->code : error->param;
}

/* Before headers were sent. */
static void refuse(struct request *r, enum request_end end, const struct api_error *error)
{
    struct http_exchange *x = r->x;
    struct api_error copy = *error;
    request_end_for(r, end, copy.status, reason_to_tell(&copy));
    front_answer_error(x, &copy);
}

static void refuse_for(struct request *r, int status, const char *why)
{
    struct api_error error = front_error(status, why);
    refuse(r, END_REFUSED, &error);
}

static enum request_end how_it_ended(const struct request *r)
{
    if (answer_error(r->answer))
        return END_ERROR;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const char *reason = answer_finish_reason(r->answer, i);
        if (reason && !strcmp(reason, "length"))
            return END_LENGTH;
    }
    return END_STOP;
}

static void give_to_worker(struct request *r, void (*work)(struct worker_job *), void (*done)(struct worker_job *), size_t n_bytes)
{
    r->job = (struct worker_job){ .work = work, .done = done };
    r->is_with_worker = true;
    workers_add(r->front->workers, &r->job, n_bytes);
}

static void write_whole(struct worker_job *job)
{
    struct request *r = CONTAINER_OF(job, struct request, job);
    answer_whole(r->answer, &r->whole);
}

static void on_written(struct worker_job *job)
{
    struct request *r = CONTAINER_OF(job, struct request, job);
    struct http_exchange *x = r->x;
    struct http_server *http = r->front->http;
    struct buffer whole = r->whole;
    r->is_with_worker = false;
    if (!x) {
        request_end(r, END_ABORT, 499);
        http_give_back(http, whole.bytes, whole.size);
    } else {
        request_end(r, whole.failed ? END_ERROR : how_it_ended(r), whole.failed ? 500 : 200);
        http_answer_buffer(x, 200, "application/json", &whole);
    }
}

/* Some bytes of its body for each token, and of what else is told of a token. */
static size_t bytes_to_write(const struct request *r)
{
    const struct api_request *api = answer_request(r->answer);
    return (size_t)r->n_tokens * (api->logprobs ? 128 * (1 + (size_t)api->top_logprobs) : 8);
}

/* Nothing more will come: the body, or the stream's last part. */
static void answer_is_complete(struct request *r)
{
    const struct api_error *error = answer_error(r->answer);
    if (r->has_headers)
        http_stream_wake(r->x);
    else if (error)
        refuse(r, END_ERROR, error);
    else
        give_to_worker(r, write_whole, on_written, bytes_to_write(r));
}

/* After something came in for its answer. */
static void go_on(struct request *r)
{
    if (answer_is_over(r->answer))
        answer_is_complete(r);
    else if (r->has_headers)
        http_stream_wake(r->x);
}

static void fail(struct request *r, const struct api_error *error)
{
    if (!r->answer || !r->has_headers) {
        refuse(r, END_ERROR, error);
        return;
    }
    cancel_all(r);
    answer_fail(r->answer, error);
    http_stream_wake(r->x);
}

static void on_gone(void *user)
{
    struct request *r = user;
    if (r->is_with_worker && !workers_take_back(r->front->workers, &r->job))
        r->x = NULL;
    else
        request_end(r, END_ABORT, 499);
}

/* ---- a stream ----------------------------------------------------------------------------------------------------------- */
static void fill(struct buffer *out, void *user)
{
    struct request *r = user;
    size_t before = out->size;
    answer_stream(r->answer, out, STREAM_PIECE);
    if (out->size == before && r->wants_comment)
        buffer_add_text(out, ": keep-alive\n\n");
    r->wants_comment = false;
    if (out->size > before)
        r->sent_ms = loop_now_ms(r->front->loop);
    if (answer_stream_is_over(r->answer)) {
        struct http_exchange *x = r->x;
        request_end(r, how_it_ended(r), 200);
        http_stream_end(x);
    }
}

static void on_quiet(struct timer *timer)
{
    struct request *r = CONTAINER_OF(timer, struct request, keep_alive);
    int64_t now = loop_now_ms(r->front->loop), quiet_ms = 1000 * (int64_t)r->front->options->keep_alive_s, due = r->sent_ms + quiet_ms;
    bool is_due = due <= now;
    timer_set(r->front->loop, timer, is_due ? now + quiet_ms : due);
    if (is_due) {
        r->wants_comment = true;
        http_stream_wake(r->x);
    }
}

static void begin_stream(struct request *r)
{
    struct front *f = r->front;
    r->has_headers = true;
    r->sent_ms = loop_now_ms(f->loop);
    r->keep_alive.due = on_quiet;
    if (f->options->keep_alive_s > 0)
        timer_set(f->loop, &r->keep_alive, r->sent_ms + 1000 * (int64_t)f->options->keep_alive_s);
    http_add_header(r->x, "Cache-Control", "no-cache");
    http_add_header(r->x, "X-Accel-Buffering", "no");
    http_stream_begin(r->x, 200, "text/event-stream", fill, r);
}

/* ---- the replica -------------------------------------------------------------------------------------------------------- */
static int submit_choice(struct request *r, uint32_t i)
{
    struct front *f = r->front;
    Stoa__Wire__Submit body = STOA__WIRE__SUBMIT__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    answer_submit(r->answer, i, &body);
    body.request = r->choices[i].number = ticket_take(f, r, i);
    body.client = r->fairness;
    frame.body_case = STOA__WIRE__FRAME__BODY_SUBMIT;
    frame.submit = &body;
    return body.request ? supervisor_send(f->supervisor, &frame) : error_set(ERR_NO_MEMORY, "out of memory for the request");
}

/* WAITING to RUNNING.  A connection that is just being lost leaves it WAITING for the next.  False: the request is gone, or has failed. */
static bool submit(struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        int err = answer_finish_reason(r->answer, i) ? 0 : submit_choice(r, i);
        if (err == ERR_PEER) {
            ticket_return(r->front, &r->choices[i]);
        } else if (err < 0) {
            struct api_error error = front_error(503, error_text());
            fail(r, &error);
            return false;
        }
    }
    return true;
}

void requests_replica_up(struct front *f)
{
    for (struct request *r = f->first, *next; r; r = next) {
        next = r->next;
        if (!r->is_with_worker && !answer_is_over(r->answer))
            submit(r);
    }
}

/* A choice that has ended lacks only its Finish. */
static void lose_choice(struct request *r, uint32_t i)
{
    Stoa__Wire__Finish finish = STOA__WIRE__FINISH__INIT;
    ticket_return(r->front, &r->choices[i]);
    finish.reason = STOA__WIRE__REASON__REASON_CANCELLED;
    if (answer_finish_reason(r->answer, i))
        answer_take_finish(r->answer, i, &finish);
}

/* Else it only waits for a replica, and has nothing to do with the death of one that did not even start. */
static bool is_at_replica(const struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].number)
            return true;
    return false;
}

static void replica_died(struct request *r)
{
    bool is_second = ++r->n_deaths > 1;
    struct api_error error = front_error(503, is_second ? "the replica died twice under this request, which is not tried again"
                                                        : "the replica that computed this answer died; what came before is not all of it");
    error.code = "replica_lost";
    for (uint32_t i = 0; i < r->n_choices; i++)
        lose_choice(r, i);
    if (answer_is_over(r->answer))
        answer_is_complete(r);
    else if (is_second || answer_has_begun(r->answer))
        fail(r, &error);
}

void requests_replica_down(struct front *f)
{
    for (struct request *r = f->first, *next; r; r = next) {
        next = r->next;
        if (!r->is_with_worker && !answer_is_over(r->answer) && is_at_replica(r))
            replica_died(r);
    }
}

static void count_token(struct request *r, struct choice *c, const Stoa__Wire__Token *token)
{
    struct metrics *m = &r->front->metrics;
    double now = seconds_now();
    if (!r->first_s) {
        r->first_s = now;
        r->queue_s = token->queue_us / 1e6;
        r->prefill_s = token->prefill_us / 1e6;
        m->prompt_tokens += answer_usage(r->answer).prompt_tokens;
        metrics_observe(m, HISTOGRAM_FIRST_TOKEN, now - r->arrived_s);
    }
    if (c->last_s > 0)
        metrics_observe(m, HISTOGRAM_BETWEEN_TOKENS, now - c->last_s);
    c->last_s = r->last_s = now;
    m->generation_tokens++;
    r->n_tokens++;
    c->n_tokens++;
}

static void take_token(struct front *f, const Stoa__Wire__Token *token)
{
    struct ticket *t = ticket_find(f, token->request);
    if (!t)
        return;
    struct request *r = t->request;
    struct choice *c = &r->choices[t->choice];
    count_token(r, c, token);
    if (answer_take_token(r->answer, t->choice, token))
        send_cancel(r, c);
    go_on(r);
}

void requests_take_tokens(struct front *f, const Stoa__Wire__Tokens *tokens)
{
    for (size_t i = 0; i < tokens->n_token; i++)
        take_token(f, tokens->token[i]);
}

/* The replica has no room, and nothing has been sent: come again. */
static bool may_be_refused(const struct request *r, const Stoa__Wire__Finish *finish)
{
    return finish->reason == STOA__WIRE__REASON__REASON_REFUSED && finish->is_full && !r->has_headers;
}

void requests_take_finish(struct front *f, const Stoa__Wire__Finish *finish)
{
    struct ticket *t = ticket_find(f, finish->request);
    if (!t)
        return;
    struct request *r = t->request;
    uint32_t choice = t->choice;
    ticket_return(f, &r->choices[choice]);
    if (may_be_refused(r, finish)) {
        refuse_for(r, 429, "the queue is full; try again");
        return;
    }
    answer_take_finish(r->answer, choice, finish);
    if (answer_error(r->answer))
        cancel_all(r);
    go_on(r);
}

void requests_fail(struct front *f, const struct api_error *error)
{
    for (struct request *r = f->first, *next; r; r = next) {
        next = r->next;
        if (!r->is_with_worker && !answer_is_over(r->answer))
            fail(r, error);
    }
}

/* ---- the beginning ------------------------------------------------------------------------------------------------------- */
static void read_body(struct worker_job *job)
{
    struct request *r = CONTAINER_OF(job, struct request, job);
    r->is_bad = api_read(&r->api, r->kind, &r->front->model, r->body ? r->body : "", r->n_body, &r->error) < 0;
    discard_now(r->body, r->n_body);
    r->body = NULL;
}

/* Each choice takes a place; the first has been taken at the arrival. */
static bool take_places(struct request *r, uint32_t n_choices)
{
    struct front *f = r->front;
    uint32_t more = n_choices - r->n_places;
    if (more > f->options->max_queue - f->n_places)
        return false;
    f->n_places += more;
    r->n_places += more;
    return true;
}

static int open_answer(struct request *r, uint32_t n_choices)
{
    struct front *f = r->front;
    struct api_request *api = r->api;
    char id[40];
    snprintf(id, sizeof id, "%016llx%08llx", (unsigned long long)random_u64(f->id_key, f->n_ids),
             (unsigned long long)(f->n_ids & 0xffffffff));
    f->n_ids++;
    if (!api->has_seed && getrandom(&api->seed, sizeof api->seed, 0) != sizeof api->seed)
        return -1;
    if (!(r->choices = calloc(n_choices, sizeof *r->choices)))
        return -1;
    r->n_choices = n_choices;
    r->is_stream = api->stream;
    r->api = NULL;
    return answer_open(&r->answer, api, &f->model, id, (int64_t)time(NULL));
}

static void begin(struct request *r)
{
    if (supervisor_is_up(r->front->supervisor) && !submit(r))
        return;
    if (r->is_stream)
        begin_stream(r);
    else if (answer_is_over(r->answer))
        answer_is_complete(r);          /* no tokens were asked for */
}

/* Each once, whoever asks. */
static void tell_oddities(struct request *r)
{
    struct front *f = r->front;
    for (uint32_t i = 0; i < r->api->n_unknown; i++)
        names_tell(&f->unknown, r->api->unknown[i]);
    if (r->api->is_cut && !f->has_told_cut)
        log_info("%s asks for more tokens than the context of %u leaves, and has what it leaves; so have others, which are not logged",
                 http_request_id(r->x), f->model.context);
    f->has_told_cut |= r->api->is_cut;
}

/* READING to WAITING, or an end. */
static void on_read(struct worker_job *job)
{
    struct request *r = CONTAINER_OF(job, struct request, job);
    struct front *f = r->front;
    const char *unready = front_is_unready(f);
    r->is_with_worker = false;
    if (!r->x) {
        request_end(r, END_ABORT, 499);
        return;
    }
    if (r->is_bad) {
        refuse(r, END_BAD_REQUEST, &r->error);
        return;
    }
    tell_oddities(r);
    uint32_t n_choices = r->api->n_prompts * r->api->n;
    if (f->is_draining) {
        refuse_for(r, 503, unready);
    } else if (n_choices > f->options->max_queue) {
        api_refuse(&r->error, "n", "%u answers are more than this server's queue of %u holds", n_choices, f->options->max_queue);
        refuse(r, END_BAD_REQUEST, &r->error);
    } else if (!take_places(r, n_choices)) {
        refuse_for(r, 429, "too many requests are in work; try again");
    } else if (open_answer(r, n_choices) < 0) {
        refuse_for(r, 503, "out of memory for the request");
    } else {
        begin(r);
    }
}

/* Who shares with whom: a key, else an address. */
static uint64_t client_hash(const struct request *r)
{
    uint64_t hash = r->client;
    for (const char *c = r->client ? "" : http_client_address(r->x); *c; c++)
        hash = random_mix(hash + (unsigned char)*c + 1);
    return hash;
}

static void refuse_at_once(struct front *f, struct http_exchange *x, enum api_kind kind, int status, const char *why)
{
    struct api_error error = front_error(status, why);
    log_info("%s %s %d %s: %s", http_request_id(x), kind_name(kind), status, request_end_names[END_REFUSED], why);
    f->metrics.ends[END_REFUSED]++;
    front_answer_error(x, &error);
}

void request_begin(struct front *f, struct http_exchange *x, enum api_kind kind)
{
    const char *unready = front_is_unready(f);
    if (unready || f->n_places >= f->options->max_queue) {
        refuse_at_once(f, x, kind, unready ? 503 : 429, unready ? unready : "too many requests are in work; try again");
        return;
    }
    struct request *r = calloc(1, sizeof *r);
    if (!r) {
        http_answer_error(x, 503, "out of memory for the request");
        return;
    }
    r->body = http_take_body(x, &r->n_body);
    r->front = f;
    r->x = x;
    r->kind = kind;
    r->arrived_s = seconds_now();
    r->client = f->auth ? auth_find(f->auth, http_header(x, "Authorization")) : 0;
    r->fairness = client_hash(r);
    r->n_places = 1;
    f->n_places++;
    r->next = f->first;
    if (r->next)
        r->next->previous = r;
    f->first = r;
    http_on_gone(x, on_gone, r);
    give_to_worker(r, read_body, on_read, r->n_body);
}
