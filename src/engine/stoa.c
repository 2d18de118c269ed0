/* stoa.c: the public interface over an engine of one rank. */
#include "stoa.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct stoa_model {
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct comm *world;
    struct engine *engine;
    struct sequence *sequence;      /* of the last call, so that the next finds what it computed */
    float *logits;                  /* the caller's, while stoa_logits() runs */
};

/* The two lists of codes are one list; a code that callers need not tell apart is a failure. */
static int public_code(int code)
{
    return code >= 0 ? 0 : code >= ERR_NO_MEMORY ? code : STOA_FAILED;
}

const char *stoa_version(void)
{
    return STOA_VERSION;
}

const char *stoa_error(void)
{
    return error_text();
}

int stoa_open(stoa_model **out, const char *path, const stoa_options *options)
{
    static const stoa_options usual;
    stoa_model *m = calloc(1, sizeof *m);
    int err;
    *out = NULL;
    if (!m)
        return public_code(error_set(ERR_NO_MEMORY, "out of memory for a model"));
    if (!options)
        options = &usual;
    struct engine_options engine = {
        .mesh = { .size = { 1, 1, 1, 1, 1 } }, .n_threads = MAX(options->n_threads, 0),
        .int8_activations = !options->f32_activations, .cache_type = options->f32_activations ? DTYPE_F32 : DTYPE_F16,
        .chunk = 512, .context = options->context, .max_sequences = 1, .full_logits = true,
    };
    if ((err = model_file_open(&m->file, path)) < 0 || (err = tokenizer_open(&m->tokenizer, m->file)) < 0 ||
        (err = comm_open_self(&m->world)) < 0 || (err = engine_open(&m->engine, m->file, &engine, m->world)) < 0 ||
        (err = tokenizer_check(m->tokenizer, stoa_n_vocab(m))) < 0) {
        stoa_close(m);
        return public_code(err);
    }
    *out = m;
    return 0;
}

void stoa_close(stoa_model *m)
{
    if (!m)
        return;
    engine_close(m->engine);
    comm_close(m->world);
    tokenizer_close(m->tokenizer);
    model_file_close(m->file);
    free(m);
}

uint32_t stoa_n_vocab(const stoa_model *m)
{
    return engine_model(m->engine)->n_vocab;
}

uint32_t stoa_context(const stoa_model *m)
{
    return engine_context(m->engine);
}

bool stoa_is_end(const stoa_model *m, int32_t id)
{
    return tokenizer_is_end(m->tokenizer, id);
}

int stoa_tokenize(const stoa_model *m, const char *text, size_t n_bytes, int32_t **ids, size_t *n)
{
    return public_code(tokenizer_encode(m->tokenizer, text, n_bytes, TOKENIZE_BEGIN | TOKENIZE_SPECIAL, ids, n));
}

const char *stoa_token_bytes(const stoa_model *m, int32_t id, size_t *n_bytes)
{
    return tokenizer_bytes(m->tokenizer, id, false, n_bytes);
}

void stoa_free(void *ids)
{
    free(ids);
}

static void keep_row(void *user, uint32_t position, const float *logits, uint32_t n_vocab)
{
    struct stoa_model *m = user;
    (void)position;
    if (m->logits)
        memcpy(m->logits, logits, n_vocab * sizeof *logits);
}

static int begin(stoa_model *m, const int32_t *prompt, size_t n_prompt, size_t n_new, const stoa_sampling *sampling)
{
    struct sequence_request request = { .tokens = prompt, .params = { .top_p = 1 }, .on_row = keep_row, .user = m };
    if (n_prompt > stoa_context(m) || n_new > stoa_context(m))
        return error_set(ERR_USAGE, "%zu prompt tokens and %zu new ones are more than the context of %u", n_prompt, n_new, stoa_context(m));
    request.n_tokens = (uint32_t)n_prompt;
    request.n_new = (uint32_t)n_new;
    if (sampling)
        request.params = (struct sample_params){ .temperature = sampling->temperature, .top_p = sampling->top_p, .top_k = sampling->top_k,
                                                 .seed = sampling->seed };
    return m->sequence ? engine_continue(m->engine, m->sequence, &request) : engine_add(m->engine, &m->sequence, &request);
}

int stoa_generate(stoa_model *m, const int32_t *prompt, size_t n_prompt, size_t n_new, const stoa_sampling *sampling,
                  stoa_token_fn *on_token, void *user)
{
    int err = on_token ? begin(m, prompt, n_prompt, n_new, sampling) : error_set(ERR_USAGE, "there is nobody to give the tokens to");
    uint32_t taken = 0, n;
    bool stopped = false;
    while (err >= 0 && !stopped && !sequence_is_done(m->sequence)) {
        err = engine_step(m->engine);
        const int32_t *tokens = sequence_new_tokens(m->sequence, &n);
        for (; err >= 0 && taken < n && !stopped; taken++)
            stopped = !on_token(user, tokens[taken]) || stoa_is_end(m, tokens[taken]);
    }
    if (m->sequence)
        sequence_stop(m->sequence);
    return public_code(err < 0 ? err : m->sequence ? sequence_error(m->sequence) : 0);
}

int stoa_logits(stoa_model *m, const int32_t *prompt, size_t n_prompt, float *logits)
{
    m->logits = logits;
    int err = begin(m, prompt, n_prompt, 0, NULL);
    while (err >= 0 && !sequence_is_done(m->sequence))
        err = engine_step(m->engine);
    m->logits = NULL;
    return public_code(err < 0 ? err : sequence_error(m->sequence));
}
