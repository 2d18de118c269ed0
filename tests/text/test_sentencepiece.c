#include "tests/text/tokens.h"

#define KEY(name) "tokenizer.ggml." name
#define BLANK "\xe2\x96\x81"

static const char *member(json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static void check_all(const struct tokenizer *t, const char *which, json_t *texts, json_t *ids)
{
    for (size_t i = 0; t && i < json_array_size(texts); i++) {
        json_t *text = json_array_get(texts, i);
        check_begin("%s%s string %zu", strstr(json_string_value(text), "<sep>") ? "TK-07: " : "", which, i);
        check_golden(t, json_string_value(text), json_string_length(text), 0, json_array_get(ids, i));
    }
}

static void test_bpe_goldens(void)
{
    json_t *golden = golden_load("spm.json"), *texts = json_object_get(golden, "texts");
    for (int prefix = 0; prefix < 2; prefix++) {
        const struct tiny_key keys[] = {
            { KEY("model"), "s", "llama" }, { KEY("tokens"), "S", member(golden, "pieces") },
            { KEY("token_type"), "I", member(golden, prefix ? "types" : "types_no_prefix") },
            { KEY("scores"), "F", member(golden, "scores") }, { KEY("bos_token_id"), "u", "1" }, { KEY("unknown_token_id"), "u", "0" },
            { KEY("add_space_prefix"), "b", prefix ? "1" : "0" },
        };
        struct model_file *file;
        check_begin("SentencePiece BPE: open");
        struct tokenizer *t = open_tokenizer(keys, COUNT_OF(keys) - (size_t)prefix, &file);     /* a prefix is the default */
        check_all(t, prefix ? "SentencePiece BPE" : "SentencePiece BPE without a prefix", texts, json_object_get(golden, prefix ? "ids" : "ids_no_prefix"));
        check_begin("TK-08: an empty text is its begin token");
        check_ids(t, "", 0, TOKENIZE_BEGIN, "1");
        check_ids(t, "", 0, 0, "");
        for (size_t i = 0; t && i < json_array_size(texts); i++) {
            json_t *text = json_array_get(texts, i);
            check_begin("SentencePiece BPE, there and back: string %zu", i);
            if (!strstr(json_string_value(text), BLANK))
                check_round_trip(t, "text", json_string_value(text), json_string_length(text));
        }
        tokenizer_close(t);
        model_file_close(file);
    }
    json_decref(golden);
}

/* The numbers of a file's bytes, one a line; free() it. */
static char *file_lines(const char *name)
{
    char path[256];
    struct buffer out = { 0 };
    snprintf(path, sizeof path, "tests/golden/%s", name);
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF; )
        buffer_printf(&out, out.size ? "\n%d" : "%d", c);
    if (!check(f && out.size))
        abort();
    fclose(f);
    return out.bytes;
}

static struct tokenizer *open_unigram(json_t *model, const char *charsmap, struct model_file **file)
{
    const struct tiny_key keys[] = {
        { KEY("model"), "s", "t5" }, { KEY("tokens"), "S", member(model, "pieces") }, { KEY("token_type"), "I", member(model, "types") },
        { KEY("scores"), "F", member(model, "scores") }, { KEY("eos_token_id"), "u", "2" }, { KEY("unknown_token_id"), "u", "0" },
        { KEY("add_space_prefix"), "b", json_is_true(json_object_get(model, "prefix")) ? "1" : "0" },
        { KEY("remove_extra_whitespaces"), "b", json_is_true(json_object_get(model, "merge")) ? "1" : "0" },
        { KEY("precompiled_charsmap"), *charsmap ? "Y" : "", charsmap },
    };
    return open_tokenizer(keys, COUNT_OF(keys), file);
}

