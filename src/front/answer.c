#include "front/answer_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- its life ---- */

static int open_bias(struct answer *a)
{
    const struct api_request *q = a->request;
    a->bias = arena_array(q->arena, Stoa__Wire__Bias, q->n_bias);
    a->bias_list = arena_array(q->arena, Stoa__Wire__Bias *, q->n_bias);
    if (!a->bias || !a->bias_list)
        return error_set(ERR_NO_MEMORY, "no memory for an answer");
    for (uint32_t i = 0; i < q->n_bias; i++) {
        stoa__wire__bias__init(&a->bias[i]);
        a->bias[i].id = q->bias[i].id;
        a->bias[i].add = q->bias[i].add;
        a->bias_list[i] = &a->bias[i];
    }
    return 0;
}

static int open_choices(struct answer *a)
{
    a->n_choices = a->request->n_prompts * a->request->n;
    a->choices = arena_array(a->request->arena, struct choice, a->n_choices);
    if (!a->choices || !a->id)
        return error_set(ERR_NO_MEMORY, "no memory for an answer");
    for (uint32_t i = 0; i < a->n_choices; i++) {
        struct choice *c = &a->choices[i];
        c->end = NO_END;
        c->safe = a->request->n_stop ? 0 : NO_END;
        if (!answer_prompt(a, c)->max_tokens) {
            c->state = CHOICE_FINISHED;
            c->reason = "length";
        }
    }
    return 0;
}

int answer_open(struct answer **out, struct api_request *request, const struct api_model *model, const char *id, int64_t created_s)
{
    struct answer *a = arena_new(request->arena, struct answer);
    int err;
    if (!a) {
        api_request_close(request);
        return error_set(ERR_NO_MEMORY, "no memory for an answer");
    }
    *a = (struct answer){ .request = request, .model = model, .created_s = created_s };
    a->id = arena_printf(request->arena, "%s-%s", request->kind == API_CHAT ? "chatcmpl" : "cmpl", id);
    if ((err = open_choices(a)) < 0 || (err = open_bias(a)) < 0 ||
        (err = stop_set_init(&a->stops, request->arena, request->stop, request->n_stop)) < 0) {
        answer_close(a);
        return err;
    }
    *out = a;
    return 0;
}

void answer_close(struct answer *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; a->choices && i < a->n_choices; i++) {
        free(a->choices[i].ids);
        free(a->choices[i].probs);
        free(a->choices[i].top);
        buffer_release(&a->choices[i].text);
    }
    buffer_release(&a->piece);
    api_request_close(a->request);                      /* the answer lies in its arena */
}

const struct api_request *answer_request(const struct answer *a)
{
    return a->request;
}

uint32_t answer_n_choices(const struct answer *a)
{
    return a->n_choices;
}

bool answer_has_begun(const struct answer *a)
{
    return a->has_begun;
}

/* ---- what the replica is asked for ---- */

static void fill_sampling(struct answer *a, uint32_t choice)
{
    const struct api_request *q = a->request;
    stoa__wire__sampling__init(&a->sampling);
    a->sampling.temperature = q->temperature;
    a->sampling.top_p = q->top_p;
    a->sampling.min_p = q->min_p;
    a->sampling.top_k = q->top_k;
    a->sampling.repetition_penalty = q->repetition_penalty;
    a->sampling.frequency_penalty = q->frequency_penalty;
    a->sampling.presence_penalty = q->presence_penalty;
    a->sampling.seed = q->seed;
    a->sampling.choice = choice % q->n;                 /* so a prompt has the same answers alone and in a list */
    a->sampling.n_bias = q->n_bias;
    a->sampling.bias = a->bias_list;
}

void answer_submit(struct answer *a, uint32_t choice, Stoa__Wire__Submit *out)
{
    const struct api_request *q = a->request;
    const struct choice *c = &a->choices[choice];
    const struct api_prompt *prompt = answer_prompt(a, c);
    fill_sampling(a, choice);
    stoa__wire__submit__init(out);
    out->n_prompt = prompt->n_ids;
    out->prompt = (uint32_t *)prompt->ids;
    out->n_so_far = c->n_ids;
    out->so_far = c->ids;
    out->max_tokens = prompt->max_tokens;
    out->min_tokens = MIN(q->min_tokens, prompt->max_tokens);
    out->n_stop_ids = q->n_stop_ids;
    out->stop_ids = (uint32_t *)q->stop_ids;
    out->sampling = &a->sampling;
    out->logprobs = q->logprobs;
    out->top_logprobs = q->top_logprobs;
    out->priority = q->priority;
    out->cache_salt = (ProtobufCBinaryData){ q->n_cache_salt, (uint8_t *)(uintptr_t)q->cache_salt };
}

/* ---- tokens in ---- */

static bool grow(void **items, uint32_t n, size_t size)
{
    void *more = realloc(*items, n * size);
    if (more)
        *items = more;
    return more;
}

static bool make_room(const struct answer *a, struct choice *c)
{
    uint32_t n = MAX(64u, 2 * c->n_room), n_top = a->request->top_logprobs;
    if (c->n_ids < c->n_room)
        return true;
    if (!grow((void **)&c->ids, n, sizeof *c->ids) || (a->request->logprobs && !grow((void **)&c->probs, n, sizeof *c->probs)) ||
        (n_top && !grow((void **)&c->top, n, n_top * sizeof *c->top)))
        return false;
    c->n_room = n;
    return true;
}

