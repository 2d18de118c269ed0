/* tiny_model.h: a model for tests of the API: a token for each byte, whose id is the byte, five special ones, a chat template. */
#ifndef STOA_TESTS_TINY_MODEL_H
#define STOA_TESTS_TINY_MODEL_H

#include "base/error.h"
#include "front/api.h"
#include "tests/check.h"
#include "tests/text/tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

enum { TINY_BEGIN = 256, TINY_END, TINY_USER, TINY_ANSWER, TINY_TURN, TINY_VOCAB };     /* <s> </s> <u> <a> <|im_end|> */

static const char tiny_template[] =
    "{{ bos_token }}{% for m in messages %}<u>{{ m.role }}:{{ m.content | trim }}"
    "{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
    "{% if not loop.last or add_generation_prompt %}<|im_end|>{% endif %}{% endfor %}"
    "{% for d in documents or [] %}({{ d.text }}){% endfor %}"
    "{{ style }}{{ reasoning_effort }}{% if add_generation_prompt %}<a>{% endif %}";

struct tiny_model {
    struct api_model api;
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct template *template;
    char *pieces, *types;
};

static inline void tiny_model_open(struct tiny_model *m, uint32_t context)
{
    char *bytes = tiny_byte_pieces(), *normal = tiny_repeat("1", 256);
    *m = (struct tiny_model){ .pieces = tiny_join(bytes, "<s>\n</s>\n<u>\n<a>\n<|im_end|>"), .types = tiny_join(normal, "3\n3\n3\n3\n3") };
    const struct tiny_key keys[] = {
        { "tokenizer.ggml.model", "s", "gpt2" },
        { "tokenizer.ggml.pre", "s", "gpt-2" },
        { "tokenizer.ggml.tokens", "S", m->pieces },
        { "tokenizer.ggml.token_type", "I", m->types },
        { "tokenizer.ggml.merges", "S", "" },
        { "tokenizer.ggml.bos_token_id", "u", "256" },
        { "tokenizer.ggml.eos_token_id", "u", "257" },
        { "tokenizer.ggml.add_bos_token", "b", "1" },
    };
    m->file = tiny_gguf_open(keys, COUNT_OF(keys));
    if (tokenizer_open(&m->tokenizer, m->file) < 0 || template_open(&m->template, tiny_template, strlen(tiny_template)) < 0) {
        fprintf(stderr, "tiny_model: %s\n", error_text());
        abort();
    }
    m->api = (struct api_model){ .tokenizer = m->tokenizer, .template = m->template, .bos = "<s>", .eos = "</s>", .name = "tiny",
                                 .fingerprint = "f00d", .context = context, .n_vocab = TINY_VOCAB, .created_s = 1700000000 };
    free(bytes);
    free(normal);
}

static inline void tiny_model_close(struct tiny_model *m)
{
    template_close(m->template);
    tokenizer_close(m->tokenizer);
    model_file_close(m->file);
    free(m->pieces);
    free(m->types);
}

#endif
