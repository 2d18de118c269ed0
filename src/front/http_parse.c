#include "front/http_parse.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    STATE_HEAD, STATE_HEAD_TOLD, STATE_SIZED, STATE_CHUNK_SIZE, STATE_CHUNK, STATE_CHUNK_END, STATE_TRAILER, STATE_WHOLE, STATE_REFUSED
};
enum { MOST_LINE = 4096, MOST_EXTRA = 16384, MOST_SIZE_DIGITS = 16 };

static enum http_part refuse(struct http_parser *p, int status, const char *why)
{
    p->state = STATE_REFUSED;
    p->status = status;
    p->why = why;
    return HTTP_REFUSED;
}

/* ---- characters ---- */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_token(char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_is_token(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if (!is_token(text[i]))
            return false;
    return n_bytes > 0;
}

/* ---- fields ---- */
const char *http_request_field(const struct http_request *request, const char *name, size_t *place)
{
    while (*place < request->n_fields) {
        const struct http_field *field = &request->field[(*place)++];
        if (!strcmp(field->name, name))
            return field->value;
    }
    return NULL;
}

bool http_list_has(const char *list, const char *word)
{
    size_t n_word = strlen(word);
    while (*list) {
        size_t n = strcspn(list, ",");
        const char *next = list + n + (list[n] == ',');
        while (n && is_blank(*list))
            list++, n--;
        while (n && is_blank(list[n - 1]))
            n--;
        if (n == n_word && !strncasecmp(list, word, n))
            return true;
        list = next;
    }
    return false;
}

/* "name: value" in line[0..n), which is changed in place.  NULL, or what is wrong with it. */
static const char *read_field(char *line, size_t n, struct http_field *out)
{
    if (is_blank(line[0]))
        return "a header is folded onto a second line";
    char *colon = memchr(line, ':', n), *end = line + n;
    if (!colon || !http_is_token(line, (size_t)(colon - line)))
        return "a header is not of the form name: value";
    for (char *c = line; c < colon; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c |= 0x20;
    char *value = colon + 1;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    *colon = *end = 0;
    *out = (struct http_field){ line, value };
    return NULL;
}

/* ---- the first line ---- */
/* Decodes %XX in place. */
static bool decode_path(struct http_request *r, char *path)
{
    char *to = path;
    r->n_plain = SIZE_MAX;
    for (const char *from = path; *from; from++, to++) {
        *to = *from;
        if (*from != '%')
            continue;
        int high = hex_value(from[1]), low = high < 0 ? -1 : hex_value(from[2]);
        if (low < 0)
            return false;
        *to = (char)(high << 4 | low);
        if (is_control(*to))
            return false;
        if (*to == '/')
            r->n_plain = MIN(r->n_plain, (size_t)(to - path));
        from += 2;
    }
    *to = 0;
    r->n_plain = MIN(r->n_plain, (size_t)(to - path));
    return true;
}

/* "/path?query", "http://host/path?query", or "*" with OPTIONS.  CONNECT's host:port is left as it is: no route has such a path. */
static bool read_target(struct http_request *r, char *target)
{
    for (const char *c = target; *c; c++)
        if (is_control(*c) || (unsigned char)*c >= 0x80 || *c == '#')
            return false;
    if (!strcmp(target, "*") || !strcmp(r->method, "CONNECT")) {
        r->path = target;
        r->n_plain = strlen(target);
        return *target && (*target != '*' || !strcmp(r->method, "OPTIONS"));
    }
    if (*target != '/') {
        size_t n_scheme = !strncasecmp(target, "http://", 7) ? 7 : !strncasecmp(target, "https://", 8) ? 8 : 0;
        size_t n_host = strcspn(target + n_scheme, "/?");
        if (!n_scheme || !n_host)
            return false;
        target += n_scheme + n_host;
    }
    char *query = strchr(target, '?');
    if (query)
        *query = 0;
    r->path = *target ? target : "/";
    if (!*target) {
        r->n_plain = 1;
        return true;
    }
    return decode_path(r, target);
}

static enum http_part read_first_line(struct http_parser *p, char *line)
{
    struct http_request *r = &p->request;
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || !http_is_token(line, (size_t)(target - line)))
        return refuse(p, 400, "the first line is not of the form METHOD /path HTTP/1.1");
    *target++ = *version++ = 0;
    r->method = line;
    if (strlen(version) != 8 || strncmp(version, "HTTP/", 5) || !is_digit(version[5]) || version[6] != '.' || !is_digit(version[7]))
        return refuse(p, 400, "the first line does not end in HTTP/1.1");
    if (version[5] != '1')
        return refuse(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    r->minor = version[7] != '0';
    if (!read_target(r, target))
        return refuse(p, 400, "the path of the request is none, or has a bad escape");
    return HTTP_HEAD;
}

/* ---- what the fields say of the body and the connection ---- */
static bool read_length(const char *text, uint64_t *out)
{
    *out = 0;
    for (const char *c = text; *c; c++) {
        if (!is_digit(*c))
            return false;
        *out = *out > UINT64_MAX / 10 - 1 ? UINT64_MAX : *out * 10 + (uint64_t)(*c - '0');     /* too much is too much */
    }
    return *text;
}

/* The one value of a field that may come once; false when it comes again. */
static bool only_field(const struct http_request *r, const char *name, const char **value)
{
    size_t place = 0;
    *value = http_request_field(r, name, &place);
    return !*value || !http_request_field(r, name, &place);
}

static enum http_part read_framing(struct http_parser *p)
{
    struct http_request *r = &p->request;
    const char *length, *coding, *host;
    if (!only_field(r, "host", &host) || (!host && r->minor == 1))
        return refuse(p, 400, "there must be one Host header");
    if (host && strpbrk(host, " \t,/\\@\"<>"))
        return refuse(p, 400, "the Host header is no host");
    if (!only_field(r, "content-length", &length) || !only_field(r, "transfer-encoding", &coding))
        return refuse(p, 400, "Content-Length or Transfer-Encoding is there twice");
    if (length && coding)
        return refuse(p, 400, "both Content-Length and Transfer-Encoding are there");
    if (length && !read_length(length, &r->content_length))
        return refuse(p, 400, "Content-Length is no number");
    if (coding && r->minor == 0)
        return refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked"))
        return refuse(p, 501, "the only Transfer-Encoding here is chunked");
    r->is_chunked = coding;
    return HTTP_HEAD;
}

static void read_connection(struct http_request *r)
{
    size_t place = 0;
    const char *value;
    bool close = false, keep = r->minor == 1;
    while ((value = http_request_field(r, "connection", &place))) {
        close |= http_list_has(value, "close");
        keep |= http_list_has(value, "keep-alive");
    }
    r->keep_alive = keep && !close;
    place = 0;
    value = http_request_field(r, "expect", &place);
    r->expects_continue = value && r->minor == 1 && !strcasecmp(value, "100-continue");
}

/* The whole head is in p->head, every line with CR LF at its end, the blank one too. */
static enum http_part read_head(struct http_parser *p)
{
    struct http_request *r = &p->request;
    char *line = p->head.bytes, *end;
    for (bool is_first = true; (end = strstr(line, "\r\n")) > line; line = end + 2, is_first = false) {
        *end = 0;
        if (is_first) {
            if (read_first_line(p, line) == HTTP_REFUSED)
                return HTTP_REFUSED;
            continue;
        }
        if (r->n_fields == HTTP_MOST_FIELDS)
            return refuse(p, 431, "too many headers");
        const char *wrong = read_field(line, (size_t)(end - line), &r->field[r->n_fields]);
        if (wrong)
            return refuse(p, 400, wrong);
        r->n_fields++;
    }
    if (read_framing(p) == HTTP_REFUSED)
        return HTTP_REFUSED;
    read_connection(r);
    p->state = STATE_HEAD_TOLD;
    return HTTP_HEAD;
}

/* ---- from bytes to lines ---- */
/* Lines end in CR LF, and neither of them stands alone; of the other control characters a line has only tabs. */
static bool may_follow(char last, char c)
{
    return (last == '\r') == (c == '\n') && (!is_control(c) || c == '\r' || c == '\n' || c == '\t');
}

/* Blank lines before the first one are dropped: some clients send one after a body. */
static enum http_part take_head(struct http_parser *p, const char *bytes, size_t n_bytes, size_t *n_used)
{
    bool is_whole = false;
    size_t from = 0, i = 0;
    while (i < n_bytes && !is_whole) {
        char c = bytes[i++];
        if (++p->n_head > p->limits->head_bytes)
            return p->has_first_line ? refuse(p, 431, "the headers are too long") : refuse(p, 414, "the path is too long");
        if (!may_follow(p->last, c))
            return refuse(p, 400, "a line of the head has a control character, or does not end in CR LF");
        p->last = c;
        p->n_line++;
        if (c != '\n')
            continue;
        is_whole = p->n_line == 2 && p->has_first_line;
        p->has_first_line |= p->n_line > 2;
        p->n_line = 0;
        if (!p->has_first_line) {
            p->head.size = 0;
            from = i;
        }
    }
    buffer_add(&p->head, bytes + from, i - from);
    *n_used = i;
    if (p->head.failed)
        return refuse(p, 503, "no memory for the headers");
    return is_whole ? read_head(p) : HTTP_MORE;
}

static void empty(struct buffer *line)
{
    line->size = 0;
    if (line->bytes)
        line->bytes[0] = 0;
}

/* HTTP_WHOLE: a line is in p->line, without its end; the caller empties it. */
static enum http_part take_line(struct http_parser *p, size_t most, const char *bytes, size_t n_bytes, size_t *n_used)
{
    while (*n_used < n_bytes) {
        char c = bytes[(*n_used)++];
        if (!may_follow(p->last, c))
            return refuse(p, 400, "a line between chunks has a control character, or does not end in CR LF");
        p->last = c;
        if (c == '\n')
            return p->line.failed ? refuse(p, 503, "no memory for a line") : HTTP_WHOLE;
        if (c == '\r')
            continue;
        if (p->line.size == most)
            return refuse(p, 400, most ? "a line between chunks is too long" : "a chunk is longer than it says");
        buffer_add(&p->line, &c, 1);
    }
    return HTTP_MORE;
}

/* ---- the body ---- */
/* Says what was announced, as it was written: a number may have more digits than any type holds. */
static enum http_part refuse_long(struct http_parser *p, const char *how, const char *digits)
{
    enum { MOST_DIGITS = 40 };
    size_t n = strlen(digits);
    empty(&p->line);
    buffer_printf(&p->line, "the body has %s%.*s%s bytes, and the limit is %zu", how, (int)MIN(n, (size_t)MOST_DIGITS), digits,
                  n > MOST_DIGITS ? ".." : "", p->limits->body_bytes);
    return refuse(p, 413, p->line.failed ? "the body is too long" : p->line.bytes);
}

static enum http_part refuse_long_chunk(struct http_parser *p, uint64_t size)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)(size > UINT64_MAX - p->body.size ? size : p->body.size + size));
    return refuse_long(p, "at least ", digits);
}

