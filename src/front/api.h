/* api.h: the OpenAI API without sockets: a body in, what to compute out; or an error as the API has them.
 *
 * api_read() may take long (a template, a tokenizer) and runs on a worker; it shares nothing but the model, which is read-only.
 *
 * Rules that hold for every field: null is absent; a field that is known and cannot be honoured, or has a wrong type or range, is a
 * 400 that names it in `param`; one that changes nothing is accepted and told of once per name (or a 400, with --strict). */
#ifndef STOA_FRONT_API_H
#define STOA_FRONT_API_H

#include "base/arena.h"
#include "base/buffer.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "wire/wire.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one request may hold. */
#define API_MAX_MESSAGES 4096
#define API_MAX_PROMPTS 64
#define API_MAX_CHOICES 128                 /* prompts times n */
#define API_MAX_STOPS 16                    /* of so many characters: */
#define API_MAX_STOP 1024
#define API_MAX_STOP_IDS 256
#define API_MAX_BIASES 1024
#define API_MAX_LOGPROBS 20
#define API_MAX_ODD 64                      /* names of a body that the log is told of */
#define API_MAX_NAME 256                    /* characters of a model's name, of a cache salt */
#define API_MAX_VARIABLES 64                /* chat_template_kwargs */
#define API_MAX_ARGUMENTS 1048576           /* bytes of all tool calls' arguments */
#define API_MAX_TOKENIZED 4194304           /* characters of /tokenize's text; bytes of its chat, as printed */

/* What requests are read against; the same for all of them. */
struct api_model {
    const struct tokenizer *tokenizer;
    const struct template *template;        /* NULL: the model has none, and chat is a 400 */
    const char *bos, *eos;                  /* their text; "" when there is none */
    const char *name;                       /* as served */
    const char *fingerprint;                /* system_fingerprint: the numerics id */
    uint32_t context, n_vocab;
    int64_t created_s;                      /* of /v1/models */
    bool strict;
};

struct api_error {
    int status;                             /* 400 .. */
    const char *type, *code;                /* "invalid_request_error"; code may be NULL */
    char param[64];                         /* "" : null */
    char message[512];
};
/* "rate_limit_error" of 429, and so on: the same for a status wherever it comes from. */
const char *api_error_type(int status);
/* Fills it in as a 400 and returns -1.  param: the field's name, NULL for none. */
int api_refuse(struct api_error *error, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
int api_no_memory(struct api_error *error);             /* the same as a 503 */
/* {"error": {"message": .., "type": .., "param": .., "code": ..}} */
void api_write_error(struct buffer *out, const struct api_error *error);

enum api_kind { API_CHAT, API_COMPLETION, API_TOKENIZE, API_DETOKENIZE };       /* api_read() is for the first two */

struct api_prompt {
    int32_t *ids;
    size_t n_ids;
    const char *text;                       /* of a completion, for echo */
    size_t n_text;
    uint32_t max_tokens;                    /* as asked for, but at most what the context leaves; 0 only with echo or where a client
                                             * says so */
};
struct api_bias {
    uint32_t id;
    float add;
};
/* Everything lies in its arena. */
struct api_request {
    struct arena *arena;
    enum api_kind kind;
    const char *model;                      /* as the client said it */
    struct api_prompt *prompts;             /* one of a chat */
    uint32_t n_prompts, n;                  /* n choices of each: choice i * n + k is the k-th of prompt i */
    uint32_t min_tokens;
    float temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
    uint32_t top_k;
    bool has_seed;
    uint64_t seed;                          /* the front sets it when !has_seed, before answer_open() */
    struct api_bias *bias;
    uint32_t n_bias;
    int32_t *stop_ids;                      /* with the model's end tokens, unless ignore_eos */
    uint32_t n_stop_ids;
    struct api_text { const char *bytes; size_t n_bytes; } *stop;
    uint32_t n_stop;
    bool include_stop, skip_special;        /* include_stop_str_in_output, skip_special_tokens (true unless said) */
    bool stream, include_usage, echo, logprobs, return_token_ids;
    uint32_t top_logprobs;
    int32_t priority;
    const char *cache_salt;                 /* NULL: none */
    size_t n_cache_salt;
    bool is_cut;                            /* more tokens were asked for than the context leaves to a prompt */
    const char *odd;                        /* names of fields that change nothing, for the log: n_odd_bytes, each ended by a NUL */
    size_t n_odd_bytes;
};

/* 0, or -1 with *error filled in.  On success *out is the caller's. */
int api_read(struct api_request **out, enum api_kind kind, const struct api_model *model, const char *body, size_t n_bytes,
             struct api_error *error);
void api_request_close(struct api_request *request);

/* Bodies of the small routes; 0 with a body of JSON in `out`, or -1 with *error.  odd: as in a request. */
int api_tokenize(struct buffer *out, struct buffer *odd, const struct api_model *model, const char *body, size_t n_bytes,
                 struct api_error *error);
int api_detokenize(struct buffer *out, struct buffer *odd, const struct api_model *model, const char *body, size_t n_bytes,
                   struct api_error *error);
void api_models(struct buffer *out, const struct api_model *model);
void api_model(struct buffer *out, const struct api_model *model, const char *name);
void api_openapi(struct buffer *out, const struct api_model *model);        /* of every route the front has, as OpenAPI 3.1 */

#endif
