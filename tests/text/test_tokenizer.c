#include "tests/text/tokens.h"

#define REAL_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"

static void test_real_specials(const struct tokenizer *t)
{
    int32_t *ids;
    size_t n, n_bytes;
    check_begin("SmolLM2: special tokens");
    check_int(tokenizer_n_tokens(t), 49152);
    check_int(tokenizer_end(t), -1);
    check_int(tokenizer_begin(t), -1);
    check_int(tokenizer_find(t, "<|im_end|>"), 2);
    check(tokenizer_is_end(t, 2) && tokenizer_is_end(t, 0) && !tokenizer_is_end(t, 1));
    check(tokenizer_is_control(t, 1) && !tokenizer_is_control(t, 905));
    check(!tokenizer_is_end(t, -1) && !tokenizer_is_end(t, 49152) && !tokenizer_is_control(t, 49152));
    check(tokenizer_encode(t, "<|im_end|>", 10, 0, &ids, &n) == 0 && n > 1);
    free(ids);
    tokenizer_bytes(t, 2, false, &n_bytes);
    check_int(n_bytes, 0);
    check_bytes("name", tokenizer_bytes(t, 2, true, &n_bytes), "<|im_end|>", 10);
    check_int(n_bytes, 10);
    tokenizer_bytes(t, -7, true, &n_bytes);
    check_int(n_bytes, 0);
    tokenizer_bytes(t, 49152, true, &n_bytes);
    check_int(n_bytes, 0);
}

/* Special tokens in a plain range, begun in one or reaching into one are text; those outside are tokens. */
static const struct { const char *name, *text; struct text_range plain[2]; size_t n_plain; uint32_t n_special; } plain_rows[] = {
    { "no range",                    "<|im_start|>a<|im_end|>",   { { 0, 0 } },               0, 2 },
    { "all of it",                   "<|im_start|>a<|im_end|>",   { { 0, 23 } },              1, 0 },
    { "the second token",            "<|im_start|>a<|im_end|>",   { { 12, 23 } },             1, 1 },
    { "the last byte of a token",    "<|im_start|>a<|im_end|>",   { { 22, 23 } },             1, 1 },
    { "the first byte of a token",   "<|im_start|>a<|im_end|>",   { { 13, 14 } },             1, 1 },
    { "between two tokens",          "<|im_start|>a<|im_end|>",   { { 12, 13 } },             1, 2 },
    { "two ranges",                  "<|im_start|>a<|im_end|>",   { { 3, 4 }, { 20, 21 } },   2, 0 },
    { "an empty range in a token",   "<|im_start|>a<|im_end|>",   { { 5, 5 } },               1, 1 },
};

static void test_plain_ranges(const struct tokenizer *t)
{
    for (size_t i = 0; i < COUNT_OF(plain_rows); i++) {
        struct encode_text text = { plain_rows[i].text, strlen(plain_rows[i].text), TOKENIZE_SPECIAL, plain_rows[i].plain, plain_rows[i].n_plain };
        struct buffer back = { 0 };
        int32_t *ids = NULL;
        size_t n = 0;
        uint32_t n_special = 0;
        check_begin("SmolLM2: plain ranges: %s", plain_rows[i].name);
        check_int(tokenizer_encode_text(t, &text, &ids, &n), 0);
        for (size_t k = 0; k < n; k++) {
            size_t n_bytes;
            const char *bytes = tokenizer_bytes(t, ids[k], true, &n_bytes);
            buffer_add(&back, bytes, n_bytes);
            n_special += tokenizer_is_control(t, ids[k]);
        }
        check_int(n_special, plain_rows[i].n_special);
        check_text(back.bytes, plain_rows[i].text);
        buffer_release(&back);
        free(ids);
    }
}

static void test_real_model(void)
{
    struct model_file *file = NULL;
    struct tokenizer *t = NULL;
    const char *path = cached_model(REAL_MODEL);
    check_begin("SmolLM2: open");
    if (!path) {
        check_skip(REAL_MODEL " is not in the cache");
        return;
    }
    if (check(model_file_open(&file, path) == 0) && check(tokenizer_open(&t, file) == 0)) {
        test_real_specials(t);
        test_plain_ranges(t);
    }
    tokenizer_close(t);
    model_file_close(file);
}

