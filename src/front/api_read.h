/* api_read.h: what the files that read a body share.  Each function gives 0, or -1 with reader->error filled in. */
#ifndef STOA_FRONT_API_READ_H
#define STOA_FRONT_API_READ_H

#include "front/api_fields.h"

struct api_reader {
    const struct api_model *model;
    enum api_kind kind;
    struct arena tree;              /* the body's values, gone when reading is over */
    struct api_fields fields;
    struct api_error *error;
    size_t n_arguments;             /* bytes of tool calls' so far */
};
/* Reads the body into reader->fields; the caller closes reader->tree, whatever comes back. */
int api_reader_open(struct api_reader *reader, enum api_kind kind, const struct api_model *model, const char *body, size_t n_bytes,
                    struct api_error *error);

/* What error_set() was told in a library function: a 400, but for memory. */
int api_refuse_as_told(struct api_error *error, int code, const char *param);

/* 400 context_length_exceeded for a prompt of so many tokens, or at least so many. */
int api_refuse_length(struct api_reader *reader, size_t n_tokens, bool at_least);
/* The most bytes that a text may have and still fit the context: what has more is refused before it is cut into tokens. */
size_t api_most_bytes(const struct api_reader *reader);

/* Whether what a chat may have is well formed, so far as it is there; opens arguments of tool calls. */
int api_check_chat(struct api_reader *reader);
/* Ids of fields.messages, checked, by the model's template.  The caller frees *ids. */
int api_encode_chat(struct api_reader *reader, int32_t **ids, size_t *n);
/* What fields.prompt is, in the arena: a list of prompts. */
int api_encode_prompts(struct api_reader *reader, struct arena *arena, struct api_prompt **prompts, uint32_t *n);
/* A list of token ids that the model has, in the arena.  `param` names it. */
int api_read_ids(struct api_reader *reader, struct arena *arena, const struct template_list *list, const char *param, int32_t **ids);

#endif
