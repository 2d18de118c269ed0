/* front_impl.h: what the files of the front share: front.c (the process), routes.c (what it answers at once), text_job.c (what a
 * worker computes), request.c and request_replica.c (what a replica has to compute). */
#ifndef STOA_FRONT_FRONT_IMPL_H
#define STOA_FRONT_FRONT_IMPL_H

#include "front/auth.h"
#include "front/front.h"
#include "front/http.h"
#include "front/loop.h"
#include "front/metrics.h"
#include "front/names.h"
#include "front/supervisor.h"
#include "front/tickets.h"
#include "front/workers.h"

struct request;

struct front {
    const struct front_options *options;
    struct api_model model;             /* whole after the first Hello, and unchanged from then on: workers read it */
    char fingerprint[128];
    struct loop *loop;
    struct workers *workers;
    struct http_server *http;
    struct supervisor *supervisor;
    struct auth *auth;                  /* NULL: anybody may ask */
    struct metrics metrics;
    struct names odd;                   /* fields of bodies that change nothing */
    bool has_told_cut;                  /* the log has a line on it */
    struct watch signals;
    sigset_t old_signals;

    struct request *first;              /* all that have no answer yet */
    uint32_t n_places;                  /* choices of them, at most options->max_queue */
    struct tickets tickets;             /* choices that the replica has */
    struct request *send_first, *send_last;     /* those with choices to send to it */
    struct timer sending;
    uint64_t n_ids;                     /* of answers, drawn so far */
    uint64_t id_key;

    bool is_known;                      /* the first Hello has come */
    bool is_draining, is_over;
    struct timer drain;                 /* the end of patience with requests, then with sockets */
    int code;                           /* the exit code */
};

/* ---- request.c ---- */
/* Takes the exchange over. */
void request_begin(struct front *f, struct http_exchange *x, enum api_kind kind);
/* Ends all with this error. */
void requests_fail(struct front *f, const struct api_error *error);

/* ---- request_replica.c ---- */
void requests_replica_up(struct front *f);
void requests_replica_down(struct front *f);
void requests_take_tokens(struct front *f, const Stoa__Wire__Tokens *tokens);
void requests_take_finish(struct front *f, const Stoa__Wire__Finish *finish);

/* ---- routes.c ---- */
extern const struct http_route front_routes[];
extern const size_t n_front_routes;
bool front_admit(struct http_exchange *x, const struct http_route *route, void *user);
void front_answered(struct http_exchange *x, const struct http_route *route, int status, void *user);
void front_error_body(struct buffer *out, int status, const char *text, void *user);
/* The API's error for a status, with the type that goes with it. */
struct api_error front_error(int status, const char *text);
void front_answer_error(struct http_exchange *x, const struct api_error *error);
void front_unavailable(struct http_exchange *x, const char *why);       /* 503, come again */
/* Why a request to generate would not be served now; NULL: it would. */
const char *front_is_unready(const struct front *f);

/* ---- text_job.c ---- */
typedef int text_work_fn(struct buffer *out, struct buffer *odd, const struct api_model *model, const char *body, size_t n_bytes,
                         struct api_error *error);
/* Answers with what `work`, on a worker, makes of the body.  Takes the exchange over. */
void text_job_begin(struct front *f, struct http_exchange *x, text_work_fn *work);

/* ---- front.c ---- */
/* A request has ended: draining may go on. */
void front_request_ended(struct front *f);

#endif