/* Byte-level BPE over a, b, c, space ("\u0120") and newline ("\u010a"); 1 and 2 are control tokens, 11 and 12 are user-defined. */
static const struct tiny_key tiny_bpe[] = {
    { "tokenizer.ggml.model", "s", "gpt2" },
    { "tokenizer.ggml.pre", "s", "gpt-2" },
    { "tokenizer.ggml.tokens", "S", "a\n<s>\n</s>\nb\nc\n\xc4\xa0\nab\nbc\nabc\n\xc4\xa0" "a\n\xc4\x8a\n<u>\n<u><u>x\naa" },
    { "tokenizer.ggml.token_type", "I", "1\n3\n3\n1\n1\n1\n1\n1\n1\n1\n1\n4\n4\n1" },
    { "tokenizer.ggml.merges", "S", "b c\na b\na bc\n\xc4\xa0 a\na a" },
    { "tokenizer.ggml.bos_token_id", "u", "1" },
    { "tokenizer.ggml.eos_token_id", "u", "2" },
    { "tokenizer.ggml.add_bos_token", "b", "1" },
};

static const struct { const char *name, *text; unsigned flags; const char *want; } bpe_rows[] = {
    { "nothing",                           "",              0,                                "" },
    { "nothing, with a begin",             "",              TOKENIZE_BEGIN,                   "1" },
    { "the lowest merge first",            "abc",           0,                                "8" },
    { "not across words",                  "ab c",          0,                                "6 5 4" },
    { "the blank belongs to the word",     "a a",           0,                                "0 9" },
    { "leftmost of equals",                "aaa",           0,                                "13 0" },
    { "equals, then what is left",         "aaaab",         0,                                "13 0 6" },
    { "a special token in the text",       "a</s>b",        TOKENIZE_SPECIAL,                 "0 2 3" },
    { "is text without the flag",          "a<s>b",         0,                                "0 3" },
    { "a user-defined one is always known", "a<u>b",        0,                                "0 11 3" },
    { "the longest at the leftmost place", "<u><u>x<u><u>", 0,                                "12 11 11" },
    { "a begin token",                     "b",             TOKENIZE_BEGIN,                   "1 3" },
    { "is not doubled",                    "<s>b",          TOKENIZE_BEGIN | TOKENIZE_SPECIAL, "1 3" },
    { "but a second one stays",            "<s><s>b",       TOKENIZE_BEGIN | TOKENIZE_SPECIAL, "1 1 3" },
    { "a byte without a token is left out", "azb",          0,                                "6" },
    { "no end token, since the file does not say so", "b",  TOKENIZE_END,                     "3" },
};

static void test_tiny_bpe(void)
{
    struct model_file *file = tiny_gguf_open(tiny_bpe, COUNT_OF(tiny_bpe));
    struct tokenizer *t = NULL;
    check_begin("tiny BPE: open");
    if (!check_int(tokenizer_open(&t, file), 0)) {
        printf("%s\n", error_text());
        return;
    }
    for (size_t i = 0; i < COUNT_OF(bpe_rows); i++) {
        check_begin("tiny BPE: %s", bpe_rows[i].name);
        check_ids(t, bpe_rows[i].text, strlen(bpe_rows[i].text), bpe_rows[i].flags, bpe_rows[i].want);
    }
    tokenizer_close(t);
    model_file_close(file);
}

/* Which tokens go around a text: what the file says, or else what its kind of tokenizer does. */
static const struct { const char *name, *pre, *add_bos, *add_eos, *want; } edge_rows[] = {
    { "byte-level BPE has none",       "gpt-2",     "",  "",  "3" },
    { "Llama 3's has a begin token",   "llama-bpe", "",  "",  "1 3" },
    { "unless the file says no",       "llama-bpe", "0", "",  "3" },
    { "a begin token",                 "gpt-2",     "1", "0", "1 3" },
    { "an end token",                  "gpt-2",     "0", "1", "3 2" },
    { "both",                          "gpt-2",     "1", "1", "1 3 2" },
};

