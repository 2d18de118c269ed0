/* prompt.h: from a conversation to token ids, by the model's chat template. */
#ifndef STOA_CLI_PROMPT_H
#define STOA_CLI_PROMPT_H

#include "cli/session.h"
#include "text/template.h"

struct prompter {
    struct template *template;      /* NULL: the model has none */
    struct buffer bos, eos;         /* text of the tokens */
};

/* Reads the model's template; a model without one is no error. */
int prompter_open(struct prompter *p, const struct session *s);
void prompter_release(struct prompter *p);

/* Ids of the whole conversation, up to where the answer begins.  Special tokens in a message's content are plain text; those
 * that the template writes are tokens.  The caller frees *ids. */
int prompt_chat(const struct prompter *p, const struct session *s, const struct chat_message *messages, size_t n_messages,
                int32_t **ids, size_t *n);
/* Ids of the text as it is, special tokens recognised. */
int prompt_raw(const struct session *s, const char *text, size_t n_bytes, int32_t **ids, size_t *n);

#endif