/* What neither changes characters nor has any that it does not know gives the text back. */
static void check_unigram(const struct tokenizer *t, const char *name, json_t *texts)
{
    for (size_t i = 0; !strcmp(name, "bytes") && i < json_array_size(texts); i++) {
        json_t *text = json_array_get(texts, i);
        check_begin("unigram, there and back: string %zu", i);
        if (!strstr(json_string_value(text), BLANK))
            check_round_trip(t, "text", json_string_value(text), json_string_length(text));
    }
    check_begin("unigram %s: edges", name);
    check_int(tokenizer_begin(t), -1);
    check_int(tokenizer_end(t), 2);
    check_ids(t, "", 0, TOKENIZE_BEGIN | TOKENIZE_END, "2");
    check_ids(t, "</s>", 4, TOKENIZE_SPECIAL | TOKENIZE_END, "2");
    check_long_runs(t, name);
}

static void test_unigram_goldens(void)
{
    json_t *golden = golden_load("unigram.json"), *texts = json_object_get(golden, "texts"), *models = json_object_get(golden, "models");
    for (size_t m = 0; m < json_array_size(models); m++) {
        json_t *model = json_array_get(models, m);
        const char *name = member(model, "name");
        char *lines = *member(model, "charsmap") ? file_lines(member(model, "charsmap")) : strdup(member(model, "rules"));
        struct model_file *file;
        check_begin("unigram %s: open", name);
        struct tokenizer *t = open_unigram(model, lines, &file);
        check_all(t, name, texts, json_object_get(model, "ids"));
        if (t)
            check_unigram(t, name, texts);
        tokenizer_close(t);
        model_file_close(file);
        free(lines);
    }
    json_decref(golden);
}

/* Pieces with a mark where words begin. */
static const struct tiny_key words[] = {
    { KEY("model"), "s", "llama" },
    { KEY("tokens"), "S", "<unk>\n<s>\n</s>\n" BLANK "\n" BLANK "leading\n" BLANK "x\n" BLANK "in" BLANK "the\n" BLANK "house\n<" BLANK "c>\nq" },
    { KEY("token_type"), "I", "3\n3\n3\n1\n1\n1\n1\n1\n3\n1" },
    { KEY("unknown_token_id"), "u", "0" },
    { KEY("scores"), "F", "0\n0\n0\n-1\n-2\n-3\n-4\n-5\n0\n-6" },
    { KEY("bos_token_id"), "u", "1" },
    { KEY("eos_token_id"), "u", "2" },
};

static const struct { const char *name; int32_t ids[4]; size_t n; bool special; const char *want; } decode_rows[] = {
    { "TK-10: a blank of its own stays",         { 3, 4, 5 },    3, false, " leading x" },
    { "TK-10: blanks inside the first stay",     { 6, 7 },       2, false, "in the house" },
    { "TK-10: after a begin token",              { 1, 6, 7 },    3, false, "in the house" },
    { "TK-10: with its name",                    { 1, 6, 7 },    3, true,  "<s>in the house" },
    { "not after another token",                 { 8, 6 },       2, false, " in the" },
    { "nothing",                                 { 0 },          0, false, "" },
    { "only a begin token",                      { 1 },          1, false, "" },
    { "the unknown token and ids that are none", { 0, -1, 99, 9 }, 4, false, "q" },
};

static void test_decode(void)
{
    struct model_file *file;
    check_begin("decoding: open");
    struct tokenizer *t = open_tokenizer(words, COUNT_OF(words), &file);
    for (size_t i = 0; t && i < COUNT_OF(decode_rows); i++) {
        struct buffer out = { 0 };
        check_begin("decoding: %s", decode_rows[i].name);
        tokenizer_decode(t, decode_rows[i].ids, decode_rows[i].n, decode_rows[i].special, &out);
        check_text(out.bytes, decode_rows[i].want);
        buffer_release(&out);
    }
    check_begin("a token with a mark in its name is recognised with a mark and with a blank");
    check_ids(t, "q<" BLANK "c>q", 8, TOKENIZE_SPECIAL, "3 9 8 9");
    check_ids(t, "q< c>q", 6, TOKENIZE_SPECIAL, "3 9 8 9");
    check_begin("the unknown token is not recognised, and one stands for neighbours that no piece spells");
    check_ids(t, "<unk>q?", 7, TOKENIZE_SPECIAL, "3 0 9 0");
    tokenizer_close(t);
    model_file_close(file);
}

