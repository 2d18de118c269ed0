/* http_exchange.c: one request and its answer, as handlers see them. */
#include "base/base.h"
#include "base/random.h"
#include "front/http_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what the client has asked ---- */
const char *http_method(const struct http_exchange *x)
{
    return x->connection->parser.request.method;
}

const char *http_path(const struct http_exchange *x)
{
    return x->connection->parser.request.path;
}

const char *http_path_rest(const struct http_exchange *x)
{
    return http_path(x) + (x->route ? strlen(x->route->path) : 0);
}

char *http_take_body(struct http_exchange *x, size_t *n_bytes)
{
    struct buffer *body = &x->connection->parser.body;
    char *bytes = body->bytes;
    *n_bytes = body->size;
    x->connection->n_body_taken = body->size;
    *body = (struct buffer){ 0 };
    return bytes;
}

void http_give_back(struct http_server *server, char *bytes, size_t n_bytes)
{
    if (server)
        http_server_discard(server, &(struct buffer){ .bytes = bytes, .size = n_bytes });
    else
        free(bytes);
}

const char *http_request_id(const struct http_exchange *x)
{
    return x->request_id;
}

const char *http_client_address(const struct http_exchange *x)
{
    return x->connection->address;
}

/* "a, b, c"; the first alone when memory is out. */
static const char *join_fields(struct http_exchange *x, const char *name, const char *first)
{
    const struct http_request *request = &x->connection->parser.request;
    struct buffer joined = { 0 };
    size_t place = 0;
    for (const char *value; (value = http_request_field(request, name, &place));) {
        if (joined.size)
            buffer_add_text(&joined, ", ");
        buffer_add_text(&joined, value);
    }
    const char *kept = joined.failed ? NULL : arena_string(&x->arena, joined.bytes);
    buffer_release(&joined);
    return kept ? kept : first;
}

const char *http_header(const struct http_exchange *x, const char *name)
{
    const struct http_request *request = &x->connection->parser.request;
    char small[64];
    size_t place = 0, n = strlen(name);
    if (n >= sizeof small)
        return NULL;
    for (size_t i = 0; i <= n; i++)
        small[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] | 0x20) : name[i];
    const char *first = http_request_field(request, small, &place);
    if (!first || !http_request_field(request, small, &place))
        return first;
    return join_fields(&x->connection->exchange, small, first);
}

/* ---- its life ---- */
static bool is_plain_id(const char *text)
{
    size_t n = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:");
    return n && !text[n] && n < sizeof ((struct http_exchange *)0)->request_id;
}

static void name_it(struct http_exchange *x)
{
    struct http_server *server = x->connection->server;
    const char *given = http_header(x, "x-request-id");
    uint64_t n = server->n_ids++;
    if (given && is_plain_id(given))
        snprintf(x->request_id, sizeof x->request_id, "%s", given);
    else
        snprintf(x->request_id, sizeof x->request_id, "%016llx%016llx", (unsigned long long)random_u64(server->id_key, 2 * n),
                 (unsigned long long)random_u64(server->id_key, 2 * n + 1));
}

void http_exchange_begin(struct http_connection *c)
{
    c->exchange = (struct http_exchange){ .connection = c };
    name_it(&c->exchange);
    c->must_close = !c->parser.request.keep_alive;
}

void http_exchange_end(struct http_connection *c)
{
    struct http_exchange *x = &c->exchange;
    const struct http_options *options = &c->server->options;
    if (x->status && options->answered)
        options->answered(x, x->route, x->status, options->user);
    buffer_release(&x->headers);
    arena_close(&x->arena);
    *x = (struct http_exchange){ .connection = c };
}

void http_on_gone(struct http_exchange *x, void (*gone)(void *user), void *user)
{
    x->gone = gone;
    x->gone_user = user;
}

/* ---- the answer ---- */
void http_add_header(struct http_exchange *x, const char *name, const char *value)
{
    assert(http_is_token(name, strlen(name)));
    buffer_printf(&x->headers, "%s: ", name);
    size_t from = x->headers.size;
    buffer_add_text(&x->headers, value);
    for (size_t i = from; !x->headers.failed && i < x->headers.size; i++)
        if ((unsigned char)x->headers.bytes[i] < 0x20 || x->headers.bytes[i] == 0x7f)
            x->headers.bytes[i] = ' ';
    buffer_add_text(&x->headers, "\r\n");
}

