/* api_fields.h: every field that a body may have, as one table; api_fields.c has it, api_openapi.c prints it. */
#ifndef STOA_FRONT_API_FIELDS_H
#define STOA_FRONT_API_FIELDS_H

#include "front/api.h"
#include "text/template_value.h"

enum api_field_type {
    FIELD_BOOL,             /* -> bool */
    FIELD_INTEGER,          /* low .. high -> int64_t */
    FIELD_NUMBER,           /* low .. high -> double */
    FIELD_TEXT,             /* low .. high characters -> const struct template_value * */
    FIELD_LIST,             /* -> const struct template_value *, like the following */
    FIELD_OBJECT,
    FIELD_ANY,
    FIELD_IGNORED,          /* does not change the text */
    FIELD_OFF,              /* not supported: only what switches it off is accepted (see api_field_is_off()) */
    FIELD_NEVER,            /* not supported, with any value */
};

struct api_field {
    const char *name;
    unsigned kinds;         /* bits of enum api_kind */
    enum api_field_type type;
    size_t at;              /* in struct api_fields */
    double low, high;
    const char *off;        /* FIELD_OFF: a text that switches it off too */
    const char *schema;     /* for OpenAPI, where the type does not say it: the inside of a JSON object, with ' for " */
};
extern const struct api_field api_fields[];
extern const size_t api_n_fields;

/* A limit of api.h, as its digits, inside a schema. */
#define API_DIGITS_OF(number) #number
#define API_DIGITS(limit) API_DIGITS_OF(limit)

/* What chat_template_kwargs must not hold, since each has a field of its own. */
#define API_OWN_VARIABLES(FIRST, NEXT) \
    FIRST("messages") NEXT("add_generation_prompt") NEXT("bos_token") NEXT("eos_token") NEXT("tools") NEXT("documents")

/* A body as it was said: what is not there has the value of api_fields_usual.  Values are borrowed from the body's tree. */
struct api_fields {
    const struct template_value *model, *messages, *prompt, *content, *tokens, *stop, *stop_token_ids, *logit_bias, *stream_options;
    const struct template_value *variables, *documents, *reasoning_effort, *cache_salt;
    int64_t max_tokens, max_completion_tokens, n_predict, min_tokens, n, best_of, top_k, seed, top_logprobs, n_logprobs, priority;
    double temperature, top_p, min_p, repetition_penalty, repeat_penalty, frequency_penalty, presence_penalty;
    bool stream, include_usage, echo, logprobs, ignore_eos, include_stop, skip_special, add_special, parse_special, add_generation_prompt;
    bool continue_final, return_token_ids, return_token_strs, with_pieces;
    bool has_seed, has_add_generation_prompt;
    struct api_odd { const char *where, *name; size_t n_bytes; } odd[API_MAX_ODD];  /* what changes nothing; where: "", or as "messages[]." */
    uint32_t n_odd;
};
#define API_NOT_GIVEN INT64_MIN     /* of counts that have no usual value */

/* 0, or -1 with *error.  Where `strict`, fields that change nothing are an error, known ones too. */
int api_fields_read(struct api_fields *fields, enum api_kind kind, bool strict, const struct template_value *body, struct api_error *error);
/* Notes a name that changes nothing, or refuses it. */
int api_fields_note(struct api_fields *fields, bool strict, const char *where, const struct template_value *name, struct api_error *error);
/* Appends what was noted, as api_request.odd has it. */
void api_fields_tell(const struct api_fields *fields, struct buffer *out);
bool api_field_is_off(const struct api_field *field, const struct template_value *value);
/* Integers also as 5.0, as JSON schema has them. */
bool api_integer(const struct template_value *value, int64_t *integer);

#endif