/* Three pieces and a map of characters; a row breaks it. */
static const struct tiny_key unigram[] = {
    { KEY("model"), "s", "t5" }, { KEY("tokens"), "S", "<unk>\n</s>\n" BLANK "\na" }, { KEY("token_type"), "I", "2\n3\n1\n1" },
    { KEY("scores"), "F", "0\n0\n-1\n-2" }, { KEY("eos_token_id"), "u", "1" },
};
static const struct { const char *name; struct tiny_key bad; const char *want; } bad_rows[] = {
    { "a map of four bytes",          { KEY("precompiled_charsmap"), "Y", "0\n0\n0\n0" },                   KEY("precompiled_charsmap: 4 bytes") },
    { "a map without units",          { KEY("precompiled_charsmap"), "Y", "0\n0\n0\n0\n0" },                KEY("precompiled_charsmap: 5 bytes") },
    { "units past its end",           { KEY("precompiled_charsmap"), "Y", "4\n0\n0\n0\n1\n1\n1\n1" },       KEY("precompiled_charsmap: 8 bytes") },
    { "half a unit",                  { KEY("precompiled_charsmap"), "Y", "2\n0\n0\n0\n1\n1\n0" },          KEY("precompiled_charsmap: 7 bytes") },
    { "strings without an end",       { KEY("precompiled_charsmap"), "Y", "4\n0\n0\n0\n1\n1\n1\n1\n65" },   KEY("precompiled_charsmap: 9 bytes") },
    { "a map that is text",           { KEY("precompiled_charsmap"), "s", "map" },                          KEY("precompiled_charsmap: wanted an array") },
    { "an infinite score",            { KEY("scores"), "F", "0\n0\n-1\n-inf" },                             KEY("scores: the score of token 3") },
    { "blanks that are a number",     { KEY("remove_extra_whitespaces"), "u", "1" },                        KEY("remove_extra_whitespaces: wanted a bool") },
    { "an end wanted, not there",     { KEY("eos_token_id"), "", "" },                                      KEY("eos_token_id: missing") },
    { "add_eos is a number",          { KEY("add_eos_token"), "u", "1" },                                   KEY("add_eos_token: wanted a bool") },
};

static void test_bad_files(void)
{
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        struct tiny_key keys[COUNT_OF(unigram) + 1];
        struct tokenizer *t = NULL;
        memcpy(keys, unigram, sizeof unigram);
        keys[COUNT_OF(unigram)] = bad_rows[i].bad;
        struct model_file *file = tiny_gguf_open(keys, COUNT_OF(keys));
        check_begin("bad file: %s", bad_rows[i].name);
        check_int(tokenizer_open(&t, file), ERR_BAD_FILE);
        if (!check(strstr(error_text(), bad_rows[i].want)))
            printf("  %s\n", error_text());
        check(!t);
        model_file_close(file);
    }
}

/* A character that no piece spells costs 10 more than the worst piece: 30 here. */
static const struct { const char *name, *scores, *want; } cut_rows[] = {
    { "two pieces are better than it and one",  "0\n0\n-1\n-20\n-6\n-1",  "2 3 4" },
    { "and worse",                              "0\n0\n-1\n-20\n-16\n-1", "2 0 5" },
    { "of equals the longer last piece",        "0\n0\n-1\n-20\n-11\n-1", "2 0 5" },
};

