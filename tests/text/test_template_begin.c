/* test_template_begin.c: CT-05: a prompt has exactly one begin token, whether the chat template writes it or not. */
#include "base/buffer.h"
#include "tests/check.h"
#include "tests/text/tiny_gguf.h"
#include "text/template.h"
#include "text/tokenizer.h"

static const struct tiny_key bpe[] = {
    { "tokenizer.ggml.model", "s", "gpt2" },
    { "tokenizer.ggml.pre", "s", "gpt-2" },
    { "tokenizer.ggml.tokens", "S", "a\n<s>\n</s>\nb\n<u>" },
    { "tokenizer.ggml.token_type", "I", "1\n3\n3\n1\n3" },
    { "tokenizer.ggml.merges", "S", "" },
    { "tokenizer.ggml.bos_token_id", "u", "1" },
    { "tokenizer.ggml.eos_token_id", "u", "2" },
    { "tokenizer.ggml.add_bos_token", "b", "1" },
};
static const struct tiny_key spm[] = {
    { "tokenizer.ggml.model", "s", "llama" },
    { "tokenizer.ggml.tokens", "S", "<unk>\n<s>\n</s>\n\xe2\x96\x81\na\nb\n<u>" },
    { "tokenizer.ggml.token_type", "I", "2\n3\n3\n1\n1\n1\n3" },
    { "tokenizer.ggml.scores", "F", "0\n0\n0\n-1\n-2\n-3\n0" },
    { "tokenizer.ggml.bos_token_id", "u", "1" },
    { "tokenizer.ggml.eos_token_id", "u", "2" },
    { "tokenizer.ggml.unknown_token_id", "u", "0" },
    { "tokenizer.ggml.add_bos_token", "b", "1" },
};

/* Each with a user who says "a". */
static const struct { const char *name, *template; } rows[] = {
    { "the template writes it",           "{{ bos_token }}<u>{{ messages[0].content }}{{ eos_token }}" },
    { "the template does not",            "<u>{{ messages[0].content }}{{ eos_token }}" },
    { "text stands right behind it",      "{{ bos_token }}{{ messages[0].content }}" },
    { "text alone",                       "{{ messages[0].content }}" },
    { "it is written as text",            "<s>{% for m in messages %}{{ m.content }}{% endfor %}" },
    { "a loop writes it once",            "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}<u>{{ m.content }}{% endfor %}" },
    { "blanks before it are trimmed",     "\n  {%- if true %}\n  {{- bos_token }}\n{%- endif %}<u>{{ messages[0].content }}" },
};

static void check_model(const char *model, const struct tiny_key *keys, size_t n_keys)
{
    static const struct chat_message messages[] = { { "user", "a" } };
    static const struct chat_options options = { .bos_token = "<s>", .eos_token = "</s>" };
    struct model_file *file = tiny_gguf_open(keys, n_keys);
    struct tokenizer *tokenizer = NULL;
    check_begin("CT-05 %s", model);
    check_int(tokenizer_open(&tokenizer, file), 0);
    for (size_t i = 0; tokenizer && i < COUNT_OF(rows); i++) {
        struct template *template = NULL;
        struct buffer text = { 0 };
        int32_t *ids = NULL;
        size_t n = 0, n_begins = 0;
        check_begin("CT-05 %s, %s", model, rows[i].name);
        check_int(template_open(&template, rows[i].template, strlen(rows[i].template)), 0);
        check_int(template_render_chat(template, messages, 1, &options, &text), 0);
        check_int(tokenizer_encode(tokenizer, text.bytes, text.size, TOKENIZE_BEGIN | TOKENIZE_SPECIAL, &ids, &n), 0);
        for (size_t k = 0; k < n; k++)
            n_begins += ids[k] == tokenizer_begin(tokenizer);
        check_int(n_begins, 1);
        check(n > 1 && ids[0] == tokenizer_begin(tokenizer));
        free(ids);
        buffer_release(&text);
        template_close(template);
    }
    tokenizer_close(tokenizer);
    model_file_close(file);
}

/* What a user writes is no begin token of the template's: the model's own comes before it. */
static void test_begin_of_a_user(void)
{
    struct model_file *file = tiny_gguf_open(bpe, COUNT_OF(bpe));
    struct tokenizer *tokenizer = NULL;
    const struct text_range user = { 0, 3 };
    const struct encode_text text = { .bytes = "<s>a", .n_bytes = 4, .flags = TOKENIZE_BEGIN | TOKENIZE_SPECIAL, .plain = &user, .n_plain = 1 };
    int32_t *ids = NULL;
    size_t n = 0, n_begins = 0;
    check_begin("CT-05 a user writes the name of the begin token");
    if (check_int(tokenizer_open(&tokenizer, file), 0) && check_int(tokenizer_encode_text(tokenizer, &text, &ids, &n), 0)) {
        for (size_t k = 0; k < n; k++)
            n_begins += ids[k] == 1;
        check_int(n_begins, 1);
        check(n && ids[0] == 1);
    }
    free(ids);
    tokenizer_close(tokenizer);
    model_file_close(file);
}

int main(void)
{
    check_model("byte-level BPE", bpe, COUNT_OF(bpe));
    check_model("SentencePiece", spm, COUNT_OF(spm));
    test_begin_of_a_user();
    return check_done();
}