static enum http_part read_chunk_size(struct http_parser *p)
{
    const char *c = p->line.bytes ? p->line.bytes : "";
    uint64_t size = 0;
    size_t n_digits = 0;
    for (; hex_value(*c) >= 0; c++, n_digits++)
        size = size << 4 | (uint64_t)hex_value(*c);
    if (!n_digits || n_digits > MOST_SIZE_DIGITS || (*c && *c != ';'))
        return refuse(p, 400, "the size of a chunk is no number");
    p->n_extra += strlen(c);
    if (p->n_extra > MOST_EXTRA)
        return refuse(p, 400, "the extensions of chunks are too long");
    if (size > p->limits->body_bytes - p->body.size)
        return refuse_long_chunk(p, size);
    p->left = size;
    p->state = size ? STATE_CHUNK : STATE_TRAILER;
    empty(&p->line);
    return HTTP_MORE;
}

static enum http_part read_trailer(struct http_parser *p)
{
    struct http_field dropped;
    if (!p->line.size) {
        p->state = STATE_WHOLE;
        return HTTP_WHOLE;
    }
    p->n_extra += p->line.size;
    const char *wrong = read_field(p->line.bytes, p->line.size, &dropped);
    if (wrong)
        return refuse(p, 400, wrong);
    if (p->n_extra > MOST_EXTRA)
        return refuse(p, 431, "the trailers are too long");
    empty(&p->line);
    return HTTP_MORE;
}