static void add_head(struct http_exchange *x, int status, const char *content_type)
{
    struct http_connection *c = x->connection;
    const char *origin = c->server->options.cors_origin;
    struct buffer *out = &c->out;
    out->failed |= x->headers.failed;
    buffer_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    http_add_date(out);
    buffer_printf(out, "x-request-id: %s\r\n", x->request_id);
    if (content_type)
        buffer_printf(out, "Content-Type: %s\r\n", content_type);
    if (origin)
        buffer_printf(out, "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: x-request-id, Retry-After\r\n", origin);
    if (x->headers.size)
        buffer_add(out, x->headers.bytes, x->headers.size);
    if (c->must_close)
        buffer_add_text(out, "Connection: close\r\n");
    else if (c->parser.request.minor == 0)
        buffer_add_text(out, "Connection: keep-alive\r\n");
}

static bool is_head(const struct http_exchange *x)
{
    return !strcmp(http_method(x), "HEAD");
}

/* It would stand where the next request begins. */
static bool has_unread_body(const struct http_connection *c)
{
    const struct http_request *request = &c->parser.request;
    return c->state == CONNECTION_BODY && (request->is_chunked || request->content_length);
}

static void begin_answer(struct http_exchange *x, int status)
{
    struct http_connection *c = x->connection;
    assert(!x->status);
    x->status = status;
    c->must_close |= c->server->is_draining || has_unread_body(c);
    http_connection_list(c);
}

static void begin_whole(struct http_exchange *x, int status, const char *content_type, size_t n_bytes)
{
    struct buffer *out = &x->connection->out;
    begin_answer(x, status);
    add_head(x, status, content_type);
    if (status != 204)
        buffer_printf(out, "Content-Length: %zu\r\n", n_bytes);
    buffer_add_text(out, "\r\n");
}

static void end_whole(struct http_exchange *x)
{
    x->has_ended = true;
    x->gone = NULL;
    http_connection_drop_body(x->connection);
}

void http_answer(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n_bytes)
{
    begin_whole(x, status, content_type, n_bytes);
    if (!is_head(x) && status != 204)
        buffer_add(&x->connection->out, body, n_bytes);
    end_whole(x);
}

void http_answer_buffer(struct http_exchange *x, int status, const char *content_type, struct buffer *body)
{
    struct http_connection *c = x->connection;
    if (body->failed) {
        http_answer_error(x, 500, "out of memory for the answer");
        buffer_release(body);
        return;
    }
    begin_whole(x, status, content_type, body->size);
    if (is_head(x)) {
        http_server_discard(c->server, body);
    } else {
        c->whole = *body;
        *body = (struct buffer){ 0 };
    }
    end_whole(x);
}

void http_answer_error(struct http_exchange *x, int status, const char *text)
{
    const struct http_options *options = &x->connection->server->options;
    struct buffer body = { 0 };
    if (options->error_body)
        options->error_body(&body, status, text, options->user);
    else
        buffer_printf(&body, "%s\n", text);
    http_answer(x, status, options->error_body ? "application/json" : "text/plain; charset=utf-8", body.bytes, body.size);
    buffer_release(&body);
}

void http_stream_begin(struct http_exchange *x, int status, const char *content_type, http_fill_fn *fill, void *user)
{
    struct http_connection *c = x->connection;
    begin_answer(x, status);
    x->is_chunked = c->parser.request.minor == 1;
    c->must_close |= !x->is_chunked;
    add_head(x, status, content_type);
    buffer_add_text(&c->out, x->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    x->fill = fill;
    x->fill_user = user;
    x->is_hungry = true;
    http_connection_drop_body(c);
}

void http_stream_wake(struct http_exchange *x)
{
    x->is_hungry = true;
    http_connection_list(x->connection);
}

void http_stream_end(struct http_exchange *x)
{
    assert(x->fill && !x->has_ended);
    x->has_ended = true;
    x->gone = NULL;
    http_connection_list(x->connection);
}

void http_exchange_fill(struct http_connection *c)
{
    struct http_exchange *x = &c->exchange;
    struct buffer *piece = &c->server->piece;
    if (!x->fill)
        return;
    bool asks = x->is_hungry && !x->has_ended;
    piece->size = 0;
    x->is_hungry = false;
    if (asks)
        x->fill(piece, x->fill_user);
    x->is_hungry |= piece->size > 0;
    if (piece->failed) {
        buffer_release(piece);
        c->out.failed = true;
    }
    if (!is_head(x)) {
        if (piece->size && x->is_chunked)
            buffer_printf(&c->out, "%zx\r\n", piece->size);
        buffer_add(&c->out, piece->bytes, piece->size);
        if (piece->size && x->is_chunked)
            buffer_add_text(&c->out, "\r\n");
        if (x->has_ended && x->is_chunked)
            buffer_add_text(&c->out, "0\r\n\r\n");
    }
    if (x->has_ended)
        x->fill = NULL;
}
