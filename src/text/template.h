/* template.h: chat templates: Jinja as Hugging Face transformers runs it, which is a sandbox that changes no list or dict,
 * trim_blocks and lstrip_blocks, break and continue, {% generation %}, tojson and strftime_now() of its own.
 *
 * A construct that is not here is an error at template_open() with its line number, never a wrong prompt: include, import,
 * extends, block, autoescape and do; what filters, tests, methods and functions the tables of template_builtin.c do not
 * have.  Integers have 64 bits.  A template may do ten million steps, call itself some hundred deep and write 16 MB.
 *
 * A context other than a chat is made with template_value.h and rendered with template_render() of template_node.h. */
#ifndef STOA_TEXT_TEMPLATE_H
#define STOA_TEXT_TEMPLATE_H

#include "base/arena.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

struct template;
struct template_value;
struct tm;

/* Parses once.  ERR_BAD_FILE "chat template, line N: ..." */
int template_open(struct template **out, const char *source, size_t n_bytes);
void template_close(struct template *template);

struct chat_message {
    const char *role, *content;         /* UTF-8, NUL-terminated */
};
struct chat_options {
    bool add_generation_prompt;
    const char *bos_token, *eos_token;  /* text of the tokens; "" or NULL when there is none */
    const struct template_value *tools, *documents;     /* lists of dicts; NULL: none */
    const struct template_value *variables;             /* a dict of more, as enable_thinking; NULL: none */
    const struct tm *now;               /* for strftime_now(); NULL: the clock's */
};
/* Appends the prompt to `out`, or nothing.  A raise_exception() in the template is ERR_USAGE with its message; what is
 * wrong with a value ("x" is undefined, a limit) ERR_FAILED "chat template, line N: ...".  NULL texts are "". */
int template_render_chat(const struct template *template, const struct chat_message *messages, size_t n_messages,
                         const struct chat_options *options, struct buffer *out);
/* The same with messages as an API has them: a list of dicts, with tool calls and whatever else a template asks for.
 *   content that is null or left out is "", so that no template prints None or drops the turn
 *   content as a list of text parts stays one where the template walks it, else the texts are one, with newlines between;
 *   a part of another type is ERR_USAGE */
int template_render_messages(const struct template *template, const struct template_value *messages, const struct chat_options *options,
                             struct buffer *out);

#endif