static void test_edges(void)
{
    for (size_t i = 0; i < COUNT_OF(edge_rows); i++) {
        struct tiny_key keys[COUNT_OF(tiny_bpe) + 3];
        struct model_file *file;
        memcpy(keys, tiny_bpe, sizeof tiny_bpe);
        keys[COUNT_OF(tiny_bpe)] = (struct tiny_key){ "tokenizer.ggml.pre", "s", edge_rows[i].pre };
        keys[COUNT_OF(tiny_bpe) + 1] = (struct tiny_key){ "tokenizer.ggml.add_bos_token", *edge_rows[i].add_bos ? "b" : "", edge_rows[i].add_bos };
        keys[COUNT_OF(tiny_bpe) + 2] = (struct tiny_key){ "tokenizer.ggml.add_eos_token", *edge_rows[i].add_eos ? "b" : "", edge_rows[i].add_eos };
        check_begin("around a text: %s", edge_rows[i].name);
        struct tokenizer *t = open_tokenizer(keys, COUNT_OF(keys), &file);
        const char *want = edge_rows[i].want;
        check_ids(t, "b", 1, TOKENIZE_BEGIN | TOKENIZE_END, want);
        check_int(tokenizer_begin(t), *want == '1' ? 1 : -1);
        check_int(tokenizer_end(t), strchr(want, '2') ? 2 : -1);
        check_begin("around a text that has them: %s", edge_rows[i].name);
        check_ids(t, "<s>b</s>", 8, TOKENIZE_BEGIN | TOKENIZE_END | TOKENIZE_SPECIAL, "1 3 2");
        tokenizer_close(t);
        model_file_close(file);
    }
}

/* A vocabulary with every byte takes any bytes and gives them back. */
static void test_any_bytes(void)
{
    char *pieces = tiny_byte_pieces(), *types = tiny_repeat("1", 256);
    const struct tiny_key keys[] = {
        { "tokenizer.ggml.model", "s", "gpt2" }, { "tokenizer.ggml.pre", "s", "smollm" },
        { "tokenizer.ggml.tokens", "S", pieces }, { "tokenizer.ggml.token_type", "I", types },
        { "tokenizer.ggml.merges", "S", "" },
    };
    struct model_file *file = tiny_gguf_open(keys, COUNT_OF(keys));
    struct tokenizer *t = NULL;
    unsigned char text[1024];
    uint32_t dice = 1;
    check_begin("byte-level BPE: any bytes there and back");
    if (check_int(tokenizer_open(&t, file), 0))
        for (int round = 0; round < 100; round++) {
            for (size_t i = 0; i < sizeof text; i++)
                text[i] = (unsigned char)((dice = dice * 1664525 + 1013904223) >> 24);
            check_round_trip(t, "bytes", (const char *)text, sizeof text);
        }
    tokenizer_close(t);
    model_file_close(file);
    free(pieces);
    free(types);
}

/* Runs tokenizer_open() and gives what it wrote to standard error; free() it. */
static char *warning_of(const struct tiny_key *keys, size_t n)
{
    char *text = calloc(1, 1000);
    int real = dup(2), to = memfd_create("stderr", 0);
    struct model_file *file = tiny_gguf_open(keys, n);
    struct tokenizer *t = NULL;
    dup2(to, 2);
    int err = tokenizer_open(&t, file);
    dup2(real, 2);
    check_int(err, 0);
    check(pread(to, text, 999, 0) >= 0);
    close(real);
    close(to);
    tokenizer_close(t);
    model_file_close(file);
    return text;
}

/* TK-03: a vocabulary of more than bytes without merges is odd, and said to be; one of bytes alone is not. */
static void test_no_merges(void)
{
    for (size_t n_more = 0; n_more < 2; n_more++) {
        char *bytes = tiny_byte_pieces(), *pieces = tiny_join(bytes, n_more ? "<s>\nab" : "<s>\n</s>"), *ones = tiny_repeat("1", 256),
             *types = tiny_join(ones, n_more ? "3\n1" : "3\n3");
        const struct tiny_key keys[] = {
            { "tokenizer.ggml.model", "s", "gpt2" }, { "tokenizer.ggml.pre", "s", "gpt-2" }, { "tokenizer.ggml.tokens", "S", pieces },
            { "tokenizer.ggml.token_type", "I", types }, { "tokenizer.ggml.merges", "S", "" },
        };
        check_begin("TK-03: an empty table of merges, %zu pieces more than bytes", n_more);
        char *warning = warning_of(keys, COUNT_OF(keys));
        check_int(strstr(warning, "tokenizer.ggml.merges: no merges") != NULL, n_more);
        check_int(*warning != 0, n_more);
        free(warning);
        free(bytes);
        free(pieces);
        free(ones);
        free(types);
    }
}

