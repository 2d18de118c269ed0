#include "front/answer_impl.h"

#include "base/base.h"
#include "text/unicode.h"

#include <string.h>

static uint32_t n_echo(const struct answer *a, const struct choice *c)
{
    return a->request->echo ? (uint32_t)answer_prompt(a, c)->n_text : 0;
}

/* Up to where text may be sent, the echo included. */
static uint64_t limit_of(const struct answer *a, const struct choice *c)
{
    uint64_t limit = c->state == CHOICE_RUNNING ? c->safe : c->end;
    return limit == NO_END ? NO_END : limit + n_echo(a, c);
}

/* Counts what was appended since text.size was `before`. */
static void count_text(struct choice *c, size_t before)
{
    c->n_made += c->text.size - before;
    if (c->text.size > before)
        c->n_characters += (uint32_t)utf8_count(c->text.bytes + before, c->text.size - before);
}

/* Its first byte goes in alone: it may show that what is held is no character, and the token begins after what stands for that. */
static void make_token(struct answer *a, struct choice *c)
{
    size_t before = c->text.size, n;
    const char *bytes = tokenizer_bytes(a->model->tokenizer, (int32_t)c->ids[c->n_texts], !a->request->skip_special, &n);
    size_t n_first = MIN(n, (size_t)1);
    utf8_stream_add(&c->made, bytes, n_first, &c->text);
    count_text(c, before);
    if (c->probs)
        c->probs[c->n_texts].text_offset = c->n_characters - (n_first && !c->made.n_held);
    c->n_texts++;
    before = c->text.size;
    utf8_stream_add(&c->made, bytes + n_first, n - n_first, &c->text);
    count_text(c, before);
}

size_t answer_make_text(struct answer *a, struct choice *c, size_t most, uint32_t most_tokens)
{
    uint64_t limit = limit_of(a, c);
    size_t before;
    if (!c->n_made && n_echo(a, c)) {
        buffer_add(&c->text, answer_prompt(a, c)->text, n_echo(a, c));
        count_text(c, 0);
    }
    while (c->n_texts < c->n_ids && c->n_made < limit && c->text.size < most && c->n_texts - c->n_shown < most_tokens)
        make_token(a, c);
    if (c->state != CHOICE_RUNNING && c->n_made >= limit)
        while (c->n_texts < c->n_ids)                   /* those of the stop string, whose text nobody sees */
            make_token(a, c);
    before = c->text.size;
    if (c->state != CHOICE_RUNNING && c->n_texts == c->n_ids)
        utf8_stream_end(&c->made, &c->text);
    count_text(c, before);
    uint64_t past = c->n_made > limit ? c->n_made - limit : 0;
    return c->text.size - (size_t)MIN(past, (uint64_t)c->text.size);
}

bool answer_text_is_whole(const struct choice *c)
{
    return c->state != CHOICE_RUNNING && c->n_texts == c->n_ids && !c->made.n_held;
}

uint32_t answer_n_texts(const struct answer *a, const struct choice *c)
{
    bool last_is_held = c->state == CHOICE_RUNNING && c->n_texts > c->n_shown && c->n_made > limit_of(a, c);
    return c->n_texts - last_is_held;
}

void answer_drop_text(struct choice *c, size_t n_bytes)
{
    c->text.size -= n_bytes;
    if (n_bytes)
        memmove(c->text.bytes, c->text.bytes + n_bytes, c->text.size);
}
