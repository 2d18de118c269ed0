/* http_impl.h: what the files of the HTTP server share.
 *
 *      IDLE ──first byte──> HEAD ──head──> BODY ──whole──> ANSWER ──sent──> IDLE, or LINGER ──the client closes──> freed
 *        └──refused, or answered before the body is read──────┘
 *
 *   IDLE    nothing of a request is there; holds no buffer.
 *   HEAD, BODY   reads; a deadline runs that no byte of the client's moves.
 *   ANSWER  an exchange is under way: awaited, streaming or being sent.  Nothing is read: what the client pipelines waits.
 *   LINGER  everything is sent and our half is closed.  What still comes is thrown away, within limits: closing with input unread
 *           would make the kernel send a reset, which may destroy the answer before the client has read it.
 *
 * When there are as many connections as may be, a new one takes the place of one that has no request to answer: of who has been
 * silent in its head, or is seen off, for a second; else of who rests between requests; else of the first of the former.
 *
 * Everything is driven from the loop: by a descriptor that is ready, a deadline, or http_connections_step().  What handlers call only
 * marks the connection and lists it for a step, so no callback runs inside a call of theirs. */
#ifndef STOA_FRONT_HTTP_IMPL_H
#define STOA_FRONT_HTTP_IMPL_H

#include "base/arena.h"
#include "base/discard.h"
#include "front/http.h"
#include "front/http_parse.h"

#include <netinet/in.h>

enum { HTTP_MOST_LISTENERS = 8, HTTP_INPUT_BYTES = 65536, HTTP_LINGER_MS = 2000, HTTP_SLOW_MS = 1000, HTTP_SPARE_CONNECTIONS = 64 };

struct http_exchange {
    struct http_connection *connection;
    const struct http_route *route;     /* NULL: none */
    char request_id[HTTP_REQUEST_ID];
    struct arena arena;                 /* joined headers */
    struct buffer headers;              /* of the answer */
    void (*gone)(void *user);
    void *gone_user;
    http_fill_fn *fill;                 /* NULL: not a stream */
    void *fill_user;
    int status;                         /* 0: no answer yet */
    bool is_chunked;                    /* the stream as it is sent */
    bool is_hungry;                     /* fill() may have something */
    bool has_ended;                     /* all of the answer is in the connection's output */
};

enum http_connection_state { CONNECTION_IDLE, CONNECTION_HEAD, CONNECTION_BODY, CONNECTION_ANSWER, CONNECTION_LINGER };

/* Connections that may be given up, the one that has come first at the head. */
struct http_connection_line {
    struct http_connection *first, **end;
};

struct http_connection {
    struct watch watch;                 /* the first, so that it is the connection */
    struct timer timer;                 /* what it means, the state says */
    struct http_server *server;
    struct http_connection *next, **link;                    /* of the server's list of all */
    struct http_connection *next_listed, **listed_link;      /* of those to step; NULL while it is not on it */
    struct http_connection *next_in_line, **line_link;       /* NULL while it is in none */
    struct http_connection_line *line;
    int64_t since_ms;                   /* in that line, or in LINGER */
    enum http_connection_state state;
    bool must_close;                    /* after this answer */
    bool peer_has_closed;               /* its half */
    bool is_fresh;                      /* not a byte has come since the accept */
    struct http_parser parser;
    size_t n_body_counted;              /* of its body, in the server's sum */
    size_t n_body_taken;                /* by a handler that has not answered yet */
    struct buffer in, out;              /* in: read and not parsed; out: to send.  Both are freed when empty */
    struct buffer whole;                /* a body that was handed over, to be sent after out */
    size_t n_in_used, n_out_sent, n_dropped;            /* n_dropped: in LINGER */
    struct http_exchange exchange;
    char address[INET6_ADDRSTRLEN];
};

struct http_listener {
    struct watch watch;                 /* the first */
    struct http_server *server;
};

struct http_server {
    struct loop *loop;
    struct http_options options;
    struct http_parse_limits parse_limits;
    struct http_listener listener[HTTP_MOST_LISTENERS];
    int n_listeners;
    uint16_t port;
    struct timer accept_again, step, discarding;
    struct discard discard;             /* long bodies and answers that nobody needs any more */
    struct http_connection *connections, *listed, *stepping;
    struct http_connection_line resting, speaking;           /* IDLE after an answer; before a whole head, and LINGER */
    uint32_t n_connections, most_connections;
    size_t n_body_bytes;                /* that connections hold */
    bool is_draining;
    uint64_t id_key, n_ids;
    struct buffer piece;                /* what fill() gives, before it is framed */
    char input[HTTP_INPUT_BYTES];
};

/* ---- http_connection.c ---- */
/* Takes the descriptor over.  One too many is told so, and closed. */
void http_connection_open(struct http_server *server, int fd, const char *address, bool is_too_many);
void http_connection_close(struct http_connection *c);       /* with on_gone() where an exchange is under way */
void http_connection_drop_body(struct http_connection *c);
void http_connection_list(struct http_connection *c);        /* for a step in this turn or the next */
void http_connection_step(struct http_connection *c);
/* Closes one that has no request to answer; false: all have. */
bool http_connection_give_up_one(struct http_server *server);
void http_connections_step(struct timer *timer);         /* of all that are listed */

/* ---- http_server.c ---- */
/* Releases a buffer that may be long, a piece in each turn. */
void http_server_discard(struct http_server *server, struct buffer *buffer);

/* ---- http_exchange.c ---- */
void http_exchange_begin(struct http_connection *c);
void http_exchange_end(struct http_connection *c);           /* tells options.answered */
/* Asks fill() once, when there is a stream that may have something. */
void http_exchange_fill(struct http_connection *c);

/* ---- http_route.c ---- */
/* After the head: finds the route and lets options.admit look; false when it has been answered. */
bool http_route_head(struct http_exchange *x);

/* ---- http_text.c ---- */
const char *http_reason(int status);
void http_add_date(struct buffer *out);

#endif
