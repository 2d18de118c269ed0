/* http_parse.h: requests out of bytes, as RFC 9112 has HTTP/1.0 and 1.1, strictly.  No sockets, no routes, bounded memory.
 *
 * However the bytes are cut into calls of http_parser_feed(), the result is the same.
 *
 *      HEAD ──blank line──> head told ──> BODY ──length or last chunk──> whole told ──http_parser_next()──> HEAD
 *
 * What could make another server on the way see other requests than this one is refused (400): a line that does not end in CR LF, a
 * blank before a colon, a folded line, two lengths, a length and a transfer coding, "+5", a control character.  After a refusal nothing
 * is read any more.  In a path %XX is decoded, but never to a control character (400).  A "/" that comes of %2F may stand only in the
 * rest of a prefix route: n_plain says where the first one is.  Trailers and chunk extensions are checked and dropped. */
#ifndef STOA_FRONT_HTTP_PARSE_H
#define STOA_FRONT_HTTP_PARSE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MOST_FIELDS = 128 };

struct http_parse_limits {
    size_t head_bytes, body_bytes;
};

struct http_field {
    const char *name, *value;       /* the name in small letters; the value without blanks around it */
};

/* Borrowed from the parser, until http_parser_next(). */
struct http_request {
    const char *method, *path;      /* the path decoded, without its query; "*" with OPTIONS only */
    size_t n_plain;                 /* characters of the path before the first %2F, all of them where there is none */
    int minor;                      /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;                /* as the client wants it */
    bool is_chunked, expects_continue;
    uint64_t content_length;        /* 0 when there is none */
    struct http_field field[HTTP_MOST_FIELDS];
    size_t n_fields;
};

enum http_part {
    HTTP_MORE,          /* all bytes are used, more are needed */
    HTTP_HEAD,          /* the head is there; feed again for the body, also when there is none */
    HTTP_WHOLE,         /* and the body */
    HTTP_REFUSED,       /* `status` and `why` say it: 400, 413, 414, 431, 501, 505; 503 without memory */
};

struct http_parser {
    const struct http_parse_limits *limits;
    int state;
    char last;                      /* character of a line */
    bool has_first_line;
    size_t n_head, n_line;          /* characters of the head, and of its line that is coming */
    struct buffer head, body, line; /* line: of a chunk's size or a trailer */
    uint64_t left;                  /* bytes of the body, or of this chunk */
    size_t n_extra;                 /* bytes of chunk extensions and trailers */
    struct http_request request;
    int status;
    const char *why;
};

/* In zeroed storage. */
void http_parser_init(struct http_parser *parser, const struct http_parse_limits *limits);
void http_parser_release(struct http_parser *parser);
/* Stops behind what it tells, so *n_used may be less than n_bytes. */
enum http_part http_parser_feed(struct http_parser *parser, const char *bytes, size_t n_bytes, size_t *n_used);
/* The next request of the connection; memory is given back. */
void http_parser_next(struct http_parser *parser);
/* Whether a byte of the next request has come. */
bool http_parser_has_begun(const struct http_parser *parser);

/* The value of the first field of this name (in small letters) at or after *place, and *place behind it; NULL: no more. */
const char *http_request_field(const struct http_request *request, const char *name, size_t *place);
/* Whether a list of a header ("keep-alive, Upgrade") has this word, in any case. */
bool http_list_has(const char *list, const char *word);
/* A name of a header or method: letters, digits and !#$%&'*+-.^_`|~ */
bool http_is_token(const char *text, size_t n_bytes);

#endif
