/* test_frame.c: frames survive every way of cutting the stream, and nothing that comes in does harm. */
#include "base/error.h"
#include "tests/check.h"
#include "wire/address.h"
#include "wire/frame.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static void append_submit(struct buffer *out, uint64_t request, uint32_t n_prompt)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Submit submit = STOA__WIRE__SUBMIT__INIT;
    Stoa__Wire__Sampling sampling = STOA__WIRE__SAMPLING__INIT;
    uint32_t *prompt = calloc(n_prompt + 1, sizeof *prompt);
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = i * 7;
    submit.request = request;
    submit.prompt = prompt;
    submit.n_prompt = n_prompt;
    sampling.top_p = 0.5f;
    submit.sampling = &sampling;
    frame.epoch = 3;
    frame.body_case = STOA__WIRE__FRAME__BODY_SUBMIT;
    frame.submit = &submit;
    check_int(frame_append(out, &frame), 0);
    free(prompt);
}

static void check_submit(const struct frame *frame, uint64_t request, uint32_t n_prompt)
{
    const Stoa__Wire__Frame *m = frame->message;
    check_int(m->epoch, 3);
    if (!check_int(m->body_case, STOA__WIRE__FRAME__BODY_SUBMIT) || !check_int(m->submit->n_prompt, n_prompt))
        return;
    check_int(m->submit->request, request);
    check(m->submit->sampling && m->submit->sampling->top_p == 0.5f);
    for (uint32_t i = 0; i < n_prompt; i++)
        if (m->submit->prompt[i] != i * 7)
            check_int(m->submit->prompt[i], i * 7);
}

/* Three frames, in pieces of n bytes. */
static void test_pieces(void)
{
    static const uint32_t n_prompt[] = { 0, 5, 300 };
    struct buffer bytes = { 0 };
    for (uint32_t i = 0; i < COUNT_OF(n_prompt); i++)
        append_submit(&bytes, i, n_prompt[i]);
    for (size_t piece = 1; piece <= bytes.size; piece += piece < 40 ? 1 : 97) {
        struct frame_reader reader = { 0 };
        struct frame frame;
        uint32_t n = 0;
        check_begin("frames in pieces of %zu bytes", piece);
        for (size_t at = 0; at < bytes.size; at += piece) {
            check_int(frame_reader_add(&reader, bytes.bytes + at, MIN(piece, bytes.size - at)), 0);
            for (; frame_reader_next(&reader, &frame) == 1; n++) {
                check_submit(&frame, n, n_prompt[n % COUNT_OF(n_prompt)]);
                frame_release(&frame);
            }
        }
        check_int(n, COUNT_OF(n_prompt));
        frame_reader_release(&reader);
    }
    buffer_release(&bytes);
}

static void test_long_streams_take_no_memory(void)
{
    struct buffer bytes = { 0 };
    struct frame_reader reader = { 0 };
    struct frame frame;
    check_begin("a reader that has given its frames out holds little");
    append_submit(&bytes, 1, 1 << 20);
    for (int i = 0; i < 20; i++) {
        for (size_t at = 0, n = 0; at < bytes.size; at += n) {
            n = MIN((size_t)65536, bytes.size - at);
            frame_reader_add(&reader, bytes.bytes + at, n);
        }
        if (check_int(frame_reader_next(&reader, &frame), 1))
            frame_release(&frame);
        check_int(frame_reader_next(&reader, &frame), 0);
        check(reader.bytes.capacity <= 3 * bytes.size);
    }
    check_int(frame_reader_add(&reader, bytes.bytes, 1), 0);
    check(reader.bytes.capacity < 1 << 20);
    frame_reader_release(&reader);
    buffer_release(&bytes);
}

#define HEX(text) text, sizeof text - 1
static const struct {
    const char *name, *bytes;
    size_t n_bytes;
    int want;                   /* of frame_reader_next() */
} rows[] = {
    { "nothing",                            HEX(""), 0 },
    { "half of a length",                   HEX("\x05\x00"), 0 },
    { "an empty frame",                     HEX("\x00\x00\x00\x00"), 1 },
    { "a length alone",                     HEX("\x05\x00\x00\x00"), 0 },
    { "the longest, announced",             HEX("\x00\x00\x00\x01"), 0 },
    { "one byte longer",                    HEX("\x01\x00\x00\x01"), ERR_PEER },
    { "the largest length",                 HEX("\xff\xff\xff\xff"), ERR_PEER },
    { "HTTP",                               HEX("GET / HTTP/1.1\r\n\r\n"), ERR_PEER },
    { "field 0",                            HEX("\x02\x00\x00\x00\x00\x00"), ERR_PEER },
    { "a field that ends early",            HEX("\x02\x00\x00\x00\x12\x05"), ERR_PEER },
    { "a submit within that ends early",    HEX("\x04\x00\x00\x00\x1a\x02\x12\x09"), ERR_PEER },
    { "a number without an end",            HEX("\x0b\x00\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), ERR_PEER },
    { "an unknown field of each kind",      HEX("\x13\x00\x00\x00\xa0\x06\x07\xa1\x06" "abcdefgh" "\xa2\x06\x01x\x08\x09"), 1 },
    { "two bodies: the last counts",        HEX("\x06\x00\x00\x00\x1a\x00\x22\x02\x08\x07"), 1 },
};

static void test_bytes(void)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct frame_reader reader = { 0 };
        struct frame frame = { 0 };
        check_begin("%s", rows[i].name);
        check_int(frame_reader_add(&reader, rows[i].bytes, rows[i].n_bytes), 0);
        check_int(frame_reader_next(&reader, &frame), rows[i].want);
        check(reader.bytes.capacity < 65536);
        frame_release(&frame);
        frame_reader_release(&reader);
    }
}

