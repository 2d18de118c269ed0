/* template.h: chat templates, a subset of Jinja as Hugging Face transformers runs it (trim_blocks and lstrip_blocks on).
 *
 * A construct that the subset lacks is an error at template_open() with its line number, never a wrong prompt.  The
 * subset: for (with if, else, break, continue, the loop variable), if, set, expressions but for fractions, comments,
 * white-space control; the filters, tests, methods and functions in the tables of template_builtin.c.  It lacks macros,
 * includes, set blocks, recursive loops.  A template may do ten million steps and write 16 MB.
 *
 * A context other than a chat is made with template_value.h and rendered with template_render() of template_node.h. */
#ifndef STOA_TEXT_TEMPLATE_H
#define STOA_TEXT_TEMPLATE_H

#include "base/arena.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

struct template;

/* Parses once.  ERR_BAD_FILE "chat template, line N: ..." */
int template_open(struct template **out, const char *source, size_t n_bytes);
void template_close(struct template *template);

struct chat_message {
    const char *role, *content;         /* UTF-8, NUL-terminated */
};
struct chat_options {
    bool add_generation_prompt;
    const char *bos_token, *eos_token;  /* text of the tokens; "" or NULL when there is none */
};
/* Appends the prompt to `out`, or nothing.  A raise_exception() in the template is ERR_USAGE with its message; what is
 * wrong with a value ("x" is undefined, a limit) ERR_FAILED "chat template, line N: ...".  NULL texts are "". */
int template_render_chat(const struct template *template, const struct chat_message *messages, size_t n_messages,
                         const struct chat_options *options, struct buffer *out);

#endif
