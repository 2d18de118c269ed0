/* request_impl.h: what the files of a request share.
 *
 *   request.c          from its body to its last byte
 *   request_replica.c  what a replica has of it: Submits out, tokens in, and a replica that dies
 *   request_told.c     what metrics and the log say of its end
 *
 *   READING ──read──> WAITING ──replica is up──> RUNNING ──tokens of all choices──> WRITING, or the stream's rest ──> gone
 *                        ^                          │
 *                        └──────replica died────────┘   at most once, and not when a byte of the answer has been sent
 *
 *   READING   the body is on a worker, with no pointer to the exchange: the client may leave meanwhile
 *   WAITING   answer and places are there; no choice has a ticket
 *   RUNNING   its choices get a ticket one after the other, and the replica its number
 *   WRITING   a worker makes the body of the answer, which is the worker's meanwhile
 *
 * Whoever calls http_answer(), http_stream_wake() or http_stream_end() does it last: the request may be gone after. */
#ifndef STOA_FRONT_REQUEST_IMPL_H
#define STOA_FRONT_REQUEST_IMPL_H

#include "front/answer.h"
#include "front/front_impl.h"

struct sent_choice {
    uint64_t number;                    /* its ticket; 0: the replica does not have it */
    double last_s;                      /* when its last token came */
    uint32_t n_tokens;
};

struct request {
    struct front *front;
    struct http_exchange *x;            /* NULL: the client is gone */
    char id[HTTP_REQUEST_ID];           /* for the log, which outlives x */
    struct request *previous, *next;
    struct request *send_before, *send_after;   /* in the line of those that have choices to send */
    bool is_in_line;
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
    struct sent_choice *choices;
    uint32_t n_choices, n_places;
    uint32_t n_sent;                    /* choices that this replica has been given, one after the other */
    uint64_t fairness;
    bool is_stream, has_headers, wants_comment;
    int n_deaths;
    struct timer keep_alive;
    int64_t sent_ms;                    /* the last bytes of a stream */
    double arrived_s, first_s, last_s;  /* the first and last token; 0: none yet */
    double queue_s, prefill_s;          /* of the first token, as the replica says */
    uint32_t n_tokens;                  /* that came, over all choices */
};

/* ---- request.c ---- */
/* After something came in for its answer. */
void request_go_on(struct request *r);
/* Ends it with this error: an answer, or an event where headers have been sent. */
void request_fail(struct request *r, const struct api_error *error);
/* Before headers were sent. */
void request_refuse(struct request *r, int status, const char *why);

/* ---- request_replica.c ---- */
/* Its choices are sent to the replica, if that is up: from the next turn of the loop on, behind those of others. */
void request_send(struct request *r);
/* Nobody waits for it any more: what the replica has of it is cancelled. */
void request_cancel(struct request *r);

/* ---- request_told.c ---- */
const char *request_kind_name(enum api_kind kind);
/* why: NULL, or what the log may say beside. */
void request_tell_end(const struct request *r, enum request_end end, int status, const char *why);

#endif