/* 4 MB of the shortest messages would unpack to 200 MB. */
static void test_bombs(void)
{
    struct buffer bytes = { 0 };
    struct frame_reader reader = { 0 };
    struct frame frame = { 0 };
    uint32_t n = (4 << 20) + 5;
    check_begin("a frame that unpacks to many times its size");
    buffer_reserve(&bytes, n + 4);
    buffer_add(&bytes, (char[]){ (char)(n & 255), (char)(n >> 8), (char)(n >> 16), 0 }, 4);
    buffer_add(&bytes, "\x2a", 1);                      /* Tokens, of n - 5 bytes */
    n -= 5;
    buffer_add(&bytes, (char[]){ (char)((n & 127) | 128), (char)((n >> 7 & 127) | 128), (char)((n >> 14 & 127) | 128), (char)(n >> 21) }, 4);
    for (uint32_t i = 0; i < n; i += 2)
        buffer_add(&bytes, "\x0a\x00", 2);              /* a Token of nothing */
    check_int(frame_reader_add(&reader, bytes.bytes, bytes.size), 0);
    check_int(frame_reader_next(&reader, &frame), ERR_PEER);
    check(!frame.memory.chunks);
    frame_reader_release(&reader);
    buffer_release(&bytes);
}

static void test_too_long(void)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Submit submit = STOA__WIRE__SUBMIT__INIT;
    struct buffer out = { 0 };
    check_begin("a frame too long to be written");
    submit.cache_salt.len = WIRE_MAX_FRAME;
    submit.cache_salt.data = calloc(1, WIRE_MAX_FRAME);
    frame.body_case = STOA__WIRE__FRAME__BODY_SUBMIT;
    frame.submit = &submit;
    check_int(frame_append(&out, &frame), ERR_USAGE);
    check_int(out.size, 0);
    free(submit.cache_salt.data);
    buffer_release(&out);
}

static bool has_no_memory;

void *__real_realloc(void *old, size_t n_bytes);
void *__wrap_realloc(void *old, size_t n_bytes);
void *__wrap_realloc(void *old, size_t n_bytes)
{
    return has_no_memory ? NULL : __real_realloc(old, n_bytes);
}

static void test_no_memory(void)
{
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    struct buffer out = { 0 };
    check_begin("a frame without memory is left out, the next is not");
    append_submit(&out, 1, 5);
    size_t size = out.size;
    has_no_memory = true;
    int err = 0;
    while (!err)                                        /* while there is room, it needs no memory */
        if ((err = frame_append(&out, &frame)) == 0)
            size = out.size;
    has_no_memory = false;
    check_int(err, ERR_NO_MEMORY);
    check_int(out.size, size);
    check_int(frame_append(&out, &frame), 0);
    check(out.size > size);
    buffer_release(&out);
}

static const struct {
    const char *text;
    int want, family;
} addresses[] = {
    { "127.0.0.1:80",           0,          AF_INET },
    { "127.8.9.10:0",           0,          AF_INET },
    { "localhost:65535",        0,          AF_INET },
    { "[::1]:7",                0,          AF_INET6 },
    { "unix:/a/b",              0,          AF_UNIX },
    { "unix:b",                 0,          AF_UNIX },
    { "unix:",                  ERR_USAGE,  0 },
    { "",                       ERR_USAGE,  0 },
    { "127.0.0.1",              ERR_USAGE,  0 },
    { "127.0.0.1:",             ERR_USAGE,  0 },
    { "127.0.0.1:65536",        ERR_USAGE,  0 },
    { "127.0.0.1:-1",           ERR_USAGE,  0 },
    { "127.0.0.1: 1",           ERR_USAGE,  0 },
    { "127.0.0.1:1x",           ERR_USAGE,  0 },
    { "0.0.0.0:80",             ERR_USAGE,  0 },
    { "10.0.0.1:80",            ERR_USAGE,  0 },
    { "[::]:80",                ERR_USAGE,  0 },
    { "::1:80",                 ERR_USAGE,  0 },
    { "example.org:80",         ERR_USAGE,  0 },
    { ":80",                    ERR_USAGE,  0 },
};

static void test_addresses(void)
{
    struct address address;
    char path[256] = "unix:/";
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        check_begin("address \"%s\"", addresses[i].text);
        if (check_int(address_read(&address, addresses[i].text), addresses[i].want) && !addresses[i].want)
            check_int(address.socket.any.sa_family, addresses[i].family);
    }
    check_begin("the longest path");
    memset(path + 6, 'x', 106);
    check_int(address_read(&address, path), 0);
    path[112] = 'x';
    check_int(address_read(&address, path), ERR_USAGE);
}

int main(void)
{
    test_pieces();
    test_long_streams_take_no_memory();
    test_bytes();
    test_bombs();
    test_too_long();
    test_no_memory();
    test_addresses();
    return check_done();
}
