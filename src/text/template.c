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

static int no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory for a chat");
}

/* What transformers gives a template.  `tools` and `documents` are none, not undefined: templates ask for both. */
static bool make_context(struct arena *arena, struct template_value messages, const struct chat_options *options,
                         struct template_value *context)
{
    const struct template_value none = { .kind = VALUE_NONE }, *more = options->variables;
    *context = template_value_map(arena);
    bool ok = put(arena, *context, "messages", messages) &&
              put(arena, *context, "add_generation_prompt", template_value_bool(options->add_generation_prompt)) &&
              put(arena, *context, "bos_token", text(options->bos_token)) &&
              put(arena, *context, "eos_token", text(options->eos_token)) &&
              put(arena, *context, "tools", options->tools ? *options->tools : none) &&
              put(arena, *context, "documents", options->documents ? *options->documents : none);
    for (size_t i = 0; ok && more && i < more->map->n; i++)
        ok = template_map_set_value(arena, *context, more->map->entries[i].key, more->map->entries[i].value);
    return ok;
}

static int render(struct arena *arena, const struct template *template, struct template_value messages,
                  const struct chat_options *options, struct buffer *out)
{
    struct template_value context;
    if (!make_context(arena, messages, options, &context))
        return no_memory();
    return template_render(template, context, options->now, out);
}

int template_render_chat(const struct template *template, const struct chat_message *messages, size_t n_messages,
                         const struct chat_options *options, struct buffer *out)
{
    struct arena arena = { 0 };
    struct template_value list = template_value_list(&arena, LIST_LIST);
    bool ok = true;
    for (size_t i = 0; i < n_messages && ok; i++) {
        struct template_value message = template_value_map(&arena);
        ok = put(&arena, message, "role", text(messages[i].role)) &&
             put(&arena, message, "content", text(messages[i].content)) && template_list_add(&arena, list, message);
    }
    int err = ok ? render(&arena, template, list, options, out) : no_memory();
    arena_close(&arena);
    return err;
}

/* ---- messages as an API has them ---- */

#define MARK "\x01\x02part\x02\x01"

/* Whether the template walks a list of parts: a text in one then comes out as it is, and not in the list as it prints. */
static bool walks_parts(const struct template *template, const struct chat_options *options)
{
    struct arena arena = { 0 };
    struct buffer out = { 0 };
    struct template_value messages = template_value_list(&arena, LIST_LIST), message = template_value_map(&arena);
    struct template_value parts = template_value_list(&arena, LIST_LIST), part = template_value_map(&arena);
    bool walks = put(&arena, part, "type", text("text")) && put(&arena, part, "text", text(MARK)) &&
                 template_list_add(&arena, parts, part) && put(&arena, message, "role", text("user")) &&
                 put(&arena, message, "content", parts) && template_list_add(&arena, messages, message) &&
                 render(&arena, template, messages, options, &out) == 0;
    const char *hit = walks && out.bytes ? strstr(out.bytes, MARK) : NULL;
    walks = hit && !(hit > out.bytes && (hit[-1] == '"' || hit[-1] == '\''));
    buffer_release(&out);
    arena_close(&arena);
    return walks;
}

/* That every part is a text; and all of them as one string. */
static int join_parts(struct arena *arena, const struct template_list *parts, struct template_value *joined)
{
    struct buffer all = { 0 };
    int err = 0;
    for (size_t i = 0; i < parts->n && !err; i++) {
        const struct template_value *part = &parts->items[i];
        const struct template_value *type = part->kind == VALUE_MAP ? template_map_find(part->map, "type", 4) : NULL;
        const struct template_value *words = part->kind == VALUE_MAP ? template_map_find(part->map, "text", 4) : NULL;
        if (!type || type->kind != VALUE_STRING)
            err = error_set(ERR_USAGE, "a part of a message's content has no type");
        else if (!template_text_equal(type, "text"))
            err = error_set(ERR_USAGE, "a content part of type \"%.*s\" is not supported: only text is",
                            (int)MIN(type->text.n_bytes, (size_t)40), type->text.bytes);
        else if (!words || words->kind != VALUE_STRING)
            err = error_set(ERR_USAGE, "a text part of a message's content has no text");
        if (err)
            break;
        buffer_add(&all, "\n", i != 0);
        buffer_add(&all, words->text.bytes, words->text.n_bytes);
    }
    char *bytes = err || all.failed ? NULL : arena_alloc(arena, all.size + 1);
    if (!err && !bytes)
        err = no_memory();
    if (!err && all.size)
        memcpy(bytes, all.bytes, all.size);
    *joined = template_value_text(bytes, all.size);
    buffer_release(&all);
    return err;
}

enum walks { WALKS_UNKNOWN, WALKS_NOT, WALKS };

/* A copy of the message with its content as the template wants it. */
static int copy_message(struct arena *arena, const struct template *template, const struct chat_options *options,
                        const struct template_value *message, enum walks *walks, struct template_value *copy)
{
    const struct template_value *content;
    struct template_value changed = template_value_text("", 0);
    int err = 0;
    if (message->kind != VALUE_MAP)
        return error_set(ERR_USAGE, "a message is no object");
    *copy = template_value_map(arena);
    for (size_t i = 0; i < message->map->n; i++) {
        const struct template_entry *entry = &message->map->entries[i];
        if (copy->kind == VALUE_ABSENT || !template_map_add(arena, *copy, entry->key, entry->value))
            return no_memory();
    }
    content = template_map_find(message->map, "content", 7);
    if (content && content->kind == VALUE_STRING)
        return 0;
    if (content && content->kind != VALUE_NONE && content->kind != VALUE_LIST)
        return error_set(ERR_USAGE, "a message's content is neither text nor a list of parts");
    if (content && content->kind == VALUE_LIST) {
        if ((err = join_parts(arena, content->list, &changed)) < 0)
            return err;
        if (*walks == WALKS_UNKNOWN)
            *walks = walks_parts(template, options) ? WALKS : WALKS_NOT;
        if (*walks == WALKS)
            return 0;
    }
    return put(arena, *copy, "content", changed) ? 0 : no_memory();
}

int template_render_messages(const struct template *template, const struct template_value *messages, const struct chat_options *options,
                             struct buffer *out)
{
    struct arena arena = { 0 };
    struct template_value list = template_value_list(&arena, LIST_LIST), copy;
    enum walks walks = WALKS_UNKNOWN;
    int err = messages->kind == VALUE_LIST ? 0 : error_set(ERR_USAGE, "the messages are no list");
    for (size_t i = 0; !err && i < messages->list->n; i++) {
        err = copy_message(&arena, template, options, &messages->list->items[i], &walks, &copy);
        if (!err && !template_list_add(&arena, list, copy))
            err = no_memory();
    }
    if (!err)
        err = render(&arena, template, list, options, out);
    arena_close(&arena);
    return err;
}
