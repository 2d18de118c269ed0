/* stoa.h: the public C interface of libstoa.
 *
 * A model is opened once and then asked for tokens.  This interface runs on the threads of one process; many ranks are the
 * business of the `stoa` program.  The bits of every result are the same on both (docs/architecture.md, "One answer").
 *
 *   stoa_model *model;
 *   int32_t *ids;
 *   size_t n;
 *   if (stoa_open(&model, "model.gguf", NULL) < 0)
 *       return fprintf(stderr, "%s\n", stoa_error()), 1;
 *   stoa_tokenize(model, "The capital of France is", 24, &ids, &n);
 *   stoa_generate(model, ids, n, 16, NULL, print_token, NULL);
 *   stoa_free(ids);
 *   stoa_close(model);
 *
 * Errors: 0, or a negative code below, with a line for people from stoa_error().  No call exits or aborts the process on bad
 * input.  After an error, whichever it is, a model that is open can be asked again.
 * Threads: one thread at a time may use a model; several models may be used side by side.
 * Calls that compute set the calling thread's floating-point mode to round-to-nearest without flushing of subnormals, and
 * leave it so.
 * Text is UTF-8 in and bytes out: a token may end inside a character. */
#ifndef STOA_H
#define STOA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STOA_API __attribute__((visibility("default")))

enum stoa_error_code {
    STOA_FAILED = -1,           /* something went wrong at run time */
    STOA_USAGE = -2,            /* an argument that cannot be */
    STOA_BAD_FILE = -3,         /* the model file is damaged, or of a kind that Stoa does not read */
    STOA_NO_MEMORY = -4,
};

typedef struct stoa_model stoa_model;

typedef struct stoa_options {
    int n_threads;              /* 0: the cores of this process */
    uint32_t context;           /* most tokens of prompt and answer; 0: the model's, 8192 at most */
    bool f32_activations;       /* the reference mode: f32 arithmetic and cache, slower */
} stoa_options;

typedef struct stoa_sampling {
    float temperature;          /* 0: the most likely token */
    float top_p;                /* in (0, 1]; 1 is off */
    uint32_t top_k;             /* 0 is off */
    uint64_t seed;              /* the same seed gives the same tokens */
} stoa_sampling;

STOA_API const char *stoa_version(void);
/* The line of this thread's last error; never NULL. */
STOA_API const char *stoa_error(void);

/* options may be NULL.  On failure *out is NULL.  STOA_USAGE: a context that the model was not made for.  STOA_BAD_FILE: also
 * when there is no such file.  STOA_FAILED: the system has no descriptor for it, as an example.  STOA_NO_MEMORY: also when the
 * system starts no more threads. */
STOA_API int stoa_open(stoa_model **out, const char *path, const stoa_options *options);
/* NULL is fine. */
STOA_API void stoa_close(stoa_model *model);

STOA_API uint32_t stoa_n_vocab(const stoa_model *model);
STOA_API uint32_t stoa_context(const stoa_model *model);
/* True for the ids at which an answer ends. */
STOA_API bool stoa_is_end(const stoa_model *model, int32_t id);

/* Ids of the text, special tokens recognised, the begin token first where the model wants one.  The caller frees *ids with
 * stoa_free().  STOA_USAGE: the text has 2 GiB or more.  STOA_NO_MEMORY.  Then *ids and *n are as before. */
STOA_API int stoa_tokenize(const stoa_model *model, const char *text, size_t n_bytes, int32_t **ids, size_t *n);
/* The bytes of a token; borrowed, valid as long as the model.  "" and 0 bytes for control tokens, which stand for no text, and
 * for an id that does not exist. */
STOA_API const char *stoa_token_bytes(const stoa_model *model, int32_t id, size_t *n_bytes);
STOA_API void stoa_free(void *ids);

/* Called for each new token, the end token included; false stops.  It must not call into the same model. */
typedef bool stoa_token_fn(void *user, int32_t id);
/* Continues the prompt by up to n_new tokens; ends after an end token.  sampling may be NULL: the most likely token.  What the
 * prompt has in common with the call before is not computed again.
 * STOA_USAGE: no prompt, no on_token, an id that does not exist, prompt and answer longer than the context, sampling out of
 * range.  STOA_FAILED: a logit is not a number, or infinite.  STOA_NO_MEMORY. */
STOA_API int stoa_generate(stoa_model *model, const int32_t *prompt, size_t n_prompt, size_t n_new, const stoa_sampling *sampling,
                           stoa_token_fn *on_token, void *user);
/* The logits after the last token: logits[stoa_n_vocab()].  Errors as of stoa_generate(), after which they are not written. */
STOA_API int stoa_logits(stoa_model *model, const int32_t *prompt, size_t n_prompt, float *logits);

#ifdef __cplusplus
}
#endif

#endif