static void keep_probs(const struct answer *a, struct choice *c, const Stoa__Wire__Token *token)
{
    struct token_probs *probs = &c->probs[c->n_ids];
    size_t first = (size_t)c->n_ids * a->request->top_logprobs;
    *probs = (struct token_probs){ .logprob = token->logprob, .n_top = (uint32_t)MIN(token->n_top, (size_t)a->request->top_logprobs) };
    for (uint32_t i = 0; i < probs->n_top; i++)
        c->top[first + i] = (struct top){ token->top[i]->id, token->top[i]->logprob };
}

static void fail_for_memory(struct answer *a)
{
    struct api_error error;
    api_no_memory(&error);
    answer_fail(a, &error);
}

/* Looks for a stop string in what a->piece holds.  True when the text ends there, or there was no memory for it. */
static bool search_stops(struct answer *a, struct choice *c)
{
    if (a->piece.failed) {
        fail_for_memory(a);
        return true;
    }
    if (c->n_ids <= a->request->min_tokens) {           /* a match may begin after them */
        c->search = (struct stop_search){ .n_bytes = c->search.n_bytes + a->piece.size };
        c->safe = c->search.n_bytes;
        return false;
    }
    uint32_t n_match = stop_search_add(&c->search, &a->stops, a->piece.bytes ? a->piece.bytes : "", a->piece.size);
    c->safe = c->search.n_bytes - stop_search_held(&c->search, &a->stops);
    if (!n_match)
        return false;
    c->end = c->search.n_bytes - (a->request->include_stop ? 0 : n_match);
    c->reason = "stop";
    return true;
}

bool answer_take_token(struct answer *a, uint32_t choice, const Stoa__Wire__Token *token)
{
    struct choice *c = &a->choices[choice];
    if (a->error.status || c->state != CHOICE_RUNNING || token->index != c->n_ids || c->n_ids >= answer_prompt(a, c)->max_tokens)
        return false;
    if (!make_room(a, c)) {
        fail_for_memory(a);
        return true;
    }
    if (c->probs)
        keep_probs(a, c, token);
    c->ids[c->n_ids++] = token->id;
    if (!a->stops.n)
        return false;
    size_t n_bytes;
    const char *bytes = tokenizer_bytes(a->model->tokenizer, (int32_t)token->id, !a->request->skip_special, &n_bytes);
    a->piece.size = 0;
    utf8_stream_add(&c->searched, bytes, n_bytes, &a->piece);
    if (!search_stops(a, c))
        return false;
    c->state = CHOICE_ENDED;
    return true;
}

/* ---- its end ---- */

static void fail_as(struct answer *a, int status, const char *code, const char *text)
{
    struct api_error error = { .status = status, .type = api_error_type(status), .code = code };
    snprintf(error.message, sizeof error.message, "%s", text);
    answer_fail(a, &error);
}

static void fail_as_finished(struct answer *a, const Stoa__Wire__Finish *finish)
{
    const char *text = finish->error && *finish->error ? finish->error : "the answer could not be finished";
    switch (finish->reason) {
    case STOA__WIRE__REASON__REASON_TIMEOUT:
        fail_as(a, 503, "timeout", "the request waited too long for its turn");
        break;
    case STOA__WIRE__REASON__REASON_REFUSED:
        if (finish->is_full)
            fail_as(a, 429, "overloaded", text);
        else
            fail_as(a, 400, NULL, text);
        break;
    default:
        fail_as(a, 500, NULL, text);
    }
}

void answer_take_finish(struct answer *a, uint32_t choice, const Stoa__Wire__Finish *finish)
{
    struct choice *c = &a->choices[choice];
    if (a->error.status || c->state == CHOICE_FINISHED)
        return;
    if (c->state == CHOICE_RUNNING) {
        if (finish->reason != STOA__WIRE__REASON__REASON_STOP && finish->reason != STOA__WIRE__REASON__REASON_LENGTH) {
            fail_as_finished(a, finish);
            return;
        }
        c->reason = finish->reason == STOA__WIRE__REASON__REASON_STOP ? "stop" : "length";
        a->piece.size = 0;
        utf8_stream_end(&c->searched, &a->piece);
        search_stops(a, c);
    }
    c->state = CHOICE_FINISHED;
    c->cached_tokens = finish->cached_tokens;
}

/* Choices that have ended lack only what their Finish would have told. */
void answer_fail(struct answer *a, const struct api_error *error)
{
    bool have_ended = true;
    for (uint32_t i = 0; i < a->n_choices; i++)
        have_ended = have_ended && a->choices[i].state != CHOICE_RUNNING;
    if (!have_ended)
        a->error = *error;
    for (uint32_t i = 0; i < a->n_choices && have_ended; i++)
        a->choices[i].state = CHOICE_FINISHED;
}

bool answer_is_over(const struct answer *a)
{
    for (uint32_t i = 0; i < a->n_choices && !a->error.status; i++)
        if (a->choices[i].state != CHOICE_FINISHED)
            return false;
    return true;
}

const struct api_error *answer_error(const struct answer *a)
{
    return a->error.status ? &a->error : NULL;
}

struct answer_usage answer_usage(const struct answer *a)
{
    struct answer_usage usage = { 0 };
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct choice *c = &a->choices[i];
        usage.completion_tokens += c->n_ids;
        if (i % a->request->n == 0) {                   /* a prompt counts once, however many answers it has */
            usage.prompt_tokens += (uint32_t)answer_prompt(a, c)->n_ids;
            usage.cached_tokens += c->cached_tokens;
        }
    }
    return usage;
}

const char *answer_finish_reason(const struct answer *a, uint32_t choice)
{
    return a->choices[choice].reason;
}
