/* test_http_parse.c: requests as RFC 9112 has them and as attackers send them; every row is fed whole, byte by byte and cut at every place,
 * and must give the same. */
#include "front/http_parse.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct http_parse_limits limits = { .head_bytes = 400, .body_bytes = 100 };

#define GET "GET / HTTP/1.1\r\nHost: h\r\n"
#define POST "POST / HTTP/1.1\r\nHost: h\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

/* want: "METHOD path minor keep-alive |body;" of each request, or the status of a refusal; "..." where more is needed. */
static const struct { const char *name, *bytes, *want; } rows[] = {
    { "the least", GET "\r\n", "GET / 1 keep |;" },
    { "HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", "GET /a 0 close |;" },
    { "HTTP/1.0 that stays", "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /a 0 keep |;" },
    { "HTTP/1.1 that closes", GET "Connection: foo, CLOSE\r\n\r\n", "GET / 1 close |;" },
    { "close beats keep-alive", GET "Connection: keep-alive\r\nConnection: close\r\n\r\n", "GET / 1 close |;" },
    { "a later minor version", "GET / HTTP/1.7\r\nHost: h\r\n\r\n", "GET / 1 keep |;" },
    { "two in a row", GET "\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", "GET / 1 keep |;GET /b 1 keep |;" },
    { "blank lines before", "\r\n\r\n" GET "\r\n", "GET / 1 keep |;" },
    { "a blank line after a body", POST "Content-Length: 2\r\n\r\nab\r\n" GET "\r\n", "POST / 1 keep |ab;GET / 1 keep |;" },
    { "not yet", GET, "..." },
    { "an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / 1 keep |;" },

    { "a body", POST "Content-Length: 5\r\n\r\nhello", "POST / 1 keep |hello;" },
    { "an empty body", POST "Content-Length: 0\r\n\r\n", "POST / 1 keep |;" },
    { "leading zeros", POST "Content-Length: 0005\r\n\r\nhello", "POST / 1 keep |hello;" },
    { "a body that is not there yet", POST "Content-Length: 5\r\n\r\nhell", "..." },
    { "the longest body", POST "Content-Length: 100\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789"
      "012345678901234567890123456789", "POST / 1 keep |0123456789012345678901234567890123456789012345678901234567890123456789"
      "012345678901234567890123456789;" },
    { "too long a body", POST "Content-Length: 101\r\n\r\n", "413" },
    { "beyond 32 bits", POST "Content-Length: 2147483658\r\n\r\n", "413" },
    { "beyond 33 bits", POST "Content-Length: 4294967306\r\n\r\n", "413" },
    { "2^64 + 5 is not 5", POST "Content-Length: 18446744073709551621\r\n\r\nhello", "413" },
    { "a body of chunks", CHUNKED "5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n", "POST / 1 keep |hello!;" },
    { "no chunk", CHUNKED "0\r\n\r\n", "POST / 1 keep |;" },
    { "hex of both cases, zeros", CHUNKED "00A\r\n0123456789\r\n000b\r\n0123456789a\r\n000\r\n\r\n",
      "POST / 1 keep |01234567890123456789a;" },
    { "trailers are dropped", CHUNKED "1\r\na\r\n0\r\nX: y\r\nContent-Length: 7\r\n\r\n" GET "\r\n", "POST / 1 keep |a;GET / 1 keep |;" },
    { "chunks that are too much", CHUNKED "60\r\n"
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n5\r\n", "413" },
    { "a chunk of 2^64 - 1", CHUNKED "ffffffffffffffff\r\n", "413" },
    { "a chunk of 2^64 + 1", CHUNKED "10000000000000001\r\n", "400" },

    { "length and coding", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400" },
    { "coding and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "400" },
    { "two lengths", POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "400" },
    { "two lengths that agree", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "400" },
    { "a list of lengths", POST "Content-Length: 5, 5\r\n\r\n", "400" },
    { "a sign", POST "Content-Length: +5\r\n\r\n", "400" },
    { "less than nothing", POST "Content-Length: -5\r\n\r\n", "400" },
    { "a length in hex", POST "Content-Length: 0x5\r\n\r\n", "400" },
    { "a length that is no number", POST "Content-Length: 5 5\r\n\r\n", "400" },
    { "no length", POST "Content-Length: \r\n\r\n", "400" },
    { "two codings", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", "400" },
    { "another coding", POST "Transfer-Encoding: gzip, chunked\r\n\r\n", "501" },
    { "a coding that is nearly", POST "Transfer-Encoding: xchunked\r\n\r\n", "501" },
    { "a hidden coding", POST "Transfer-Encoding: \x0b" "chunked\r\n\r\n", "400" },
    { "a coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400" },
    { "a blank before the colon", POST "Content-Length : 5\r\n\r\n", "400" },
    { "a folded line", GET "A: b\r\n c\r\n\r\n", "400" },
    { "a folded first header", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", "400" },
    { "no name", GET ": b\r\n\r\n", "400" },
    { "no colon", GET "Ab\r\n\r\n", "400" },
    { "a bad name", GET "A(b): c\r\n\r\n", "400" },
    { "a bare LF", "GET / HTTP/1.1\nHost: h\r\n\r\n", "400" },
    { "a bare LF at the end", GET "\n", "400" },
    { "a bare CR", GET "A: b\rc\r\n\r\n", "400" },
    { "two CRs", GET "A: b\r\r\n\r\n", "400" },
    { "a control character", GET "A: b\001c\r\n\r\n", "400" },
    { "no Host", "GET / HTTP/1.1\r\n\r\n", "400" },
    { "two Hosts", GET "Host: h\r\n\r\n", "400" },
    { "no host in Host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400" },

    { "a chunk with a sign", CHUNKED "+5\r\nhello\r\n", "400" },
    { "a chunk in 0x", CHUNKED "0x5\r\nhello\r\n", "400" },
    { "a chunk with a blank", CHUNKED " 5\r\nhello\r\n", "400" },
    { "a chunk with a blank behind", CHUNKED "5 \r\nhello\r\n", "400" },
    { "a chunk without a size", CHUNKED "\r\nhello\r\n", "400" },
    { "a second chunk without a size", CHUNKED "5\r\nhello\r\n\r\nhello\r\n", "400" },
    { "a chunk with a bare LF", CHUNKED "5\nhello\r\n", "400" },
    { "a bare CR in an extension", CHUNKED "5;\rx\r\nhello\r\n", "400" },
    { "a control character in an extension", CHUNKED "5;\x01\r\nhello\r\n", "400" },
    { "a chunk that is longer than it says", CHUNKED "5\r\nhelloX", "400" },
    { "a chunk that ends in a bare LF", CHUNKED "5\r\nhello\n", "400" },
    { "a folded trailer", CHUNKED "0\r\n X: y\r\n\r\n", "400" },
    { "a trailer without a colon", CHUNKED "0\r\nGET / HTTP/1.1\r\n\r\n", "400" },

    { "no version", "GET /\r\nHost: h\r\n\r\n", "400" },
    { "two blanks", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a blank in the path", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a blank behind", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "400" },
    { "a blank before", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a tab", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a bad method", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "no method", "/ HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "small letters", "GET / http/1.1\r\nHost: h\r\n\r\n", "400" },
    { "HTTP/1.10", "GET / HTTP/1.10\r\nHost: h\r\n\r\n", "400" },
    { "HTTP/2", "PRI * HTTP/2.0\r\n\r\n", "505" },
    { "HTTP/0.9", "GET / HTTP/0.9\r\n\r\n", "505" },
    { "TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400" },

    { "a query", "GET /a?b=%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a 1 keep |;" },
    { "escapes", "GET /%61%20%c3%A9%25 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a \xc3\xa9% 1 keep |;" },
    { "an escaped slash", "GET /a/b%2Fc%2fd HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a/b(%2F)/c/d 1 keep |;" },
    { "an escaped percent", "GET /a%252Fb HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a%2Fb 1 keep |;" },
    { "a bad escape", "GET /%6 HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "another bad escape", "GET /%g0 HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "an escape at the end", "GET /% HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "an escaped NUL", "GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "an escaped line end", "GET /a%0d%0ab HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "bytes that need an escape", "GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a fragment", "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "no slash", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "an absolute address", "GET http://h:80/a?b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a 1 keep |;" },
    { "an absolute address without a path", "GET HTTPS://h?b HTTP/1.1\r\nHost: h\r\n\r\n", "GET / 1 keep |;" },
    { "an absolute address without a host", "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "another scheme", "GET ftp://h/a HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a star", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * 1 keep |;" },
    { "a star of another method", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", "400" },
    { "a tunnel", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT h:443 1 keep |;" },
};

/* ---- what the parser tells, as a line of text ---- */
struct told {
    struct buffer text;
    bool is_over;               /* refused */
};

static void tell_head(struct told *told, const struct http_request *r)
{
    buffer_printf(&told->text, "%s %.*s%s%s %d %s |", r->method, (int)r->n_plain, r->path, r->path[r->n_plain] ? "(%2F)" : "",
                  r->path + r->n_plain, r->minor, r->keep_alive ? "keep" : "close");
}

static void feed(struct told *told, struct http_parser *p, const char *bytes, size_t n_bytes)
{
    for (size_t n_used; !told->is_over; bytes += n_used, n_bytes -= n_used) {
        enum http_part part = http_parser_feed(p, bytes, n_bytes, &n_used);
        if (!check(n_used <= n_bytes) || part == HTTP_MORE) {
            check_int(n_used, n_bytes);
            return;
        }
        if (part == HTTP_HEAD)
            tell_head(told, &p->request);
        else if (part == HTTP_WHOLE) {
            buffer_add(&told->text, p->body.bytes, p->body.size);
            buffer_add_text(&told->text, ";");
            http_parser_next(p);
        } else {
            told->text.size = 0;
            buffer_printf(&told->text, "%d", p->status);
            check(p->why && *p->why);
            told->is_over = true;
        }
    }
}

/* Cut at `cut`, or into single bytes with `cut` 0.  Each piece is a copy of exactly its size, so that a sanitizer sees a read beyond it. */
static void check_cut(const char *bytes, size_t n_bytes, size_t cut, const char *want)
{
    struct http_parser p = { 0 };
    struct told told = { 0 };
    http_parser_init(&p, &limits);
    for (size_t from = 0; from < n_bytes;) {
        size_t n = !cut ? 1 : from < cut ? cut : n_bytes - from;
        char *piece = malloc(n);
        memcpy(piece, bytes + from, n);
        feed(&told, &p, piece, n);
        free(piece);
        from += n;
    }
    bool needs_more = !told.is_over && (!told.text.size || told.text.bytes[told.text.size - 1] != ';');
    check_text(needs_more ? "..." : told.text.bytes, want);
    http_parser_release(&p);
    buffer_release(&told.text);
}

static void test_rows(void)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t n = strlen(rows[i].bytes);
        check_begin("%s", rows[i].name);
        check_cut(rows[i].bytes, n, n, rows[i].want);
        check_cut(rows[i].bytes, n, 0, rows[i].want);
        for (size_t cut = 1; cut < n; cut++)
            check_cut(rows[i].bytes, n, cut, rows[i].want);
    }
}

/* A NUL does not fit into a row. */
static void test_nul(void)
{
    static const char *const with_star[] = {
        "G*T / HTTP/1.1\r\nHost: h\r\n\r\n", "GET /* HTTP/1.1\r\nHost: h\r\n\r\n", GET "A: *\r\n\r\n", GET "*", CHUNKED "5*\r\n",
        CHUNKED "0\r\nA:*\r\n\r\n",
    };
    check_begin("a NUL is refused wherever it stands in a line");
    for (size_t i = 0; i < COUNT_OF(with_star); i++) {
        char *bytes = strdup(with_star[i]);
        size_t n = strlen(bytes);
        *strrchr(bytes, '*') = 0;
        for (size_t cut = 0; cut <= n; cut++)
            check_cut(bytes, n, cut, "400");
        free(bytes);
    }
}

/* ---- bounds ---- */
static enum http_part feed_many(struct http_parser *p, const char *piece, size_t n_times)
{
    size_t n_used;
    enum http_part part = HTTP_MORE;
    for (size_t i = 0; i < n_times && part == HTTP_MORE; i++)
        part = http_parser_feed(p, piece, strlen(piece), &n_used);
    return part;
}

#define A20 "aaaaaaaaaaaaaaaaaaaa"
#define A100 A20 A20 A20 A20 A20
static const struct { const char *name, *begin, *again; int status; } endless[] = {
    { "a path", "GET /", "a", 414 },
    { "a method", "", "G", 414 },
    { "blank lines", "", "\r\n", 414 },
    { "a header", GET "A: ", "b", 431 },
    { "headers", GET, "A:\r\n", 431 },
    { "the size of a chunk", CHUNKED, "0", 400 },
    { "an extension", CHUNKED "1;", "a", 400 },
    { "chunks with extensions", CHUNKED, "1;" A100 "=" A100 "\r\na\r\n", 400 },
    { "a trailer", CHUNKED "0\r\nA: ", "b", 400 },
    { "trailers", CHUNKED "0\r\n", "A: b\r\n", 431 },
    { "chunks", CHUNKED, "1\r\na\r\n", 413 },
};

static void test_endless(void)
{
    for (size_t i = 0; i < COUNT_OF(endless); i++) {
        struct http_parser p = { 0 };
        size_t n_used, n_begin = strlen(endless[i].begin);
        check_begin("%s without an end", endless[i].name);
        http_parser_init(&p, &limits);
        if (n_begin && http_parser_feed(&p, endless[i].begin, n_begin, &n_used) == HTTP_HEAD)
            check_int(http_parser_feed(&p, endless[i].begin + n_used, n_begin - n_used, &n_used), HTTP_MORE);
        check_int(feed_many(&p, endless[i].again, 100000), HTTP_REFUSED);
        check_int(p.status, endless[i].status);
        check(p.head.capacity + p.body.capacity + p.line.capacity < 16384);
        http_parser_release(&p);
    }
}

static void test_many_headers(void)
{
    static const struct http_parse_limits wide = { 65536, 0 };
    for (size_t n = HTTP_MOST_FIELDS - 1; n <= HTTP_MOST_FIELDS; n++) {
        struct http_parser p = { 0 };
        struct buffer bytes = { 0 };
        size_t n_used;
        check_begin("%zu headers and a Host", n);
        http_parser_init(&p, &wide);
        buffer_add_text(&bytes, GET);
        for (size_t i = 0; i < n; i++)
            buffer_printf(&bytes, "A%zu: %zu\r\n", i, i);
        buffer_add_text(&bytes, "\r\n");
        enum http_part part = http_parser_feed(&p, bytes.bytes, bytes.size, &n_used);
        check_int(part, n < HTTP_MOST_FIELDS ? HTTP_HEAD : HTTP_REFUSED);
        check_int(p.status, n < HTTP_MOST_FIELDS ? 0 : 431);
        http_parser_release(&p);
        buffer_release(&bytes);
    }
}

/* 200,000 chunks of one byte: as much memory as their bytes take, and the buffer's doubling. */
static void test_small_chunks(void)
{
    static const struct http_parse_limits wide = { 400, 1 << 20 };
    struct http_parser p = { 0 };
    size_t n_used;
    check_begin("200,000 chunks of a byte");
    http_parser_init(&p, &wide);
    check_int(http_parser_feed(&p, CHUNKED, strlen(CHUNKED), &n_used), HTTP_HEAD);
    check_int(feed_many(&p, "1\r\na\r\n", 200000), HTTP_MORE);
    check_int(feed_many(&p, "0\r\n\r\n", 1), HTTP_WHOLE);
    check_int(p.body.size, 200000);
    check(p.body.capacity <= 2 * 200000 + 64 && p.line.capacity < 100);
    http_parser_release(&p);
}

/* TR-02: a length is told as it was announced, however long, beside the limit. */
static void test_sizes(void)
{
    static const struct { const char *name, *bytes, *want; } sizes[] = {
        { "one too many", POST "Content-Length: 101\r\n\r\n", "the body has 101 bytes, and the limit is 100" },
        { "2^31 + 10", POST "Content-Length: 2147483658\r\n\r\n", "the body has 2147483658 bytes, and the limit is 100" },
        { "2^32 + 10", POST "Content-Length: 4294967306\r\n\r\n", "the body has 4294967306 bytes, and the limit is 100" },
        { "2^63", POST "Content-Length: 9223372036854775808\r\n\r\n",
          "the body has 9223372036854775808 bytes, and the limit is 100" },
        { "2^64 + 1", POST "Content-Length: 18446744073709551617\r\n\r\n",
          "the body has 18446744073709551617 bytes, and the limit is 100" },
        { "50 digits", POST "Content-Length: 12345678901234567890123456789012345678901234567890\r\n\r\n",
          "the body has 1234567890123456789012345678901234567890.. bytes, and the limit is 100" },
        { "a chunk of 2^63", CHUNKED "8000000000000000\r\n", "the body has at least 9223372036854775808 bytes, and the limit is 100" },
        { "a second chunk", CHUNKED "5\r\nhello\r\n60\r\n", "the body has at least 101 bytes, and the limit is 100" },
        { "a second chunk of 2^64 - 1", CHUNKED "5\r\nhello\r\nffffffffffffffff\r\n",
          "the body has at least 18446744073709551615 bytes, and the limit is 100" },
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct http_parser p = { 0 };
        size_t n_used, n_head = (size_t)(strstr(sizes[i].bytes, "\r\n\r\n") - sizes[i].bytes) + 4;
        check_begin("TR-02: %s", sizes[i].name);
        http_parser_init(&p, &limits);
        check_int(http_parser_feed(&p, sizes[i].bytes, n_head, &n_used), HTTP_HEAD);
        check_int(http_parser_feed(&p, sizes[i].bytes + n_head, strlen(sizes[i].bytes) - n_head, &n_used), HTTP_REFUSED);
        check_int(p.status, 413);
        check_text(p.why, sizes[i].want);
        http_parser_release(&p);
    }
}

/* ---- fields ---- */
static void test_fields(void)
{
    static const char head[] = GET "X-A:  one \r\nx-a:\ttwo\t\r\nEmpty:\r\nExpect: 100-Continue\r\nB: a\tb \xff\r\n\r\n";
    struct http_parser p = { 0 };
    size_t n_used, place = 0;
    check_begin("headers are found, trimmed, in any case");
    http_parser_init(&p, &limits);
    check_int(http_parser_feed(&p, head, sizeof head - 1, &n_used), HTTP_HEAD);
    check_text(http_request_field(&p.request, "x-a", &place), "one");
    check_text(http_request_field(&p.request, "x-a", &place), "two");
    check(!http_request_field(&p.request, "x-a", &place));
    place = 0;
    check_text(http_request_field(&p.request, "empty", &place), "");
    place = 0;
    check_text(http_request_field(&p.request, "b", &place), "a\tb \xff");
    check(p.request.expects_continue);
    http_parser_release(&p);
}

static void test_lists(void)
{
    static const struct { const char *list; bool has; } lists[] = {
        { "close", true }, { "Close", true }, { "a, close", true }, { "close ,a", true }, { "a,\tclose\t,b", true },
        { "", false }, { "closed", false }, { "clos", false }, { "a close", false }, { ",,", false },
    };
    check_begin("words of a list");
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        if (!check(http_list_has(lists[i].list, "close") == lists[i].has))
            printf("  %s\n", lists[i].list);
}

int main(void)
{
    test_rows();
    test_nul();
    test_endless();
    test_many_headers();
    test_small_chunks();
    test_sizes();
    test_fields();
    test_lists();
    return check_done();
}
