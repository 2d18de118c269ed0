/* request.c: one request to generate, from its body to its last byte; request_impl.h draws its states. */
#include "front/request_impl.h"

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

/* ---- the end ------------------------------------------------------------------------------------------------------------ */
/* Forgets it, whatever it was at; the exchange is not touched. */
static void request_end_for(struct request *r, enum request_end end, int status, const char *why)
{
    struct front *f = r->front;
    request_tell_end(r, end, status, why);
    request_cancel(r);
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

void request_refuse(struct request *r, int status, const char *why)
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

void request_go_on(struct request *r)
{
    if (answer_is_over(r->answer))
        answer_is_complete(r);
    else if (r->has_headers)
        http_stream_wake(r->x);
}

void request_fail(struct request *r, const struct api_error *error)
{
    if (!r->answer || !r->has_headers) {
        refuse(r, END_ERROR, error);
        return;
    }
    request_cancel(r);
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

void requests_fail(struct front *f, const struct api_error *error)
{
    for (struct request *r = f->first, *next; r; r = next) {
        next = r->next;
        if (!r->is_with_worker && !answer_is_over(r->answer))
            request_fail(r, error);
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
    bool is_over = answer_is_over(r->answer);       /* no tokens were asked for */
    if (!is_over)
        request_send(r);
    if (r->is_stream)
        begin_stream(r);
    else if (is_over)
        answer_is_complete(r);
}

/* Each once, whoever asks. */
static void tell_oddities(struct request *r)
{
    struct front *f = r->front;
    names_tell(&f->odd, r->api->odd, r->api->n_odd_bytes);
    if (r->api->is_cut && !f->has_told_cut)
        log_info("%s asks for more tokens than the context of %u leaves, and has what it leaves; so have others, which are not logged",
                 r->id, f->model.context);
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
        refuse(r, r->error.status < 500 ? END_BAD_REQUEST : END_REFUSED, &r->error);
        return;
    }
    tell_oddities(r);
    uint32_t n_choices = r->api->n_prompts * r->api->n;
    if (f->is_draining) {
        request_refuse(r, 503, unready);
    } else if (n_choices > f->options->max_queue) {
        api_refuse(&r->error, "n", "%u answers are more than this server's queue of %u holds", n_choices, f->options->max_queue);
        refuse(r, END_BAD_REQUEST, &r->error);
    } else if (!take_places(r, n_choices)) {
        request_refuse(r, 429, "too many requests are in work; try again");
    } else if (open_answer(r, n_choices) < 0) {
        request_refuse(r, 503, "out of memory for the request");
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
    log_info("%s %s %d %s: %s", http_request_id(x), request_kind_name(kind), status, request_end_names[END_REFUSED], why);
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
        refuse_at_once(f, x, kind, 503, "out of memory for the request");
        return;
    }
    r->body = http_take_body(x, &r->n_body);
    r->front = f;
    r->x = x;
    snprintf(r->id, sizeof r->id, "%s", http_request_id(x));
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