static enum http_part take_chunk_line(struct http_parser *p, const char *bytes, size_t n_bytes, size_t *n_used)
{
    enum http_part part = take_line(p, p->state == STATE_CHUNK_END ? 0 : MOST_LINE, bytes, n_bytes, n_used);
    if (part != HTTP_WHOLE)
        return part;
    if (p->state == STATE_CHUNK_SIZE)
        return read_chunk_size(p);
    if (p->state == STATE_TRAILER)
        return read_trailer(p);
    p->state = STATE_CHUNK_SIZE;
    return HTTP_MORE;
}

static enum http_part take_body(struct http_parser *p, const char *bytes, size_t n_bytes, size_t *n_used)
{
    size_t n = (size_t)MIN(p->left, n_bytes - *n_used);
    buffer_add(&p->body, bytes + *n_used, n);
    if (p->body.failed)
        return refuse(p, 503, "no memory for the body");
    *n_used += n;
    p->left -= n;
    if (p->left)
        return HTTP_MORE;
    p->state = p->state == STATE_CHUNK ? STATE_CHUNK_END : STATE_WHOLE;
    return p->state == STATE_WHOLE ? HTTP_WHOLE : HTTP_MORE;
}

static enum http_part begin_body(struct http_parser *p)
{
    size_t place = 0;
    p->left = p->request.content_length;
    p->state = p->request.is_chunked ? STATE_CHUNK_SIZE : STATE_SIZED;
    return p->left > p->limits->body_bytes ? refuse_long(p, "", http_request_field(&p->request, "content-length", &place)) : HTTP_MORE;
}

