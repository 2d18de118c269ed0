/* chat_prompt.h: from a conversation to token ids, by a model's chat template.
 *
 * Special tokens are those that the template writes.  What stands in the messages and variables is plain text, whoever wrote it: strings
 * that hold the text of a control token are marked inside, with a character that stands nowhere else, and the chat is rendered a
 * second time; where the marks come out, plain text is.  A template that makes another prompt of marked strings, since it does more
 * with them than to print them, gets none. */
#ifndef STOA_TEXT_CHAT_PROMPT_H
#define STOA_TEXT_CHAT_PROMPT_H

#include "text/template.h"
#include "text/tokenizer.h"

struct chat_prompt {
    const struct tokenizer *tokenizer;
    const struct template *template;
    const struct template_value *messages;          /* a list, as template_render_messages() takes it */
    const struct chat_options *options;
    size_t most_bytes;          /* of the text before it is encoded; 0: any */
    bool without_begin;         /* no begin token before the text, unless the template writes one */
    bool goes_on;               /* the prompt ends where the content of the last message does, so that the answer goes on with it */
};
/* Ids of the whole conversation, with one begin token if the model wants one; the caller frees *ids.  ERR_USAGE for what the template
 * refuses, ERR_FULL for more than most_bytes. */
int chat_prompt_encode(const struct chat_prompt *prompt, int32_t **ids, size_t *n);

#endif
