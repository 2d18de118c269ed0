/* fuzz_http.c: any bytes as what a client sends.  However they are cut, the parser tells the same; and what it tells keeps its word. */
#include "base/random.h"
#include "front/http_parse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const struct http_parse_limits limits = { .head_bytes = 1024, .body_bytes = 512 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_request(const struct http_request *r)
{
    must(http_is_token(r->method, strlen(r->method)) && r->n_plain <= strlen(r->path) && r->n_fields <= HTTP_MOST_FIELDS);
    must(*r->path == '/' || !strcmp(r->path, "*") || !strcmp(r->method, "CONNECT"));
    must(!r->is_chunked || (!r->content_length && r->minor == 1));
    for (const char *c = r->path; *c; c++)
        must((unsigned char)*c >= 0x20 && *c != 0x7f);
    for (size_t i = 0; i < r->n_fields; i++) {
        must(http_is_token(r->field[i].name, strlen(r->field[i].name)) && !strpbrk(r->field[i].value, "\r\n"));
        http_list_has(r->field[i].value, "close");
    }
}

/* What the parser told, as text. */
static void tell(struct buffer *told, const struct http_parser *p, enum http_part part)
{
    const struct http_request *r = &p->request;
    if (part == HTTP_REFUSED)
        buffer_printf(told, "refused %d %s", p->status, p->why);
    else if (part == HTTP_HEAD) {
        check_request(r);
        buffer_printf(told, "%s %s %zu %d %d %d %llu\n", r->method, r->path, r->n_plain, r->keep_alive, r->is_chunked, r->expects_continue,
                      (unsigned long long)r->content_length);
        for (size_t i = 0; i < r->n_fields; i++)
            buffer_printf(told, "%s: %s\n", r->field[i].name, r->field[i].value);
    } else {
        must(p->body.size <= limits.body_bytes);
        buffer_add(told, p->body.bytes, p->body.size);
    }
}

/* Cut at random places; `seed` 0: not at all. */
static void parse(struct buffer *told, const char *bytes, size_t n_bytes, uint64_t seed)
{
    struct http_parser p = { 0 };
    enum http_part part = HTTP_MORE;
    http_parser_init(&p, &limits);
    for (uint64_t turn = 0; part != HTTP_REFUSED && n_bytes; turn++) {
        size_t n_used, n = seed ? 1 + random_u64(seed, turn) % 24 : n_bytes;
        n = n < n_bytes ? n : n_bytes;
        do {
            part = http_parser_feed(&p, bytes, n, &n_used);
            must(n_used <= n && (part != HTTP_MORE || n_used == n));
            bytes += n_used;
            n_bytes -= n_used;
            n -= n_used;
            if (part != HTTP_MORE)
                tell(told, &p, part);
            if (part == HTTP_WHOLE)
                http_parser_next(&p);
        } while ((n && part != HTTP_REFUSED) || part == HTTP_HEAD);
        must(p.head.size <= limits.head_bytes && p.body.size <= limits.body_bytes && p.line.size <= 4096);
    }
    http_parser_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct buffer whole = { 0 }, cut = { 0 };
    parse(&whole, (const char *)data, n_bytes, 0);
    parse(&cut, (const char *)data, n_bytes, 1 + n_bytes);
    must(whole.size == cut.size && (!whole.size || !memcmp(whole.bytes, cut.bytes, whole.size)));
    buffer_release(&whole);
    buffer_release(&cut);
    return 0;
}
