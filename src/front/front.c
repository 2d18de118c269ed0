#include "front/front_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FLUSH_MS = 1000 };               /* for the last bytes of answers, when all requests have ended */

/* ---- the replica speaks -------------------------------------------------------------------------------------------------- */
static void take_progress(struct front *f, const Stoa__Wire__Progress *p)
{
    struct metrics *m = &f->metrics;
    m->running = p->running;
    m->waiting = p->waiting;
    m->predicted_step_s = p->predicted_us / 1e6;
    m->kv_usage = p->n_blocks ? 1 - (double)MIN(p->free_blocks, p->n_blocks) / p->n_blocks : 0;
    struct replica_counts counts = { .steps = p->steps, .preemptions = p->preemptions, .prefix_queries = p->prefix_queries,
                                     .prefix_hits = p->prefix_hits, .step_tokens = p->step_tokens };
    for (size_t i = 0; i < MIN(p->n_steps_of_size, REPLICA_STEP_SIZES); i++)
        counts.steps_of_size[i] = p->steps_of_size[i];
    metrics_replica_says(m, &counts);
    for (size_t i = 0; i < p->n_ranks; i++)
        metrics_rank_says(m, p->ranks[i]->rank, &(struct rank_seconds){ p->ranks[i]->compute_s, p->ranks[i]->wait_s, p->ranks[i]->wire_s });
}

static void on_frame(void *user, const Stoa__Wire__Frame *frame)
{
    struct front *f = user;
    switch (frame->body_case) {
    case STOA__WIRE__FRAME__BODY_TOKENS:   requests_take_tokens(f, frame->tokens); break;
    case STOA__WIRE__FRAME__BODY_FINISH:   requests_take_finish(f, frame->finish); break;
    case STOA__WIRE__FRAME__BODY_PROGRESS: take_progress(f, frame->progress); break;
    default: break;
    }
}

static const char *shown_host(const char *host, char *room, size_t size)
{
    snprintf(room, size, strchr(host, ':') ? "[%s]" : "%s", host);
    return room;
}

static void on_up(void *user, const Stoa__Wire__Hello *hello)
{
    struct front *f = user;
    char host[80];
    f->metrics.up = 1;
    metrics_replica_starts(&f->metrics);
    if (!f->is_known) {
        snprintf(f->fingerprint, sizeof f->fingerprint, "%s", hello->numerics);
        f->model.context = hello->context;
        f->model.n_vocab = hello->n_vocab;
        f->is_known = true;
        log_info("ready: %s at http://%s:%u", f->model.name, shown_host(f->options->host, host, sizeof host), http_server_port(f->http));
    } else {
        log_info("replica %llu is up", (unsigned long long)supervisor_epoch(f->supervisor));
    }
    requests_replica_up(f);
}

static void on_down(void *user, const char *why)
{
    struct front *f = user;
    (void)why;
    f->metrics.restarts++;
    f->metrics.up = f->metrics.running = f->metrics.waiting = 0;
    f->metrics.kv_usage = 0;
    requests_replica_down(f);
}