/* ---- the parser ---- */
void http_parser_init(struct http_parser *parser, const struct http_parse_limits *limits)
{
    parser->limits = limits;
    http_parser_next(parser);
}

void http_parser_release(struct http_parser *parser)
{
    buffer_release(&parser->head);
    buffer_release(&parser->body);
    buffer_release(&parser->line);
}

void http_parser_next(struct http_parser *parser)
{
    http_parser_release(parser);
    *parser = (struct http_parser){ .limits = parser->limits, .request = { .method = "", .path = "" } };
}

bool http_parser_has_begun(const struct http_parser *parser)
{
    return parser->head.size > 0;
}

enum http_part http_parser_feed(struct http_parser *parser, const char *bytes, size_t n_bytes, size_t *n_used)
{
    enum http_part part = HTTP_MORE;
    *n_used = 0;
    assert(parser->state < STATE_WHOLE);
    if (parser->state == STATE_HEAD)
        return take_head(parser, bytes, n_bytes, n_used);
    if (parser->state == STATE_HEAD_TOLD)
        part = begin_body(parser);
    while (part == HTTP_MORE && (*n_used < n_bytes || (parser->state == STATE_SIZED && !parser->left))) {
        bool is_body = parser->state == STATE_SIZED || parser->state == STATE_CHUNK;
        part = is_body ? take_body(parser, bytes, n_bytes, n_used) : take_chunk_line(parser, bytes, n_bytes, n_used);
    }
    return part;
}
