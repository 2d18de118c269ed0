/* answer_write.c: what clients see of an answer: a whole body, or events. */
#include "front/answer_impl.h"

#include "base/base.h"
#include "text/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one event, which the loop's thread writes in one go. */
#define MOST_TEXT 16384             /* bytes, some more */
#define MOST_TOLD 4                 /* tokens that it tells one by one, each perhaps with the likeliest others */

/* ---- logprobs ---- */

/* The fewest digits that give the number again; -9999 stands for what JSON can not say, as elsewhere. */
static void put_logprob(struct json_out *j, const char *key, float logprob)
{
    char text[32];
    int n_digits = 5;
    if (!(logprob >= -9999.0f))
        logprob = -9999.0f;
    do
        snprintf(text, sizeof text, "%.*g", ++n_digits, (double)logprob);
    while (n_digits < 9 && strtof(text, NULL) != logprob);
    json_number(j, key, (double)logprob, n_digits);
}

static const char *token_bytes(const struct answer *a, uint32_t id, size_t *n_bytes)
{
    return tokenizer_bytes(a->model->tokenizer, (int32_t)id, true, n_bytes);
}

/* The token as text in a->piece: what is no UTF-8 as U+FFFD. */
static void readable(struct answer *a, uint32_t id)
{
    struct utf8_stream stream = { 0 };
    size_t n_bytes;
    const char *bytes = token_bytes(a, id, &n_bytes);
    a->piece.size = 0;
    utf8_stream_add(&stream, bytes, n_bytes, &a->piece);
    utf8_stream_end(&stream, &a->piece);
    buffer_add_text(&a->piece, "");
}

/* Its name as a key: what is no text as "bytes:\xe4\xb8". */
static void key_name(struct answer *a, uint32_t id)
{
    size_t n_bytes;
    const char *bytes = token_bytes(a, id, &n_bytes);
    a->piece.size = 0;
    if (utf8_is_valid(bytes, n_bytes) && !memchr(bytes, 0, n_bytes)) {
        buffer_add(&a->piece, bytes, n_bytes);
        return;
    }
    buffer_add_text(&a->piece, "bytes:");
    for (size_t i = 0; i < n_bytes; i++)
        buffer_printf(&a->piece, "\\x%02x", (unsigned char)bytes[i]);
}

static void put_chat_token(struct answer *a, struct json_out *j, uint32_t id, float logprob)
{
    size_t n_bytes;
    const char *bytes = token_bytes(a, id, &n_bytes);
    readable(a, id);
    json_bytes(j, "token", a->piece.bytes, a->piece.size);
    put_logprob(j, "logprob", logprob);
    json_array(j, "bytes");
    for (size_t i = 0; i < n_bytes; i++)
        json_integer(j, NULL, (unsigned char)bytes[i]);
    json_end_array(j);
}

static const struct top *tops_of(const struct answer *a, const struct choice *c, uint32_t i)
{
    return c->top ? c->top + (size_t)i * a->request->top_logprobs : NULL;
}

static void put_chat_logprobs(struct answer *a, struct json_out *j, const struct choice *c, uint32_t begin, uint32_t end)
{
    json_object(j, "logprobs");
    json_array(j, "content");
    for (uint32_t i = begin; i < end; i++) {
        json_object(j, NULL);
        put_chat_token(a, j, c->ids[i], c->probs[i].logprob);
        json_array(j, "top_logprobs");
        for (uint32_t k = 0; k < c->probs[i].n_top; k++) {
            json_object(j, NULL);
            put_chat_token(a, j, tops_of(a, c, i)[k].id, tops_of(a, c, i)[k].logprob);
            json_end_object(j);
        }
        json_end_array(j);
        json_end_object(j);
    }
    json_end_array(j);
    json_none(j, "refusal");
    json_end_object(j);
}

/* Whether one of the first n has the same bytes, as a piece for a single byte may. */
static bool is_among(const struct answer *a, const struct top *top, uint32_t n, uint32_t id)
{
    size_t n_bytes, n_there;
    const char *bytes = token_bytes(a, id, &n_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const char *there = token_bytes(a, top[i].id, &n_there);
        if (n_there == n_bytes && !memcmp(there, bytes, n_bytes))
            return true;
    }
    return false;
}

