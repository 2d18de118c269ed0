/* api.c: from a body to a request: what its fields mean together. */
#include "front/api_read.h"

#include "base/base.h"
#include "base/error.h"
#include "text/json_in.h"
#include "text/json_out.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *api_error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default:  return status < 500 ? "invalid_request_error" : "server_error";
    }
}

void api_write_error(struct buffer *out, const struct api_error *error)
{
    struct json_out j = { .to = out };
    json_object(&j, NULL);
    json_object(&j, "error");
    json_text(&j, "message", error->message);
    json_text(&j, "type", error->type);
    if (*error->param)
        json_text(&j, "param", error->param);
    else
        json_none(&j, "param");
    if (error->code)
        json_text(&j, "code", error->code);
    else
        json_none(&j, "code");
    json_end_object(&j);
    json_end_object(&j);
}

int api_no_memory(struct api_error *error)
{
    *error = (struct api_error){ .status = 503, .type = api_error_type(503), .message = "no memory for this request" };
    return -1;
}

int api_refuse_as_told(struct api_error *error, int code, const char *param)
{
    return code == ERR_NO_MEMORY ? api_no_memory(error) : api_refuse(error, param, "%s", error_text());
}

/* Letters, digits and what names of models have between them; parts between slashes are not empty and begin with no dot. */
static bool is_plain_name(const char *name, size_t n)
{
    bool begins = true;
    for (size_t i = 0; i < n; i++) {
        char c = name[i], small = c | 0x20;
        bool plain = (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9') || (c && strchr("-_:+@", c)) || (c == '.' && !begins);
        if (!plain && (c != '/' || begins))
            return false;
        begins = c == '/';
    }
    return !begins;
}

static int check_model(const struct template_value *model, struct api_error *error)
{
    if (!model || is_plain_name(model->text.bytes, model->text.n_bytes))
        return 0;
    return api_refuse(error, "model", "model must be a plain name: letters, digits and -_.:+@ with / between");
}

int api_reader_open(struct api_reader *reader, enum api_kind kind, const struct api_model *model, const char *body, size_t n_bytes,
                    struct api_error *error)
{
    struct template_value tree;
    *reader = (struct api_reader){ .model = model, .kind = kind, .error = error };
    int err = json_read(&reader->tree, body, n_bytes, &tree);
    if (err < 0)
        return api_refuse_as_told(error, err, NULL);
    err = api_fields_read(&reader->fields, kind, model->strict, &tree, error);
    return err < 0 ? err : check_model(reader->fields.model, error);
}

static char *copy_bytes(struct arena *arena, const char *bytes, size_t n_bytes)
{
    char *copy = arena_alloc(arena, n_bytes + 1);
    return copy ? memcpy(copy, bytes, n_bytes) : NULL;
}

/* ---- names ---- */
static int read_names(struct api_reader *r, struct api_request *q)
{
    const struct api_fields *f = &r->fields;
    const struct template_value *model = f->model;
    q->model = model ? copy_bytes(q->arena, model->text.bytes, model->text.n_bytes) : r->model->name;
    if (f->cache_salt) {
        q->n_cache_salt = f->cache_salt->text.n_bytes;
        q->cache_salt = copy_bytes(q->arena, f->cache_salt->text.bytes, q->n_cache_salt);
    }
    return q->model && (!f->cache_salt || q->cache_salt) ? 0 : api_no_memory(r->error);
}

/* When all has been read. */
static int tell(struct api_reader *r, struct api_request *q)
{
    struct buffer odd = { 0 };
    api_fields_tell(&r->fields, &odd);
    q->n_odd_bytes = odd.size;
    q->odd = copy_bytes(q->arena, odd.bytes ? odd.bytes : "", odd.size);
    bool ok = q->odd && !odd.failed;
    buffer_release(&odd);
    return ok ? 0 : api_no_memory(r->error);
}

/* ---- what ends an answer ---- */

static int read_stop(struct api_reader *r, struct api_request *q)
{
    const struct template_value *stop = r->fields.stop;
    size_t n = !stop ? 0 : stop->kind == VALUE_LIST ? stop->list->n : 1;
    if (stop && stop->kind != VALUE_LIST && stop->kind != VALUE_STRING)
        return api_refuse(r->error, "stop", "stop must be a string or an array of strings");
    if (n > API_MAX_STOPS)
        return api_refuse(r->error, "stop", "stop has %zu strings, the limit is %d", n, API_MAX_STOPS);
    q->stop = arena_alloc(q->arena, n * sizeof *q->stop);
    if (!q->stop)
        return api_no_memory(r->error);
    for (size_t i = 0; i < n; i++) {
        const struct template_value *one = stop->kind == VALUE_LIST ? &stop->list->items[i] : stop;
        if (one->kind != VALUE_STRING)
            return api_refuse(r->error, "stop", "stop must be a string or an array of strings");
        if (!one->text.n_bytes || utf8_count(one->text.bytes, one->text.n_bytes) > API_MAX_STOP)
            return api_refuse(r->error, "stop", "a stop string must have 1 to %d characters", API_MAX_STOP);
        char *copy = copy_bytes(q->arena, one->text.bytes, one->text.n_bytes);
        if (!copy)
            return api_no_memory(r->error);
        q->stop[q->n_stop].bytes = copy;
        q->stop[q->n_stop++].n_bytes = one->text.n_bytes;
    }
    return 0;
}

static int read_stop_ids(struct api_reader *r, struct api_request *q)
{
    const struct template_value *given = r->fields.stop_token_ids;
    const struct tokenizer *t = r->model->tokenizer;
    uint32_t n_tokens = tokenizer_n_tokens(t), n_ends = 0;
    size_t n = given ? given->list->n : 0;
    int32_t *ids = NULL;
    if (n > API_MAX_STOP_IDS)
        return api_refuse(r->error, "stop_token_ids", "stop_token_ids has %zu items, the limit is %d", n, API_MAX_STOP_IDS);
    if (given && api_read_ids(r, q->arena, given->list, "stop_token_ids", &ids) < 0)
        return -1;
    for (uint32_t i = 0; i < n_tokens; i++)
        n_ends += tokenizer_is_end(t, (int32_t)i);
    q->stop_ids = arena_array(q->arena, int32_t, n + n_ends);
    if (!q->stop_ids)
        return api_no_memory(r->error);
    if (n)
        memcpy(q->stop_ids, ids, n * sizeof *ids);
    q->n_stop_ids = (uint32_t)n;
    for (uint32_t i = 0; i < n_tokens && !r->fields.ignore_eos; i++)
        if (tokenizer_is_end(t, (int32_t)i))
            q->stop_ids[q->n_stop_ids++] = (int32_t)i;
    return 0;
}

/* ---- sampling ---- */

static bool read_decimal(const struct template_value *key, uint32_t *id)
{
    *id = 0;
    if (!key->text.n_bytes || key->text.n_bytes > 9 || (key->text.n_bytes > 1 && key->text.bytes[0] == '0'))
        return false;
    for (size_t i = 0; i < key->text.n_bytes; i++) {
        if (key->text.bytes[i] < '0' || key->text.bytes[i] > '9')
            return false;
        *id = *id * 10 + (uint32_t)(key->text.bytes[i] - '0');
    }
    return true;
}

static int read_bias(struct api_reader *r, struct api_request *q)
{
    const struct template_value *bias = r->fields.logit_bias;
    size_t n = bias ? bias->map->n : 0;
    if (n > API_MAX_BIASES)
        return api_refuse(r->error, "logit_bias", "logit_bias has %zu items, the limit is %d", n, API_MAX_BIASES);
    q->bias = arena_array(q->arena, struct api_bias, n);
    if (!q->bias)
        return api_no_memory(r->error);
    for (size_t i = 0; i < n; i++) {
        const struct template_entry *entry = &bias->map->entries[i];
        double add = template_is_number(&entry->value) && entry->value.kind != VALUE_BOOL ? template_as_float(&entry->value) : -1000;
        uint32_t id;
        if (!read_decimal(&entry->key, &id) || id >= r->model->n_vocab)
            return api_refuse(r->error, "logit_bias", "logit_bias: \"%.*s\" is no token id from 0 to %u",
                              (int)MIN(entry->key.text.n_bytes, (size_t)40), entry->key.text.bytes, r->model->n_vocab - 1);
        if (!(add >= -100 && add <= 100))
            return api_refuse(r->error, "logit_bias", "logit_bias: the bias of %u must be a number between -100 and 100", id);
        q->bias[q->n_bias++] = (struct api_bias){ id, (float)add };
    }
    return 0;
}

#define LEAST_TEMPERATURE 1e-6          /* the sampler's; below it the largest logit is picked, as at 0 */

static int read_sampling(struct api_reader *r, struct api_request *q)
{
    const struct api_fields *f = &r->fields;
    q->n = (uint32_t)f->n;
    q->temperature = f->temperature < LEAST_TEMPERATURE ? 0 : (float)f->temperature;
    q->top_p = (float)f->top_p;
    q->min_p = (float)f->min_p;
    q->top_k = f->top_k < 0 ? 0 : (uint32_t)f->top_k;
    q->repetition_penalty = (float)(f->repeat_penalty != 1 ? f->repeat_penalty : f->repetition_penalty);
    q->frequency_penalty = (float)f->frequency_penalty;
    q->presence_penalty = (float)f->presence_penalty;
    q->has_seed = f->has_seed && f->seed != -1;         /* which is "any", for clients of vLLM and llama-server */
    q->seed = (uint64_t)f->seed;
    q->priority = (int32_t)f->priority;
    if (f->repeat_penalty != 1 && f->repetition_penalty != 1 && f->repeat_penalty != f->repetition_penalty)
        return api_refuse(r->error, "repeat_penalty", "repeat_penalty and repetition_penalty are one thing and must not differ");
    if (f->best_of != API_NOT_GIVEN && f->best_of != f->n)
        return api_refuse(r->error, "best_of", "best_of must be n: choices are not picked by likelihood");
    return read_bias(r, q);
}

/* ---- what the answer shows ---- */

static int read_shown(struct api_reader *r, struct api_request *q)
{
    const struct api_fields *f = &r->fields;
    q->include_stop = f->include_stop;
    q->skip_special = f->skip_special;
    q->stream = f->stream;
    q->include_usage = f->include_usage;
    q->echo = f->echo;
    q->return_token_ids = f->return_token_ids;
    q->logprobs = f->logprobs || f->n_logprobs != API_NOT_GIVEN;
    q->top_logprobs = (uint32_t)MAX(MAX(f->top_logprobs, f->n_logprobs), 0);
    if (f->top_logprobs > 0 && !f->logprobs)
        return api_refuse(r->error, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (q->echo && q->logprobs)
        return api_refuse(r->error, "echo", "echo with logprobs is not supported: the prompt has none here");
    return 0;
}

/* ---- prompts and what fits behind them ---- */

static int read_prompts(struct api_reader *r, struct api_request *q)
{
    int32_t *ids = NULL;
    if (r->kind == API_COMPLETION)
        return api_encode_prompts(r, q->arena, &q->prompts, &q->n_prompts);
    q->prompts = arena_new(q->arena, struct api_prompt);
    if (!q->prompts)
        return api_no_memory(r->error);
    if (api_check_chat(r) < 0 || api_encode_chat(r, &ids, &q->prompts->n_ids) < 0)
        return -1;
    q->n_prompts = 1;
    q->prompts->ids = arena_array(q->arena, int32_t, q->prompts->n_ids);
    if (q->prompts->ids)
        memcpy(q->prompts->ids, ids, q->prompts->n_ids * sizeof *ids);
    free(ids);
    if (!q->prompts->ids)
        return api_no_memory(r->error);
    return q->prompts->n_ids ? 0 : api_refuse(r->error, "messages", "the messages make an empty prompt");
}

/* What the client asks for; below 0: as much as fits. */
static int64_t asked_tokens(const struct api_reader *r)
{
    const struct api_fields *f = &r->fields;
    if (f->max_completion_tokens != API_NOT_GIVEN)
        return f->max_completion_tokens;
    if (f->max_tokens != API_NOT_GIVEN)
        return f->max_tokens;
    if (f->n_predict != API_NOT_GIVEN)
        return f->n_predict;
    return r->kind == API_COMPLETION ? 16 : -1;         /* as OpenAI has it */
}

int api_refuse_length(struct api_reader *r, size_t n_tokens, bool at_least)
{
    api_refuse(r->error, r->kind == API_CHAT ? "messages" : "prompt",
               "the context of this model has %u tokens, and the prompt %s%zu, which leaves no room for an answer", r->model->context,
               at_least ? "at least " : "", n_tokens);
    r->error->code = "context_length_exceeded";
    return -1;
}

size_t api_most_bytes(const struct api_reader *r)
{
    return r->model->context * tokenizer_longest(r->model->tokenizer);
}

static int fit(struct api_reader *r, struct api_request *q)
{
    int64_t asked = asked_tokens(r);
    if (asked >= 0 && r->fields.min_tokens > asked)
        return api_refuse(r->error, "min_tokens", "min_tokens is more than max_tokens");
    if ((uint64_t)q->n_prompts * q->n > API_MAX_CHOICES)
        return api_refuse(r->error, "n", "n times the number of prompts is %u, the limit is %d", q->n_prompts * q->n, API_MAX_CHOICES);
    for (uint32_t i = 0; i < q->n_prompts; i++) {
        size_t n_ids = q->prompts[i].n_ids, n_least = n_ids + (asked != 0);
        if (n_least > r->model->context)
            return api_refuse_length(r, n_ids, false);
        int64_t left = (int64_t)(r->model->context - n_ids);
        q->prompts[i].max_tokens = (uint32_t)(asked < 0 ? left : MIN(asked, left));
        q->is_cut |= asked > left;
    }
    q->min_tokens = (uint32_t)r->fields.min_tokens;
    return 0;
}

int api_read(struct api_request **out, enum api_kind kind, const struct api_model *model, const char *body, size_t n_bytes,
             struct api_error *error)
{
    struct api_reader r;
    struct arena *arena = calloc(1, sizeof *arena);
    struct api_request *q = arena ? arena_new(arena, struct api_request) : NULL;
    int err;
    if (!q) {
        free(arena);
        return api_no_memory(error);
    }
    q->arena = arena;
    q->kind = kind;
    if ((err = api_reader_open(&r, kind, model, body, n_bytes, error)) == 0 && (err = read_names(&r, q)) == 0 &&
        (err = read_stop(&r, q)) == 0 && (err = read_stop_ids(&r, q)) == 0 && (err = read_sampling(&r, q)) == 0 &&
        (err = read_shown(&r, q)) == 0 && (err = read_prompts(&r, q)) == 0 && (err = fit(&r, q)) == 0)
        err = tell(&r, q);
    arena_close(&r.tree);
    if (err < 0)
        api_request_close(q);
    else
        *out = q;
    return err;
}

void api_request_close(struct api_request *request)
{
    if (!request)
        return;
    struct arena *arena = request->arena;
    arena_close(arena);
    free(arena);
}
