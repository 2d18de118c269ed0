/* http.h: an HTTP/1.1 server on the event loop.
 *
 * The server reads a whole request, within limits, and gives it to the handler of its route as an exchange.  The handler, or
 * whoever it hands the exchange to, answers later: whole with http_answer(), or as a stream.  A stream is pulled: when the socket
 * takes bytes, fill() is asked for them, so that a slow client costs what its answer's state costs and no more.
 *
 * A client that leaves while it waits, or while its stream runs, ends the exchange: on_gone() is called, once, and the exchange must
 * not be used after it returns.  Leaving is closing the connection or only its sending half, which look alike from here; a whole
 * answer that has been given is still sent to a client that has closed its half.  An exchange that has been answered or whose stream
 * has ended is the server's again at once: neither on_gone() nor fill() is called any more.  No function below calls back before it
 * returns, but http_server_close().
 *
 * Parsed strictly, see http_parse.h; what is refused ends the connection.  Pipelined requests are answered one after the other.  A
 * connection that sends a head or body too slowly is closed with 408.  HEAD is GET without a body in the answer.  OPTIONS is answered
 * here, so are unknown paths (404) and methods (405, 501).  Every answer has the x-request-id of its exchange. */
#ifndef STOA_FRONT_HTTP_H
#define STOA_FRONT_HTTP_H

#include "base/buffer.h"
#include "front/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct http_server;
struct http_exchange;

struct http_limits {
    size_t head_bytes, body_bytes;
    size_t bodies_bytes;            /* of all connections together, which are being read or whose answer has not begun; beyond it 503 */
    uint32_t connections;
    int head_ms, body_ms;           /* a whole head, from its first byte or the accept; a whole body */
    int idle_ms;                    /* between requests */
    int write_ms;                   /* a client that takes no byte for so long is gone */
};
extern const struct http_limits http_usual_limits;      /* 64 KB, 64 MB, 1 GB, 4096, 10 s, 60 s, 75 s, 30 s */

typedef void http_handler_fn(struct http_exchange *x, void *user);

struct http_route {
    const char *method;             /* "GET" answers HEAD too */
    const char *path;               /* exact; one that ends in "/" is a prefix, whose rest is http_path_rest() */
    http_handler_fn *handle;
    bool is_open;                   /* needs no API key */
    bool takes_json;                /* another Content-Type than application/json, or none with a body, is 415 */
};

struct http_options {
    const char *host;               /* "127.0.0.1", "::1", "0.0.0.0" ... */
    uint16_t port;                  /* 0: any that is free */
    struct http_limits limits;
    const struct http_route *routes;
    size_t n_routes;
    void *user;                     /* of every handler */
    /* After the head, before the body is read: whether the exchange may go on; it has answered when it gives false.  NULL: always. */
    bool (*admit)(struct http_exchange *x, const struct http_route *route, void *user);
    /* For metrics and logs, once for each exchange that was answered, when the answer is sent or cut; route is NULL where there was
     * none.  NULL is fine. */
    void (*answered)(struct http_exchange *x, const struct http_route *route, int status, void *user);
    const char *cors_origin;        /* NULL: no CORS headers; "*", or one origin */
    /* What an error of the server's own (404, 405, 413, 415, 431 ...) has as its body: a text for people in, a body of type
     * application/json out. */
    void (*error_body)(struct buffer *out, int status, const char *text, void *user);
};

/* Listens on every address of the host's name and accepts from now on; routes and strings are borrowed until it is closed.
 * ERR_USAGE for an address that is none or taken.  Raises the process's limit of open files as far as it may; where that allows fewer
 * connections, fewer are held.  One beyond takes the place of one that has no request to answer, and has rested or been slow to ask;
 * where there is none, it is answered 503 and closed. */
int http_server_open(struct http_server **out, struct loop *loop, const struct http_options *options);
uint16_t http_server_port(const struct http_server *server);
uint32_t http_server_n_connections(const struct http_server *server);
/* No new connection; those that are idle are closed, the others after their answer. */
void http_server_drain(struct http_server *server);
/* Ends every exchange, with on_gone().  Not from inside a callback of its own. */
void http_server_close(struct http_server *server);

/* ---- an exchange.  Strings are borrowed and live as long as it does. ---- */
const char *http_method(const struct http_exchange *x);
const char *http_path(const struct http_exchange *x);           /* decoded, without the query */
const char *http_path_rest(const struct http_exchange *x);      /* of a prefix route */
const char *http_header(const struct http_exchange *x, const char *name);       /* of any case; NULL: none.  Several are joined with ", " */
/* The body is the caller's now; NULL when it is empty.  It counts among the server's bodies until the answer begins.  On the loop's thread
 * http_give_back() frees it, which of a long one takes many turns (server NULL: it is closed, and that no longer matters); elsewhere
 * discard_now(). */
char *http_take_body(struct http_exchange *x, size_t *n_bytes);
void http_give_back(struct http_server *server, char *bytes, size_t n_bytes);
#define HTTP_REQUEST_ID 65              /* bytes of one, its NUL too */
const char *http_request_id(const struct http_exchange *x);     /* the client's x-request-id when it is plain and short, else one of ours */
const char *http_client_address(const struct http_exchange *x);  /* without its port; of an IPv6 one its network, /64 */

/* Called once when the client is gone or the server closes, before an answer was complete. */
void http_on_gone(struct http_exchange *x, void (*gone)(void *user), void *user);

/* A header of the answer to come; both are copied.  Control characters of the value become blanks, so that it cannot bring a header of
 * its own. */
void http_add_header(struct http_exchange *x, const char *name, const char *value);
void http_answer(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes);
/* The same with a buffer that is taken over, not copied; one that has failed is a 500. */
void http_answer_buffer(struct http_exchange *x, int status, const char *content_type, struct buffer *body);
/* The same by way of options.error_body. */
void http_answer_error(struct http_exchange *x, int status, const char *text);

/* Head now, bytes when the socket takes them.  fill() appends what there is to send, some 64 KB at most; nothing: it is asked again
 * after http_stream_wake().  It calls http_stream_end() when what it has appended is the last; called from elsewhere, that ends the
 * stream with what has been appended so far.  An HTTP/1.0 client gets the bytes as they are and the connection's end as theirs. */
typedef void http_fill_fn(struct buffer *out, void *user);
void http_stream_begin(struct http_exchange *x, int status, const char *content_type, http_fill_fn *fill, void *user);
void http_stream_wake(struct http_exchange *x);
void http_stream_end(struct http_exchange *x);

#endif
