/* api_messages.c: a chat: what messages may be, and their ids. */
#include "front/api_read.h"

#include "base/base.h"
#include "base/error.h"
#include "text/chat_prompt.h"
#include "text/json_in.h"

#include <stdio.h>
#include <string.h>

static const struct template_value *find(const struct template_value *map, const char *key)
{
    const struct template_value *value = template_map_find(map->map, key, strlen(key));
    return value && value->kind != VALUE_NONE ? value : NULL;
}

static bool put(struct arena *arena, struct template_value map, const char *key, struct template_value value)
{
    return template_map_set(arena, map, key, strlen(key), value);
}

/* ---- what a message may be ---- */

static const struct {
    const char *name, *as;          /* as templates know it */
    bool needs_content;
} roles[] = {
    { "system", "system", true }, { "developer", "system", true }, { "user", "user", true }, { "tool", "tool", true },
    { "assistant", "assistant", false },
};

/* What we look at, or templates that we know of. */
static const char *const message_keys[] = { "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning" };
static const char *const part_keys[] = { "type", "text" };

static int note_others(struct api_reader *r, const struct template_value *map, const char *where, const char *const *known, size_t n_known)
{
    int err = 0;
    for (size_t i = 0; i < map->map->n && !err; i++) {
        const struct template_entry *entry = &map->map->entries[i];
        size_t k = 0;
        while (k < n_known && !template_text_equal(&entry->key, known[k]))
            k++;
        if (k == n_known && entry->value.kind != VALUE_NONE)
            err = api_fields_note(&r->fields, r->model->strict, where, &entry->key, r->error);
    }
    return err;
}

static int check_part(struct api_reader *r, const struct template_value *part, size_t i, size_t k)
{
    char param[sizeof r->error->param];
    snprintf(param, sizeof param, "messages[%zu].content[%zu]", i, k);
    const struct template_value *type = part->kind == VALUE_MAP ? find(part, "type") : NULL;
    const struct template_value *text = part->kind == VALUE_MAP ? find(part, "text") : NULL;
    if (!type || type->kind != VALUE_STRING)
        return api_refuse(r->error, param, "%s must be an object with a type", param);
    if (!template_text_equal(type, "text"))
        return api_refuse(r->error, param, "%s has the type \"%.*s\"; this model reads text only", param,
                          (int)MIN(type->text.n_bytes, (size_t)40), type->text.bytes);
    if (!text || text->kind != VALUE_STRING)
        return api_refuse(r->error, param, "%s must have a text", param);
    return note_others(r, part, "messages[].content[].", part_keys, COUNT_OF(part_keys));
}

static int check_content(struct api_reader *r, const struct template_value *message, size_t i, bool needed)
{
    char param[sizeof r->error->param];
    int err = 0;
    snprintf(param, sizeof param, "messages[%zu].content", i);
    const struct template_value *content = find(message, "content");
    if (!content && needed)
        return api_refuse(r->error, param, "%s is missing", param);
    if (content && content->kind != VALUE_STRING && content->kind != VALUE_LIST)
        return api_refuse(r->error, param, "%s must be a string or an array of parts", param);
    for (size_t k = 0; content && content->kind == VALUE_LIST && k < content->list->n && !err; k++)
        err = check_part(r, &content->list->items[k], i, k);
    return err;
}

static void deepen(const struct template_value *value, unsigned depth)
{
    unsigned *at = value->kind == VALUE_LIST ? &value->list->depth : &value->map->depth;
    *at = MAX(*at, depth);
}

/* Templates print the arguments of a call as an object; clients send them as a string that holds one.  Others stay a text, as the
 * model wrote it. */
static int open_arguments(struct api_reader *r, struct template_value *arguments)
{
    struct template_value opened;
    if ((r->n_arguments += arguments->text.n_bytes) > API_MAX_ARGUMENTS)
        return api_refuse(r->error, "messages", "the arguments of tool calls have more than %d bytes", API_MAX_ARGUMENTS);
    int err = json_read(&r->tree, arguments->text.bytes, arguments->text.n_bytes, &opened);
    if (!err && opened.kind == VALUE_MAP)
        *arguments = opened;
    return err == ERR_NO_MEMORY ? api_no_memory(r->error) : 0;
}

static int check_call(struct api_reader *r, const struct template_value *message, const struct template_value *calls, size_t i, size_t k)
{
    char param[sizeof r->error->param];
    const struct template_value *call = &calls->list->items[k], *function = call->kind == VALUE_MAP ? find(call, "function") : NULL;
    const struct template_value *name = function && function->kind == VALUE_MAP ? find(function, "name") : NULL;
    struct template_value *arguments = name ? template_map_find(function->map, "arguments", 9) : NULL;
    snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu]", i, k);
    if (!arguments || name->kind != VALUE_STRING || (arguments->kind != VALUE_STRING && arguments->kind != VALUE_MAP))
        return api_refuse(r->error, param, "%s must have a function with a name and arguments", param);
    if (arguments->kind == VALUE_STRING && open_arguments(r, arguments) < 0)
        return -1;
    const struct template_value *around[] = { function, call, calls, message, r->fields.messages };
    for (unsigned m = 0; m < COUNT_OF(around); m++)
        deepen(around[m], template_value_depth(arguments) + 1 + m);
    return 0;
}