#define BLANK "\xe2\x96\x81"

/* Pieces of the SentencePiece kind; 3 and 4 spell bytes, 0xc3 and 0xa9. */
static const struct tiny_key tiny_spm[] = {
    { "tokenizer.ggml.model", "s", "llama" },
    { "tokenizer.ggml.tokens", "S", "<unk>\n<s>\n</s>\n<0xC3>\n<0xA9>\n" BLANK "\na\nb\n" BLANK "a\nab\n" BLANK "ab\n" BLANK BLANK "\naa\n<x>\n<" BLANK "y>" },
    { "tokenizer.ggml.token_type", "I", "2\n3\n3\n6\n6\n1\n1\n1\n1\n1\n1\n1\n1\n3\n4" },
    { "tokenizer.ggml.scores", "F", "0\n0\n0\n0\n0\n-1\n-2\n-3\n-7\n-5\n-6\n-8\n-9\n0\n0" },
    { "tokenizer.ggml.bos_token_id", "u", "1" },
    { "tokenizer.ggml.eos_token_id", "u", "2" },
    { "tokenizer.ggml.unknown_token_id", "u", "0" },
};

static const struct { const char *name, *text; unsigned flags; const char *want; } spm_rows[] = {
    { "nothing",                           "",         0,                                 "" },
    { "TK-08: nothing, with a begin",      "",         TOKENIZE_BEGIN,                    "1" },
    { "TK-08: a blank goes before the text", "a",        0,                                 "8" },
    { "the best score first",              "ab",       0,                                 "10" },
    { "a blank of its own stays",          " a",       0,                                 "5 8" },
    { "TK-08: one blank",                  " ",        0,                                 "11" },
    { "leftmost of equals",                "baaa",     0,                                 "5 7 12 6" },
    { "byte fallback",                     "b\xc3\xa9", 0,                                "5 7 3 4" },
    { "unknown bytes",                     "bz\xff",   0,                                 "5 7 0 0" },
    { "a control token is text",           "a<x>",     0,                                 "8 0 0 0" },
    { "or recognised",                     "a<x>a",    TOKENIZE_SPECIAL,                  "8 13 6" },
    { "TK-07: no blank after a special token", "<x>a",     TOKENIZE_SPECIAL,                  "13 6" },
    { "TK-07: but the one that is there",  "<x> a",    TOKENIZE_SPECIAL,                  "13 8" },
    { "user-defined, stored with a mark",  "a< y>a",   0,                                 "8 14 6" },
    { "a begin token is not doubled",      "<s>a",     TOKENIZE_SPECIAL | TOKENIZE_BEGIN, "1 6" },
};

static void test_tiny_spm(void)
{
    struct model_file *file = tiny_gguf_open(tiny_spm, COUNT_OF(tiny_spm));
    struct tokenizer *t = NULL;
    size_t n;
    check_begin("tiny SentencePiece: open");
    if (!check_int(tokenizer_open(&t, file), 0)) {
        printf("%s\n", error_text());
        return;
    }
    check_int(tokenizer_begin(t), 1);
    check_bytes("blank", tokenizer_bytes(t, 10, false, &n), " ab", 3);
    check_int(n, 3);
    check_bytes("byte", tokenizer_bytes(t, 3, false, &n), "\xc3", 1);
    check_int(n, 1);
    for (size_t i = 0; i < COUNT_OF(spm_rows); i++) {
        check_begin("tiny SentencePiece: %s", spm_rows[i].name);
        check_ids(t, spm_rows[i].text, strlen(spm_rows[i].text), spm_rows[i].flags, spm_rows[i].want);
    }
    check_long_runs(t, "SentencePiece");
    tokenizer_close(t);
    model_file_close(file);
}

