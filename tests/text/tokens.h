/* tokens.h: what tests of tokenizers check: ids, the way back, and that time grows near-linearly. */
#ifndef STOA_TESTS_TOKENS_H
#define STOA_TESTS_TOKENS_H

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "tests/check.h"
#include "tests/text/golden.h"
#include "tests/text/tiny_gguf.h"
#include "text/tokenizer.h"

#include <string.h>
#include <time.h>

/* The file stays open in *file; NULL after an error has been counted. */
static inline struct tokenizer *open_tokenizer(const struct tiny_key *keys, size_t n, struct model_file **file)
{
    struct tokenizer *t = NULL;
    *file = tiny_gguf_open(keys, n);
    if (!check_int(tokenizer_open(&t, *file), 0))
        printf("  %s\n", error_text());
    return t;
}

/* Encodes and compares with a JSON array of ids. */
static inline void check_golden(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, json_t *want)
{
    int32_t *ids = NULL;
    size_t n = 0;
    check_int(tokenizer_encode(t, text, n_bytes, flags, &ids, &n), 0);
    check_int(n, json_array_size(want));
    for (size_t i = 0; i < n && i < json_array_size(want); i++)
        if (!check_int(ids[i], json_integer_value(json_array_get(want, i))))
            break;
    free(ids);
}

/* ... and with ids written as "1 2 3". */
static inline void check_ids(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, const char *want)
{
    struct buffer got = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    check_int(tokenizer_encode(t, text, n_bytes, flags, &ids, &n), 0);
    buffer_add_text(&got, "");
    for (size_t i = 0; i < n; i++)
        buffer_printf(&got, i ? " %d" : "%d", ids[i]);
    check_text(got.bytes, want);
    buffer_release(&got);
    free(ids);
}

/* Text -> ids -> text must give the text again, in one go and token by token (TK-11). */
static inline void check_round_trip(const struct tokenizer *t, const char *name, const char *text, size_t n_bytes)
{
    struct buffer out = { 0 }, stream = { 0 };
    int32_t *ids = NULL;
    size_t n = 0, n_piece;
    if (!check(tokenizer_encode(t, text, n_bytes, TOKENIZE_SPECIAL, &ids, &n) == 0))
        return;
    tokenizer_decode(t, ids, n, true, &out);
    if (check_int(out.size, n_bytes))
        check_bytes(name, out.bytes, text, n_bytes);
    tokenizer_decode(t, ids, MIN(n, (size_t)1), true, &stream);
    for (size_t i = 1; i < n; i++) {
        const char *piece = tokenizer_bytes(t, ids[i], true, &n_piece);
        buffer_add(&stream, piece, n_piece);
    }
    if (check_int(stream.size, out.size))
        check_bytes("TK-11: token by token", stream.bytes, out.bytes, out.size);
    buffer_release(&stream);
    buffer_release(&out);
    free(ids);
}

/* TK-09: what made other tokenizers quadratic.  Linear takes a tenth of a second; the limit is loose because machines are
 * shared.  TEST_TIMES shows that twice the text takes about twice the time. */
static inline double seconds_of(const struct tokenizer *t, const char *unit, size_t times)
{
    struct buffer text = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    for (size_t k = 0; k < times; k++)
        buffer_add_text(&text, unit);
    clock_t start = clock();
    check_int(tokenizer_encode(t, text.bytes, text.size, TOKENIZE_SPECIAL, &ids, &n), 0);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    free(ids);
    buffer_release(&text);
    return seconds;
}

static inline void check_long_runs(const struct tokenizer *t, const char *which)
{
    static const struct { const char *name, *unit; size_t times; } runs[] = {
        { "100,000 letters a",          "a",            100000 },
        { "40,000 Chinese characters",  "\xe4\xb8\xad", 40000 },
        { "50,000 underscores",         "_",            50000 },
        { "100,000 blanks",             " ",            100000 },
        { "100,000 newlines",           "\n",           100000 },
        { "30,000 digits",              "7",            30000 },
        { "20,000 beginnings of a special token", "<|im_", 20000 },
        { "60,000 lone lead bytes",     "\xf0",         60000 },
        { "50,000 marks",               "\xcc\x81",     50000 },
        { "20 kB of compact JSON",      "{\"k\":[1,2],", 1700 },
        { "prose",                      "The quick brown fox jumps over the lazy dog. ", 4000 },
    };
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        check_begin("TK-09: %s in near-linear time: %s", which, runs[i].name);
        double seconds = seconds_of(t, runs[i].unit, runs[i].times);
        if (getenv("TEST_TIMES"))
            printf("%-16s %-40s %.4f s, twice as many %.4f s\n", which, runs[i].name, seconds, seconds_of(t, runs[i].unit, 2 * runs[i].times));
        check(seconds < 5);
    }
}

#endif
