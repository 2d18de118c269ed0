#include "cli/prompt.h"

#include "base/buffer.h"
#include "base/error.h"
#include "text/chat_prompt.h"
#include "text/template_value.h"

#include <string.h>

static void add_token_text(struct buffer *out, const struct session *s, const char *key)
{
    uint64_t id;
    size_t n_bytes;
    if (!model_file_get_u64(s->file, key, &id) || id > INT32_MAX)
        return;
    const char *bytes = tokenizer_bytes(s->tokenizer, (int32_t)id, true, &n_bytes);
    buffer_add(out, bytes, n_bytes);
}

int prompter_open(struct prompter *p, const struct session *s)
{
    const char *source;
    size_t n_bytes;
    *p = (struct prompter){ 0 };
    if (!model_file_get_string(s->file, "tokenizer.chat_template", &source, &n_bytes))
        return 0;
    add_token_text(&p->bos, s, "tokenizer.ggml.bos_token_id");
    add_token_text(&p->eos, s, "tokenizer.ggml.eos_token_id");
    return template_open(&p->template, source, n_bytes);
}

void prompter_release(struct prompter *p)
{
    template_close(p->template);
    buffer_release(&p->bos);
    buffer_release(&p->eos);
}

static bool put_text(struct arena *arena, struct template_value map, const char *key, const char *text)
{
    return map.kind == VALUE_MAP && template_map_set(arena, map, key, strlen(key), template_value_text(text, strlen(text)));
}

int prompt_chat(const struct prompter *p, const struct session *s, const struct chat_message *messages, size_t n_messages, int32_t **ids,
                size_t *n)
{
    struct arena arena = { 0 };
    struct template_value list = template_value_list(&arena, LIST_LIST);
    struct chat_options options = { .add_generation_prompt = true, .bos_token = p->bos.bytes ? p->bos.bytes : "",
                                    .eos_token = p->eos.bytes ? p->eos.bytes : "" };
    struct chat_prompt prompt = { .tokenizer = s->tokenizer, .template = p->template, .messages = &list, .options = &options };
    bool ok = list.kind == VALUE_LIST;
    for (size_t i = 0; i < n_messages && ok; i++) {
        struct template_value message = template_value_map(&arena);
        ok = put_text(&arena, message, "role", messages[i].role) && put_text(&arena, message, "content", messages[i].content) &&
             template_list_add(&arena, list, message);
    }
    int err = ok ? chat_prompt_encode(&prompt, ids, n) : error_set(ERR_NO_MEMORY, "out of memory for the prompt");
    arena_close(&arena);
    return err;
}

int prompt_raw(const struct session *s, const char *text, size_t n_bytes, int32_t **ids, size_t *n)
{
    return tokenizer_encode(s->tokenizer, text, n_bytes, TOKENIZE_BEGIN | TOKENIZE_SPECIAL, ids, n);
}
