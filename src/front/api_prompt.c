/* api_prompt.c: prompts of a completion: a text, a list of them, ids, a list of lists of ids. */
#include "front/api_read.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int api_read_ids(struct api_reader *r, struct arena *arena, const struct template_list *list, const char *param, int32_t **ids)
{
    *ids = arena_array(arena, int32_t, list->n);
    if (!*ids)
        return api_no_memory(r->error);
    for (size_t i = 0; i < list->n; i++) {
        int64_t id;
        if (!api_integer(&list->items[i], &id))
            return api_refuse(r->error, param, "%s[%zu] must be a token id", param, i);
        if (id < 0 || id >= r->model->n_vocab)
            return api_refuse(r->error, param, "%s[%zu] is %lld, and token ids go from 0 to %u", param, i, (long long)id,
                              r->model->n_vocab - 1);
        (*ids)[i] = (int32_t)id;
    }
    return 0;
}

static int encode_text(struct api_reader *r, struct arena *arena, const struct template_value *text, const char *param,
                       struct api_prompt *out)
{
    const struct encode_text encode = { .bytes = text->text.bytes, .n_bytes = text->text.n_bytes,
                                        .flags = TOKENIZE_SPECIAL | (r->fields.add_special ? TOKENIZE_BEGIN : 0) };
    int32_t *ids = NULL;
    if (text->text.n_bytes > api_most_bytes(r))
        return api_refuse_length(r, text->text.n_bytes / tokenizer_longest(r->model->tokenizer), true);
    int err = tokenizer_encode_text(r->model->tokenizer, &encode, &ids, &out->n_ids);
    if (err < 0)
        return api_refuse_as_told(r->error, err, param);
    out->ids = arena_array(arena, int32_t, out->n_ids);
    char *copy = arena_alloc(arena, text->text.n_bytes + 1);
    if (out->ids && copy) {
        memcpy(out->ids, ids, out->n_ids * sizeof *ids);
        memcpy(copy, text->text.bytes, text->text.n_bytes);
    }
    free(ids);
    out->text = copy;
    out->n_text = text->text.n_bytes;
    return out->ids && copy ? 0 : api_no_memory(r->error);
}

static int decode_ids(struct api_reader *r, struct arena *arena, struct api_prompt *out)
{
    struct buffer bytes = { 0 }, text = { 0 };
    struct utf8_stream stream = { 0 };
    tokenizer_decode(r->model->tokenizer, out->ids, out->n_ids, !r->fields.skip_special, &bytes);
    utf8_stream_add(&stream, bytes.bytes ? bytes.bytes : "", bytes.size, &text);
    utf8_stream_end(&stream, &text);
    char *copy = bytes.failed || text.failed ? NULL : arena_alloc(arena, text.size + 1);
    if (copy && text.size)
        memcpy(copy, text.bytes, text.size);
    out->text = copy;
    out->n_text = text.size;
    buffer_release(&bytes);
    buffer_release(&text);
    return copy ? 0 : api_no_memory(r->error);
}

static int read_prompt(struct api_reader *r, struct arena *arena, const struct template_value *value, const char *param,
                       struct api_prompt *out)
{
    if (value->kind == VALUE_STRING) {
        if (encode_text(r, arena, value, param, out) < 0)
            return -1;
    } else if (value->kind == VALUE_LIST) {
        if (api_read_ids(r, arena, value->list, param, &out->ids) < 0)
            return -1;
        out->n_ids = value->list->n;
        if (r->fields.echo && decode_ids(r, arena, out) < 0)
            return -1;
    } else {
        return api_refuse(r->error, param, "%s must be a string, an array of token ids, or an array of those", param);
    }
    return out->n_ids ? 0 : api_refuse(r->error, param, "%s is empty", param);
}

int api_encode_prompts(struct api_reader *r, struct arena *arena, struct api_prompt **prompts, uint32_t *n)
{
    const struct template_value *value = r->fields.prompt;
    if (!value)
        return api_refuse(r->error, "prompt", "prompt is missing");
    const struct template_value *first = value->kind == VALUE_LIST && value->list->n ? &value->list->items[0] : NULL;
    bool is_list = first && first->kind != VALUE_INT && first->kind != VALUE_FLOAT;
    size_t n_prompts = is_list ? value->list->n : 1;
    if (n_prompts > API_MAX_PROMPTS)
        return api_refuse(r->error, "prompt", "prompt has %zu items, the limit is %d", n_prompts, API_MAX_PROMPTS);
    *prompts = arena_array(arena, struct api_prompt, n_prompts);
    if (!*prompts)
        return api_no_memory(r->error);
    for (size_t i = 0; i < n_prompts; i++) {
        char param[32] = "prompt";
        if (is_list)
            snprintf(param, sizeof param, "prompt[%zu]", i);
        if (read_prompt(r, arena, is_list ? &value->list->items[i] : value, param, &(*prompts)[i]) < 0)
            return -1;
    }
    *n = (uint32_t)n_prompts;
    return 0;
}