static int check_calls(struct api_reader *r, const struct template_value *message, size_t i)
{
    char param[sizeof r->error->param];
    int err = 0;
    const struct template_value *calls = find(message, "tool_calls");
    snprintf(param, sizeof param, "messages[%zu].tool_calls", i);
    if (calls && calls->kind != VALUE_LIST)
        return api_refuse(r->error, param, "%s must be an array", param);
    for (size_t k = 0; calls && k < calls->list->n && !err; k++)
        err = check_call(r, message, calls, i, k);
    return err;
}

static int check_message(struct api_reader *r, const struct template_value *message, size_t i)
{
    char param[sizeof r->error->param];
    size_t k = 0;
    snprintf(param, sizeof param, "messages[%zu]", i);
    if (message->kind != VALUE_MAP)
        return api_refuse(r->error, param, "%s must be an object", param);
    const struct template_value *role = find(message, "role");
    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!role || role->kind != VALUE_STRING)
        return api_refuse(r->error, param, "%s must be a string", param);
    while (k < COUNT_OF(roles) && !template_text_equal(role, roles[k].name))
        k++;
    if (k == COUNT_OF(roles))
        return api_refuse(r->error, param, "%s must be system, developer, user, assistant or tool", param);
    if (check_content(r, message, i, roles[k].needs_content) < 0 || check_calls(r, message, i) < 0 ||
        note_others(r, message, "messages[].", message_keys, COUNT_OF(message_keys)) < 0)
        return -1;
    return put(&r->tree, *message, "role", template_value_text(roles[k].as, strlen(roles[k].as))) ? 0 : api_no_memory(r->error);
}

static int check_messages(struct api_reader *r)
{
    const struct template_value *messages = r->fields.messages;
    int err = 0;
    if (!messages && r->kind == API_TOKENIZE)       /* which may have a text instead */
        return 0;
    if (!messages || !messages->list->n)
        return api_refuse(r->error, "messages", "messages must be an array with at least one message");
    if (messages->list->n > API_MAX_MESSAGES)
        return api_refuse(r->error, "messages", "messages has %zu items, the limit is %d", messages->list->n, API_MAX_MESSAGES);
    for (size_t i = 0; i < messages->list->n && !err; i++)
        err = check_message(r, &messages->list->items[i], i);
    return err;
}

/* ---- what else the template gets ---- */

static int check_documents(struct api_reader *r)
{
    const struct template_value *documents = r->fields.documents;
    for (size_t i = 0; documents && i < documents->list->n; i++)
        if (documents->list->items[i].kind != VALUE_MAP)
            return api_refuse(r->error, "documents", "documents[%zu] must be an object", i);
    return 0;
}

/* No variable has the name of what has a field of its own. */
static int check_variables(struct api_reader *r)
{
#define NAME(name) name,
    static const char *const own[] = { API_OWN_VARIABLES(NAME, NAME) };
#undef NAME
    const struct template_value *given = r->fields.variables;
    if (given && given->map->n > API_MAX_VARIABLES)
        return api_refuse(r->error, "chat_template_kwargs", "chat_template_kwargs has %zu items, the limit is %d", given->map->n,
                          API_MAX_VARIABLES);
    for (size_t i = 0; given && i < COUNT_OF(own); i++)
        if (template_map_find(given->map, own[i], strlen(own[i])))
            return api_refuse(r->error, "chat_template_kwargs", "chat_template_kwargs must not hold %s", own[i]);
    return 0;
}

int api_check_chat(struct api_reader *r)
{
    const struct api_fields *f = &r->fields;
    if (f->continue_final && f->has_add_generation_prompt && f->add_generation_prompt)
        return api_refuse(r->error, "continue_final_message", "continue_final_message and add_generation_prompt exclude each other");
    return check_messages(r) < 0 || check_documents(r) < 0 || check_variables(r) < 0 ? -1 : 0;
}

/* chat_template_kwargs, and the fields that are a variable of the template's too. */
static int gather_variables(struct api_reader *r, struct template_value *variables)
{
    const struct template_value *given = r->fields.variables;
    *variables = template_value_map(&r->tree);
    if (variables->kind == VALUE_ABSENT)
        return api_no_memory(r->error);
    if (r->fields.reasoning_effort && !put(&r->tree, *variables, "reasoning_effort", *r->fields.reasoning_effort))
        return api_no_memory(r->error);
    for (size_t i = 0; given && i < given->map->n; i++)
        if (!template_map_set_value(&r->tree, *variables, given->map->entries[i].key, given->map->entries[i].value))
            return api_no_memory(r->error);
    return 0;
}

int api_encode_chat(struct api_reader *r, int32_t **ids, size_t *n)
{
    const struct api_fields *f = &r->fields;
    struct template_value variables;
    if (!r->model->template)
        return api_refuse(r->error, "messages", "this model has no chat template: it completes prompts only");
    if (gather_variables(r, &variables) < 0)
        return -1;
    const struct chat_options options = {
        .add_generation_prompt = f->add_generation_prompt && !f->continue_final, .bos_token = r->model->bos, .eos_token = r->model->eos,
        .documents = f->documents, .variables = &variables,
    };
    const struct chat_prompt prompt = {
        .tokenizer = r->model->tokenizer, .template = r->model->template, .messages = f->messages, .options = &options,
        .without_begin = !f->add_special, .goes_on = f->continue_final,
        .most_bytes = r->kind == API_CHAT ? api_most_bytes(r) : API_MAX_TOKENIZED,
    };
    int err = chat_prompt_encode(&prompt, ids, n);
    if (err == ERR_FULL && r->kind == API_CHAT)
        return api_refuse_length(r, r->model->context, true);
    return err < 0 ? api_refuse_as_told(r->error, err, "messages") : 0;
}