static void put_named(struct answer *a, struct json_out *j, uint32_t id, float logprob)
{
    key_name(a, id);
    put_logprob(j, a->piece.bytes ? a->piece.bytes : "", logprob);
}

/* The likeliest tokens, and the one that was picked. */
static void put_top_object(struct answer *a, struct json_out *j, const struct choice *c, uint32_t i)
{
    const struct top *top = tops_of(a, c, i);
    uint32_t n = c->probs[i].n_top;
    json_object(j, NULL);
    for (uint32_t k = 0; k < n; k++)
        if (!is_among(a, top, k, top[k].id))
            put_named(a, j, top[k].id, top[k].logprob);
    if (!is_among(a, top, n, c->ids[i]))
        put_named(a, j, c->ids[i], c->probs[i].logprob);
    json_end_object(j);
}

static void put_completion_logprobs(struct answer *a, struct json_out *j, const struct choice *c, uint32_t begin, uint32_t end)
{
    json_object(j, "logprobs");
    json_array(j, "tokens");
    for (uint32_t i = begin; i < end; i++) {
        key_name(a, c->ids[i]);
        json_bytes(j, NULL, a->piece.bytes ? a->piece.bytes : "", a->piece.size);
    }
    json_end_array(j);
    json_array(j, "token_logprobs");
    for (uint32_t i = begin; i < end; i++)
        put_logprob(j, NULL, c->probs[i].logprob);
    json_end_array(j);
    json_array(j, "top_logprobs");
    for (uint32_t i = begin; i < end; i++)
        put_top_object(a, j, c, i);
    json_end_array(j);
    json_array(j, "text_offset");
    for (uint32_t i = begin; i < end; i++)
        json_integer(j, NULL, c->probs[i].text_offset);
    json_end_array(j);
    json_end_object(j);
}

static void put_logprobs(struct answer *a, struct json_out *j, const struct choice *c, uint32_t begin, uint32_t end)
{
    if (!c->probs || begin == end)
        json_none(j, "logprobs");
    else if (a->request->kind == API_CHAT)
        put_chat_logprobs(a, j, c, begin, end);
    else
        put_completion_logprobs(a, j, c, begin, end);
}

static void put_ids(struct json_out *j, const char *key, const int32_t *ids, size_t begin, size_t end)
{
    json_array(j, key);
    for (size_t i = begin; i < end; i++)
        json_integer(j, NULL, ids[i]);
    json_end_array(j);
}

/* ---- what bodies and events have in common ---- */

static void begin_body(const struct answer *a, struct json_out *j, const char *object)
{
    json_object(j, NULL);
    json_text(j, "id", a->id);
    json_text(j, "object", object);
    json_integer(j, "created", a->created_s);
    json_text(j, "model", a->request->model);
    json_text(j, "system_fingerprint", a->model->fingerprint);
    json_array(j, "choices");
}

static void put_usage(const struct answer *a, struct json_out *j)
{
    struct answer_usage usage = answer_usage(a);
    json_object(j, "usage");
    json_integer(j, "prompt_tokens", usage.prompt_tokens);
    json_integer(j, "completion_tokens", usage.completion_tokens);
    json_integer(j, "total_tokens", (int64_t)usage.prompt_tokens + usage.completion_tokens);
    json_object(j, "prompt_tokens_details");
    json_integer(j, "cached_tokens", usage.cached_tokens);
    json_end_object(j);
    json_end_object(j);
}

/* The text of a message or delta, or of a completion. */
static void put_text(const struct answer *a, struct json_out *j, const struct choice *c, size_t n_bytes, bool is_delta)
{
    const char *text = c->text.bytes ? c->text.bytes : "";
    bool is_first = !is_delta || !c->is_begun;
    if (a->request->kind == API_COMPLETION) {
        json_bytes(j, "text", text, n_bytes);
        return;
    }
    json_object(j, is_delta ? "delta" : "message");
    if (is_first)
        json_text(j, "role", "assistant");
    if (is_first || n_bytes)
        json_bytes(j, "content", text, n_bytes);
    if (!is_delta)
        json_none(j, "refusal");
    json_end_object(j);
}

