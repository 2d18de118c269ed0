#include "cli/generate.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

static int start(struct session *s, struct generation *g, const int32_t *prompt, size_t n_prompt)
{
    const struct options *o = s->options;
    uint32_t context = engine_context(s->engine);
    if (n_prompt >= context)
        return error_set(ERR_USAGE, "the prompt has %zu tokens; with one to generate that is more than the context of %u", n_prompt,
                         context);
    struct sequence_request request = {
        .tokens = prompt, .n_tokens = (uint32_t)n_prompt, .n_new = MIN((uint32_t)o->n_new, context - (uint32_t)n_prompt),
        .params = { .temperature = (float)o->temperature, .top_p = (float)o->top_p, .min_p = (float)o->min_p, .top_k = (uint32_t)o->top_k,
                    .seed = o->seed },
        .penalties = { .repetition = (float)o->repeat_penalty, .frequency = (float)o->frequency_penalty,
                       .presence = (float)o->presence_penalty },
    };
    g->n_prompt = (uint32_t)n_prompt;
    return g->sequence ? engine_continue(s->engine, g->sequence, &request) : engine_add(s->engine, &g->sequence, &request);
}

/* Appends the token's text and hands over what has become whole; false when the answer ends here. */
static bool take_token(struct session *s, struct generation *g, int32_t id, struct utf8_stream *stream, generate_piece_fn *piece,
                       void *user)
{
    size_t n_bytes, before = g->text->size;
    if (tokenizer_is_end(s->tokenizer, id) && !s->options->ignore_eos) {
        g->stopped = true;
        return false;
    }
    g->tokens[g->n_tokens++] = id;
    const char *bytes = tokenizer_bytes(s->tokenizer, id, false, &n_bytes);
    buffer_add(&g->bytes, bytes, n_bytes);
    utf8_stream_add(stream, bytes, n_bytes, g->text);
    if (piece(user, g->text->bytes ? g->text->bytes + before : "", g->text->size - before))
        return true;
    g->stopped = true;
    return false;
}

int generate(struct session *s, struct generation *g, const int32_t *prompt, size_t n_prompt, generate_piece_fn *piece, void *user)
{
    struct utf8_stream stream = { 0 };
    double start_s = seconds_now(), now_s = start_s;
    int err = start(s, g, prompt, n_prompt);
    if (err < 0)
        return err;
    g->n_tokens = 0;
    g->bytes.size = 0;
    g->stopped = false;
    g->first_token_s = g->decode_s = 0;
    if (!g->tokens && !(g->tokens = calloc(engine_context(s->engine), sizeof *g->tokens)))
        return error_set(ERR_NO_MEMORY, "out of memory for the answer");
    for (uint32_t taken = 0, n = 0; !g->stopped && !sequence_is_done(g->sequence);) {
        if ((err = engine_step(s->engine)) < 0)
            return err;
        const int32_t *tokens = sequence_new_tokens(g->sequence, &n);
        for (; taken < n && !g->stopped; taken++) {
            now_s = seconds_now();
            if (!taken)
                g->first_token_s = now_s - start_s;
            take_token(s, g, tokens[taken], &stream, piece, user);
        }
    }
    sequence_stop(g->sequence);
    if ((err = sequence_error(g->sequence)) < 0)
        return err;
    g->decode_s = now_s - start_s - g->first_token_s;
    size_t before = g->text->size;
    utf8_stream_end(&stream, g->text);
    if (g->text->size > before)
        piece(user, g->text->bytes + before, g->text->size - before);
    return g->text->failed || g->bytes.failed ? error_set(ERR_NO_MEMORY, "out of memory for the answer") : 0;
}

void generation_release(struct session *s, struct generation *g)
{
    if (g->sequence)
        engine_remove(s->engine, g->sequence);
    free(g->tokens);
    buffer_release(&g->bytes);
    *g = (struct generation){ 0 };
}
