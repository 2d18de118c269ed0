/* fuzz_template.c: any bytes as a chat template, rendered with a conversation that has tools, a tool call and parts. */
#include "base/buffer.h"
#include "text/template.h"
#include "text/template_node.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct template_value text(const char *bytes)
{
    return template_value_text(bytes, strlen(bytes));
}

static void put(struct arena *arena, struct template_value map, const char *key, struct template_value value)
{
    if (!template_map_set(arena, map, key, strlen(key), value))
        abort();
}

static void add(struct arena *arena, struct template_value list, struct template_value value)
{
    if (!template_list_add(arena, list, value))
        abort();
}

static struct template_value message(struct arena *arena, const char *role, struct template_value content)
{
    struct template_value made = template_value_map(arena);
    put(arena, made, "role", text(role));
    put(arena, made, "content", content);
    return made;
}

/* One tool with a parameter of some kinds of values. */
static struct template_value make_tools(struct arena *arena)
{
    struct template_value tools = template_value_list(arena, LIST_LIST), tool = template_value_map(arena);
    struct template_value function = template_value_map(arena), parameters = template_value_map(arena), names = template_value_list(arena, LIST_LIST);
    add(arena, names, text("place"));
    put(arena, parameters, "required", names);
    put(arena, parameters, "minimum", template_value_float(0.5));
    put(arena, parameters, "n", template_value_int(-3));
    put(arena, parameters, "yes", template_value_bool(true));
    put(arena, function, "name", text("weather"));
    put(arena, function, "parameters", parameters);
    put(arena, tool, "type", text("function"));
    put(arena, tool, "function", function);
    add(arena, tools, tool);
    return tools;
}

static struct template_value make_messages(struct arena *arena, struct template_value tools)
{
    struct template_value messages = template_value_list(arena, LIST_LIST), parts = template_value_list(arena, LIST_LIST);
    struct template_value part = template_value_map(arena), call = message(arena, "assistant", (struct template_value){ .kind = VALUE_NONE });
    put(arena, part, "type", text("text"));
    put(arena, part, "text", text("22 C"));
    add(arena, parts, part);
    put(arena, call, "tool_calls", tools);
    add(arena, messages, message(arena, "system", text("Be brief.")));
    add(arena, messages, message(arena, "user", text(" Gr\xc3\xbc\xc3\x9f" "e\n")));
    add(arena, messages, message(arena, "assistant", text("<think>a</think>b")));
    add(arena, messages, call);
    add(arena, messages, message(arena, "tool", parts));
    add(arena, messages, message(arena, "user", text("")));
    return messages;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct tm now = { .tm_year = 124, .tm_mon = 6, .tm_mday = 26 };
    struct arena arena = { 0 };
    struct template_value tools = make_tools(&arena), messages = make_messages(&arena, tools);
    const struct chat_options options = { .add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>", .tools = &tools, .now = &now };
    struct template *template = NULL;
    struct buffer out = { 0 };
    buffer_add_text(&out, "kept");
    if (template_open(&template, (const char *)data, n_bytes) == 0) {
        int err = template_render_messages(template, &messages, &options, &out);
        if (memcmp(out.bytes, "kept", 4) || (err < 0 && out.size != 4))
            abort();
    }
    template_close(template);
    buffer_release(&out);
    arena_close(&arena);
    return 0;
}
