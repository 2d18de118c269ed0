#include "text/template.h"

#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"

#include <stdlib.h>
#include <string.h>

int template_open(struct template **out, const char *source, size_t n_bytes)
{
    struct template *template = calloc(1, sizeof *template);
    int err = template ? template_parse(template, source, n_bytes) : error_set(ERR_NO_MEMORY, "no memory for a chat template");
    if (err < 0) {
        template_close(template);
        return err;
    }
    *out = template;
    return 0;
}

void template_close(struct template *template)
{
    if (!template)
        return;
    arena_close(&template->arena);
    free(template);
}

static struct template_value text(const char *bytes)
{
    return bytes ? template_value_text(bytes, strlen(bytes)) : template_value_text("", 0);
}

static bool put(struct arena *arena, struct template_value map, const char *key, struct template_value value)
{
    return value.kind != VALUE_ABSENT && template_map_set(arena, map, key, strlen(key), value);
}

/* What transformers gives a template.  `tools` and `documents` are none, not undefined: templates ask for both. */
static bool make_context(struct arena *arena, const struct chat_message *messages, size_t n_messages,
                         const struct chat_options *options, struct template_value *context)
{
    struct template_value list = template_value_list(arena, false), none = { .kind = VALUE_NONE };
    bool ok = true;
    for (size_t i = 0; i < n_messages && ok; i++) {
        struct template_value message = template_value_map(arena);
        ok = put(arena, message, "role", text(messages[i].role)) &&
             put(arena, message, "content", text(messages[i].content)) && template_list_add(arena, list, message);
    }
    *context = template_value_map(arena);
    return ok && put(arena, *context, "messages", list) &&
           put(arena, *context, "add_generation_prompt", template_value_bool(options->add_generation_prompt)) &&
           put(arena, *context, "bos_token", text(options->bos_token)) &&
           put(arena, *context, "eos_token", text(options->eos_token)) &&
           put(arena, *context, "tools", none) && put(arena, *context, "documents", none);
}

int template_render_chat(const struct template *template, const struct chat_message *messages, size_t n_messages,
                         const struct chat_options *options, struct buffer *out)
{
    struct arena arena = { 0 };
    struct template_value context;
    int err = make_context(&arena, messages, n_messages, options, &context) ? template_render(template, context, out) :
              error_set(ERR_NO_MEMORY, "no memory for a chat of %zu messages", n_messages);
    arena_close(&arena);
    return err;
}
