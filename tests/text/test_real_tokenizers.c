/* Real tokenizers against the references (golden/README.md): ids of every hard string, and decoding gives the text back. */
#include "tests/text/metadata.h"
#include "tests/text/tokens.h"

static const struct { const char *name, *variable, *file, *golden; int32_t begin; } models[] = {
    { "SmolLM2", "STOA_MODEL",    "SmolLM2-135M-Instruct.Q4_1.gguf",              "smollm2_tokens.json", -1 },
    { "Gemma 3", "STOA_GEMMA",    "gemma-3-270m-q4_k_m.gguf",                     "gemma3_tokens.json",  2 },
    { "Qwen2.5", "STOA_QWEN_05B", "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",      "qwen2_tokens.json",   -1 },
};

static void check_decoded(const struct tokenizer *t, json_t *ids, const char *want, size_t n_want)
{
    size_t n = json_array_size(ids);
    int32_t *all = calloc(n + 1, sizeof *all);
    struct buffer out = { 0 };
    for (size_t i = 0; i < n; i++)
        all[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    tokenizer_decode(t, all, n, true, &out);
    if (check_int(out.size, n_want))
        check_bytes("decoded", out.bytes, want, n_want);
    buffer_release(&out);
    free(all);
}

/* The model's begin token goes before a text, once, also where the text has it already. */
static void check_begin_once(const struct tokenizer *t, int32_t begin, const char *text, size_t n_bytes, json_t *ids)
{
    json_t *want = json_copy(ids);      /* json_array() and json_integer() are Stoa's, not jansson's */
    if (begin >= 0 && json_integer_value(json_array_get(ids, 0)) != begin)
        json_array_insert_new(want, 0, json_pack("i", begin));
    check_golden(t, text, n_bytes, TOKENIZE_SPECIAL | TOKENIZE_BEGIN | TOKENIZE_END, want);
    json_decref(want);
}

static void test_strings(size_t m, const struct tokenizer *t)
{
    json_t *texts = golden_load("hard_strings.json"), *golden = golden_load(models[m].golden);
    json_t *all = json_object_get(golden, "ids"), *decoded = json_object_get(golden, "decoded");
    check_int(json_array_size(all), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        json_t *text = json_array_get(texts, i), *ids = json_array_get(all, i);
        const char *bytes = json_string_value(text);
        size_t n_bytes = json_string_length(text);
        char index[32];
        snprintf(index, sizeof index, "%zu", i);
        check_begin("%s string %zu", models[m].name, i);
        check_golden(t, bytes, n_bytes, TOKENIZE_SPECIAL, ids);
        check_begin_once(t, models[m].begin, bytes, n_bytes, ids);
        json_t *other = json_object_get(decoded, index), *want = other ? other : text;
        check_decoded(t, ids, json_string_value(want), json_string_length(want));
    }
    json_decref(texts);
    json_decref(golden);
}

static void test_model(size_t m)
{
    const char *path = getenv(models[m].variable);
    struct tokenizer *t = NULL;
    if (!path || !*path)
        path = cached_model(models[m].file);
    struct model_file *file = path ? metadata_open(path) : NULL;
    check_begin("%s: open", models[m].name);
    if (!file) {
        check_skip("the model is not there: scripts/model fetches it");
        return;
    }
    if (check_int(tokenizer_open(&t, file), 0)) {
        check_int(tokenizer_begin(t), models[m].begin);
        check_int(tokenizer_end(t), -1);
        test_strings(m, t);
        check_long_runs(t, models[m].name);
    }
    tokenizer_close(t);
    model_file_close(file);
}

int main(void)
{
    for (size_t m = 0; m < COUNT_OF(models); m++)
        test_model(m);
    return check_done();
}