/* One choice: its text[0..n_bytes), its tokens up to n_tokens, and its end if that is reached. */
static void put_choice(struct answer *a, struct json_out *j, struct choice *c, size_t n_bytes, uint32_t n_tokens, bool is_delta,
                       bool is_last)
{
    const struct api_prompt *prompt = answer_prompt(a, c);
    json_object(j, NULL);
    json_integer(j, "index", c - a->choices);
    put_text(a, j, c, n_bytes, is_delta);
    put_logprobs(a, j, c, c->n_shown, n_tokens);
    if (is_last)
        json_text(j, "finish_reason", c->reason);
    else
        json_none(j, "finish_reason");
    if (a->request->return_token_ids) {
        if (!c->is_begun)
            put_ids(j, "prompt_token_ids", prompt->ids, 0, prompt->n_ids);
        put_ids(j, "token_ids", (const int32_t *)c->ids, c->n_shown, n_tokens);
    }
    json_end_object(j);
    c->is_begun = true;
    c->n_shown = n_tokens;
    answer_drop_text(c, n_bytes);
    j->to->failed |= c->text.failed || a->piece.failed;
}

void answer_whole(struct answer *a, struct buffer *out)
{
    struct json_out j = { .to = out };
    begin_body(a, &j, a->request->kind == API_CHAT ? "chat.completion" : "text_completion");
    for (uint32_t i = 0; i < a->n_choices; i++) {
        size_t n_bytes = answer_make_text(a, &a->choices[i], SIZE_MAX, UINT32_MAX);
        put_choice(a, &j, &a->choices[i], n_bytes, a->choices[i].n_ids, false, true);
    }
    json_end_array(&j);
    put_usage(a, &j);
    json_end_object(&j);
}

/* ---- events ---- */

static void begin_event(const struct answer *a, struct json_out *j)
{
    buffer_add_text(j->to, "data: ");
    begin_body(a, j, a->request->kind == API_CHAT ? "chat.completion.chunk" : "text_completion");
}

static void end_event(struct json_out *j)
{
    json_end_object(j);
    buffer_add_text(j->to, "\n\n");
}

/* The next event of a choice; false when there is none now. */
static bool put_delta(struct answer *a, struct choice *c, struct buffer *out)
{
    struct json_out j = { .to = out };
    bool tells_tokens = a->request->logprobs || a->request->return_token_ids;
    if (c->is_closed)
        return false;
    size_t n_bytes = answer_make_text(a, c, MOST_TEXT, tells_tokens ? MOST_TOLD : UINT32_MAX);
    uint32_t n_tokens = answer_n_texts(a, c);
    bool is_last = answer_text_is_whole(c);
    if (!n_bytes && !is_last && !(tells_tokens && n_tokens > c->n_shown))
        return false;
    begin_event(a, &j);
    put_choice(a, &j, c, n_bytes, n_tokens, true, is_last);
    json_end_array(&j);
    if (a->request->include_usage)
        json_none(&j, "usage");
    end_event(&j);
    c->is_closed = is_last;
    return true;
}

/* The events after the last choice's; false when it is too early for them. */
static bool put_end(struct answer *a, struct buffer *out)
{
    struct json_out j = { .to = out };
    for (uint32_t i = 0; i < a->n_choices && !a->error.status; i++)
        if (!a->choices[i].is_closed)
            return false;
    if (a->error.status) {
        buffer_add_text(out, "data: ");
        api_write_error(out, &a->error);
        buffer_add_text(out, "\n\n");
        return true;
    }
    if (a->request->include_usage) {
        if (!answer_is_over(a))
            return false;
        begin_event(a, &j);
        json_end_array(&j);
        put_usage(a, &j);
        end_event(&j);
    }
    buffer_add_text(out, "data: [DONE]\n\n");
    return true;
}

bool answer_stream(struct answer *a, struct buffer *out, size_t most)
{
    size_t before = out->size;
    bool may_go_on = !a->error.status && !a->stream_is_over;
    uint32_t n_quiet = 0;               /* choices in turn that had nothing to say */
    while (may_go_on && n_quiet < a->n_choices && out->size - before < most) {
        n_quiet = put_delta(a, &a->choices[a->next], out) ? 0 : n_quiet + 1;
        a->next = (a->next + 1) % a->n_choices;
    }
    bool more = may_go_on && n_quiet < a->n_choices;
    if (!more && !a->stream_is_over)
        a->stream_is_over = put_end(a, out);
    a->has_begun |= out->size > before;
    return more;
}

bool answer_stream_is_over(const struct answer *a)
{
    return a->stream_is_over;
}