static void on_over(void *user, int code)
{
    struct front *f = user;
    f->code = code;
    f->is_over = true;
    loop_stop(f->loop);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */
/*   serving ──signal──> draining ──no request left──> flushing ──sockets are empty, or FLUSH_MS──> stopping ──no process left──> over
 *                          └──drain_s: what is left fails──^               a second signal: it fails at once ──^
 *
 *   stopping   the loop turns, so that sockets take what they can while the replica's processes end                               */
static void stop(struct front *f)
{
    timer_clear(f->loop, &f->drain);
    supervisor_stop(f->supervisor);
}

static void on_flushed(struct timer *timer)
{
    stop(CONTAINER_OF(timer, struct front, drain));
}

/* New connections are answered, with 503, until all requests have ended. */
static void flush_sockets(struct front *f)
{
    http_server_drain(f->http);
    f->drain.due = on_flushed;
    timer_set(f->loop, &f->drain, loop_now_ms(f->loop) + (http_server_n_connections(f->http) ? FLUSH_MS : 0));
}

void front_request_ended(struct front *f)
{
    if (f->is_draining && !f->is_over && !f->first && f->drain.due != on_flushed)
        flush_sockets(f);
}

static void fail_all(struct front *f)
{
    struct api_error error = front_error(503, "the server ended before this answer was complete");
    error.code = "server_ends";
    requests_fail(f, &error);
}

static void on_patience_over(struct timer *timer)
{
    struct front *f = CONTAINER_OF(timer, struct front, drain);
    fail_all(f);
    if (f->drain.due != on_flushed)
        flush_sockets(f);
}

static void begin_drain(struct front *f)
{
    f->is_draining = true;
    log_info("ending: no new requests, and at most %d s for those in work", f->options->drain_s);
    f->drain.due = on_patience_over;
    timer_set(f->loop, &f->drain, loop_now_ms(f->loop) + 1000 * (int64_t)f->options->drain_s);
    front_request_ended(f);
}

static void end_now(struct front *f)
{
    fail_all(f);
    stop(f);
}

static void on_signal(struct watch *watch, uint32_t events)
{
    struct front *f = CONTAINER_OF(watch, struct front, signals);
    struct signalfd_siginfo info;
    (void)events;
    while (read(watch->fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGCHLD)
            supervisor_child(f->supervisor);
        else if (f->is_draining)
            end_now(f);
        else
            begin_drain(f);
}

/* ---- the process -------------------------------------------------------------------------------------------------------- */
static int take_signals(struct front *f)
{
    static const int ends[] = { SIGTERM, SIGINT, SIGHUP };
    struct sigaction action;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)     /* nohup's stays ignored */
            sigaddset(&signals, ends[i]);
    signal(SIGPIPE, SIG_IGN);           /* who reads the log may leave; the replica inherits this */
    log_never_waits();
    pthread_sigmask(SIG_BLOCK, &signals, &f->old_signals);
    f->signals = (struct watch){ .ready = on_signal, .fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), .events = EPOLLIN };
    return f->signals.fd < 0 ? error_set(ERR_FAILED, "signals cannot be watched") : watch_start(f->loop, &f->signals);
}

static int listen_now(struct front *f)
{
    const struct front_options *o = f->options;
    struct http_options http = { .host = o->host, .port = o->port, .limits = http_usual_limits, .routes = front_routes,
                                 .n_routes = n_front_routes, .user = f, .admit = front_admit, .answered = front_answered,
                                 .cors_origin = o->cors_origin, .error_body = front_error_body };
    char host[80];
    int err = http_server_open(&f->http, f->loop, &http);
    if (err == 0)
        log_info("listening at http://%s:%u; loading %s", shown_host(o->host, host, sizeof host), http_server_port(f->http), f->model.name);
    return err;
}

static int start_replica(struct front *f)
{
    struct supervisor_options supervisor = { .loop = f->loop, .words = f->options->replica, .signals = &f->old_signals,
                                             .numerics = f->options->numerics, .model = f->options->model_digest,
                                             .on_up = on_up, .on_down = on_down,
                                             .on_frame = on_frame, .on_over = on_over, .user = f };
    return supervisor_open(&f->supervisor, &supervisor);
}

static void close_all(struct front *f)
{
    http_server_close(f->http);
    f->http = NULL;
    if (f->workers)
        workers_close(f->workers);
    supervisor_close(f->supervisor);
    auth_close(f->auth);
    if (f->signals.fd >= 0) {
        watch_stop(f->loop, &f->signals);
        close(f->signals.fd);
    }
    if (f->loop)
        loop_close(f->loop);
    metrics_release(&f->metrics);
    names_release(&f->odd);
    tickets_release(&f->tickets);
}

int front_run(const struct front_options *options)
{
    struct front f = { .options = options, .model = options->model, .metrics.model_name = options->model.name, .signals.fd = -1 };
    int err;
    f.model.fingerprint = f.fingerprint;
    memory_settle();
    if (getrandom(&f.id_key, sizeof f.id_key, 0) != sizeof f.id_key)
        return error_set(ERR_FAILED, "the system gives no random numbers");
    if ((options->api_key_file && (err = auth_open(&f.auth, options->api_key_file)) < 0) || (err = loop_open(&f.loop)) < 0 ||
        (err = take_signals(&f)) < 0 || (err = listen_now(&f)) < 0 || (err = workers_open(&f.workers, f.loop, options->n_workers)) < 0 ||
        (err = start_replica(&f)) < 0 || (err = loop_run(f.loop)) < 0)
        f.code = err;
    f.is_over = true;
    close_all(&f);
    return f.code;
}
