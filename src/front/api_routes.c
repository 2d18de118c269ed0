/* api_routes.c: the small routes: models, /tokenize, /detokenize. */
#include "front/api_read.h"

#include "base/base.h"
#include "text/json_out.h"

#include <stdlib.h>
#include <string.h>

static void put_model(struct json_out *j, const struct api_model *model, const char *name)
{
    json_object(j, NULL);
    json_text(j, "id", name);
    json_text(j, "object", "model");
    json_integer(j, "created", model->created_s);
    json_text(j, "owned_by", "stoa");
    json_text(j, "root", model->name);
    json_none(j, "parent");
    json_integer(j, "max_model_len", model->context);
    json_end_object(j);
}

void api_models(struct buffer *out, const struct api_model *model)
{
    struct json_out j = { .to = out };
    json_object(&j, NULL);
    json_text(&j, "object", "list");
    json_array(&j, "data");
    put_model(&j, model, model->name);
    json_end_array(&j);
    json_end_object(&j);
}

void api_model(struct buffer *out, const struct api_model *model, const char *name)
{
    struct json_out j = { .to = out };
    put_model(&j, model, name);
}

/* ---- /tokenize ---- */

static void put_pieces(struct json_out *j, const struct api_model *model, const int32_t *ids, size_t n, bool with_ids)
{
    struct buffer text = { 0 };
    for (size_t i = 0; i < n; i++) {
        struct utf8_stream stream = { 0 };
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(model->tokenizer, ids[i], true, &n_bytes);
        bool whole = utf8_is_valid(bytes, n_bytes);
        text.size = 0;
        utf8_stream_add(&stream, bytes, n_bytes, &text);
        utf8_stream_end(&stream, &text);
        if (with_ids) {
            json_object(j, NULL);
            json_integer(j, "id", ids[i]);
        }
        if (whole || !with_ids)
            json_bytes(j, with_ids ? "piece" : NULL, text.bytes ? text.bytes : "", text.size);
        else
            json_array(j, "piece");
        for (size_t k = 0; !whole && with_ids && k < n_bytes; k++)
            json_integer(j, NULL, (unsigned char)bytes[k]);
        if (!whole && with_ids)
            json_end_array(j);
        if (with_ids)
            json_end_object(j);
    }
    j->to->failed |= text.failed;
    buffer_release(&text);
}

static void put_tokens(struct buffer *out, const struct api_reader *r, const int32_t *ids, size_t n)
{
    struct json_out j = { .to = out };
    json_object(&j, NULL);
    json_integer(&j, "count", (int64_t)n);
    json_integer(&j, "max_model_len", r->model->context);
    json_array(&j, "tokens");
    if (r->fields.with_pieces)
        put_pieces(&j, r->model, ids, n, true);
    for (size_t i = 0; i < n && !r->fields.with_pieces; i++)
        json_integer(&j, NULL, ids[i]);
    json_end_array(&j);
    if (r->fields.return_token_strs) {
        json_array(&j, "token_strs");
        put_pieces(&j, r->model, ids, n, false);
        json_end_array(&j);
    } else {
        json_none(&j, "token_strs");
    }
    json_end_object(&j);
}

static int encode(struct api_reader *r, int32_t **ids, size_t *n)
{
    const struct api_fields *f = &r->fields;
    const struct template_value *text = f->prompt ? f->prompt : f->content;
    if (api_check_chat(r) < 0)
        return -1;
    if (!text && !f->messages)
        return api_refuse(r->error, "prompt", "one of prompt, content and messages must be given");
    if (!text)
        return api_encode_chat(r, ids, n);
    unsigned flags = (f->parse_special ? TOKENIZE_SPECIAL : 0) | (f->add_special ? TOKENIZE_BEGIN : 0);
    int err = tokenizer_encode(r->model->tokenizer, text->text.bytes, text->text.n_bytes, flags, ids, n);
    return err < 0 ? api_refuse_as_told(r->error, err, f->prompt ? "prompt" : "content") : 0;
}

int api_tokenize(struct buffer *out, struct buffer *odd, const struct api_model *model, const char *body, size_t n_bytes,
                 struct api_error *error)
{
    struct api_reader r;
    int32_t *ids = NULL;
    size_t n = 0;
    int err = api_reader_open(&r, API_TOKENIZE, model, body, n_bytes, error);
    if (!err && (err = encode(&r, &ids, &n)) == 0) {
        put_tokens(out, &r, ids, n);
        api_fields_tell(&r.fields, odd);
    }
    free(ids);
    arena_close(&r.tree);
    return !err && out->failed ? api_no_memory(error) : err;
}

/* ---- /detokenize ---- */

static int decode(struct api_reader *r, struct buffer *out)
{
    struct buffer bytes = { 0 }, text = { 0 };
    struct utf8_stream stream = { 0 };
    struct json_out j = { .to = out };
    int32_t *ids;
    if (!r->fields.tokens)
        return api_refuse(r->error, "tokens", "tokens is missing");
    if (api_read_ids(r, &r->tree, r->fields.tokens->list, "tokens", &ids) < 0)
        return -1;
    tokenizer_decode(r->model->tokenizer, ids, r->fields.tokens->list->n, true, &bytes);
    utf8_stream_add(&stream, bytes.bytes ? bytes.bytes : "", bytes.size, &text);
    utf8_stream_end(&stream, &text);
    json_object(&j, NULL);
    json_bytes(&j, "prompt", text.bytes ? text.bytes : "", text.size);         /* as vLLM has it */
    json_bytes(&j, "content", text.bytes ? text.bytes : "", text.size);        /* and llama-server */
    json_end_object(&j);
    out->failed |= bytes.failed || text.failed;
    buffer_release(&bytes);
    buffer_release(&text);
    return out->failed ? api_no_memory(r->error) : 0;
}

int api_detokenize(struct buffer *out, struct buffer *odd, const struct api_model *model, const char *body, size_t n_bytes,
                   struct api_error *error)
{
    struct api_reader r;
    int err = api_reader_open(&r, API_DETOKENIZE, model, body, n_bytes, error);
    if (!err && (err = decode(&r, out)) == 0)
        api_fields_tell(&r.fields, odd);
    arena_close(&r.tree);
    return err;
}