static void test_unknown_score(void)
{
    for (size_t i = 0; i < COUNT_OF(cut_rows); i++) {
        const struct tiny_key keys[] = {
            { KEY("model"), "s", "t5" }, { KEY("tokens"), "S", "<unk>\n</s>\n" BLANK "\nxa\nb\nab" },
            { KEY("token_type"), "I", "2\n3\n1\n1\n1\n1" }, { KEY("scores"), "F", cut_rows[i].scores }, { KEY("eos_token_id"), "u", "1" },
        };
        struct model_file *file;
        check_begin("a character that no piece spells: %s", cut_rows[i].name);
        struct tokenizer *t = open_tokenizer(keys, COUNT_OF(keys), &file);
        check_ids(t, "xab", 3, 0, cut_rows[i].want);
        tokenizer_close(t);
        model_file_close(file);
    }
}

/* A trie of one key, "b": from the root at offset 128 to the unit 128 ^ 'b', which has a leaf beside it.  The strings are "a". */
static void test_small_charsmap(void)
{
    for (uint32_t value = 0; value < 4; value++) {
        uint32_t units[256] = { [0] = 128 << 10, [128 ^ 'b'] = 'b' | 1 << 8 | 1 << 10, [128 ^ 'b' ^ 1] = 1u << 31 | value };
        struct buffer lines = { 0 };
        struct tiny_key keys[COUNT_OF(unigram) + 1];
        struct model_file *file;
        buffer_add_text(&lines, "0\n4\n0\n0");
        for (size_t i = 0; i < 4 * COUNT_OF(units); i++)
            buffer_printf(&lines, "\n%u", units[i / 4] >> 8 * (i % 4) & 255);
        buffer_add_text(&lines, "\n97\n0");
        memcpy(keys, unigram, sizeof unigram);
        keys[COUNT_OF(unigram)] = (struct tiny_key){ KEY("precompiled_charsmap"), "Y", lines.bytes };
        check_begin("a map of one character to string %u of two bytes", value);
        struct tokenizer *t = open_tokenizer(keys, COUNT_OF(keys), &file);
        check_ids(t, "abba", 4, 0, value == 0 ? "2 3 3 3 3" : value == 1 ? "2 3 3" : "2 3 0 3");
        tokenizer_close(t);
        model_file_close(file);
        buffer_release(&lines);
    }
}

/* A trie whose units point everywhere is walked within its bounds. */
static void test_wild_charsmap(void)
{
    struct tiny_key keys[COUNT_OF(unigram) + 1];
    struct buffer lines = { 0 };
    uint32_t dice = 7;
    memcpy(keys, unigram, sizeof unigram);
    for (int round = 0; round < 50; round++) {
        struct model_file *file;
        lines.size = 0;
        buffer_add_text(&lines, "0\n4\n0\n0");
        for (int i = 0; i < 1024 + 16; i++)
            buffer_printf(&lines, "\n%u", (dice = dice * 1664525 + 1013904223) >> 24 & (i % 4 ? 0x0f : 0xff));
        buffer_add_text(&lines, "\n0");
        keys[COUNT_OF(unigram)] = (struct tiny_key){ KEY("precompiled_charsmap"), "Y", lines.bytes };
        check_begin("a map of random units");
        struct tokenizer *t = open_tokenizer(keys, COUNT_OF(keys), &file);
        for (int k = 0; t && k < 256; k++) {
            char text[8];
            int32_t *ids = NULL;
            size_t n;
            for (size_t i = 0; i < sizeof text; i++)
                text[i] = (char)((dice = dice * 1664525 + 1013904223) >> 24);
            check_int(tokenizer_encode(t, text, sizeof text, 0, &ids, &n), 0);
            free(ids);
        }
        tokenizer_close(t);
        model_file_close(file);
    }
    buffer_release(&lines);
}

int main(void)
{
    test_bpe_goldens();
    test_unigram_goldens();
    test_decode();
    test_bad_files();
    test_unknown_score();
    test_small_charsmap();
    test_wild_charsmap();
    return check_done();
}