/* Metadata that lies.  The error names the key. */
#define KEY(name) "tokenizer.ggml." name
static const struct { const char *name; bool spm; struct tiny_key bad; const char *want; } bad_rows[] = {
    { "no model",                false, { KEY("model"), "", "" },                  KEY("model") },
    { "an unknown model",        false, { KEY("model"), "s", "t6" },               KEY("model") },
    { "a number for a model",    false, { KEY("model"), "u", "1" },                KEY("model") },
    { "no pre-tokenizer",        false, { KEY("pre"), "", "" },                    KEY("pre") },
    { "an unknown one",          false, { KEY("pre"), "s", "gpt-2x" },             "\"gpt-2x\" is not known" },
    { "no tokens",               false, { KEY("tokens"), "", "" },                 KEY("tokens: missing") },
    { "numbers for tokens",      false, { KEY("tokens"), "I", "1\n2" },            KEY("tokens: wanted") },
    { "an empty list of tokens", false, { KEY("tokens"), "S", "" },                KEY("tokens") },
    { "no types",                false, { KEY("token_type"), "", "" },             KEY("token_type: missing") },
    { "too few types",           false, { KEY("token_type"), "I", "1\n1" },        KEY("token_type: 2 types for 14") },
    { "strings for types",       false, { KEY("token_type"), "S", "1\n1" },        KEY("token_type: wanted") },
    { "a type that is none",     false, { KEY("token_type"), "I", "1\n3\n3\n1\n1\n1\n1\n7\n1\n1\n1\n4\n4\n1" }, "token 7 has type 7" },
    { "no merges",               false, { KEY("merges"), "", "" },                 KEY("merges: missing") },
    { "TK-03: merges that are no strings", false, { KEY("merges"), "I", "1\n2" }, KEY("merges: wanted an array of strings") },
    { "an unknown part",         false, { KEY("merges"), "S", "b c\na q" },        KEY("merges: merge 1") },
    { "an unknown whole",        false, { KEY("merges"), "S", "c b" },             KEY("merges: merge 0") },
    { "TK-04: three parts",      false, { KEY("merges"), "S", "a b c" },           KEY("merges: merge 0") },
    { "one part",                false, { KEY("merges"), "S", "ab" },              KEY("merges: merge 0") },
    { "an empty part",           false, { KEY("merges"), "S", " ab" },             KEY("merges: merge 0") },
    { "begin out of range",      false, { KEY("bos_token_id"), "u", "14" },        KEY("bos_token_id") },
    { "begin wanted, not there", false, { KEY("bos_token_id"), "", "" },           KEY("bos_token_id: missing") },
    { "end out of range",        false, { KEY("eos_token_id"), "u", "4294967295" }, KEY("eos_token_id") },
    { "end of turn is a string", false, { KEY("eot_token_id"), "s", "2" },         KEY("eot_token_id") },
    { "add_bos is a number",     false, { KEY("add_bos_token"), "u", "1" },        KEY("add_bos_token") },
    { "no scores",               true,  { KEY("scores"), "", "" },                 KEY("scores: missing") },
    { "too few scores",          true,  { KEY("scores"), "F", "1\n2" },            KEY("scores: 2 scores") },
    { "strings for scores",      true,  { KEY("scores"), "S", "1\n2" },            KEY("scores: wanted") },
    { "a score is NaN",          true,  { KEY("scores"), "F", "0\nnan\n0\n0\n0\n-1\n-2\n-3\n-7\n-5\n-6\n-8\n-9\n0\n0" }, KEY("scores") },
    { "a byte that is none",     true,  { KEY("token_type"), "I", "2\n3\n3\n6\n6\n6\n1\n1\n1\n1\n1\n1\n1\n3\n4" }, "token 5 is a byte" },
    { "unknown out of range",    true,  { KEY("unknown_token_id"), "u", "99" },    KEY("unknown_token_id") },
};

static void test_bad_files(void)
{
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        struct tiny_key keys[COUNT_OF(tiny_bpe) + 1];
        size_t n = bad_rows[i].spm ? COUNT_OF(tiny_spm) : COUNT_OF(tiny_bpe);
        struct tokenizer *t = NULL;
        check_begin("bad file: %s", bad_rows[i].name);
        memcpy(keys, bad_rows[i].spm ? tiny_spm : tiny_bpe, n * sizeof *keys);
        keys[n++] = bad_rows[i].bad;
        struct model_file *file = tiny_gguf_open(keys, n);
        check_int(tokenizer_open(&t, file), ERR_BAD_FILE);
        if (!check(strstr(error_text(), bad_rows[i].want)))
            printf("  %s\n", error_text());
        check(!t);
        model_file_close(file);
    }
}

int main(void)
{
    test_tiny_bpe();
    test_edges();
    test_any_bytes();
    test_no_merges();
    test_tiny_spm();
    test_bad_files();
    test_real_model();
    return check_done();
}
