#include "text/chat_prompt.h"

#include "base/base.h"
#include "base/error.h"
#include "text/template_value.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory for the prompt");
}

/* ---- marks ---- */

/* Marks are two of the characters that Unicode keeps for a program's own use inside (U+FDD0 to U+FDEF): one at either end of a
 * string with control tokens, the other where an answer goes on. */
#define MARK_BYTES 3
struct marking {
    struct arena arena;
    const struct tokenizer *tokenizer;
    char mark[4], end_mark[4];
    bool parts_are_one;             /* inside a list of parts which together hold a control token */
    bool any;
    int err;
};

static bool contains_text(const struct template_value *value, const char *text)
{
    switch (value->kind) {
    case VALUE_STRING:
        return memmem(value->text.bytes, value->text.n_bytes, text, strlen(text));
    case VALUE_LIST:
        for (size_t i = 0; i < value->list->n; i++)
            if (contains_text(&value->list->items[i], text))
                return true;
        return false;
    case VALUE_MAP:
        for (size_t i = 0; i < value->map->n; i++)
            if (contains_text(&value->map->entries[i].key, text) || contains_text(&value->map->entries[i].value, text))
                return true;
        return false;
    default:
        return false;
    }
}

/* Two characters that stand nowhere in what was given. */
static int choose_marks(struct marking *m, const struct chat_prompt *p)
{
    char *marks[] = { m->mark, m->end_mark };
    size_t n = 0;
    for (uint32_t code = 0xfdd0; code <= 0xfdef && n < COUNT_OF(marks); code++) {
        marks[n][utf8_encode(code, marks[n])] = 0;
        if (!contains_text(p->messages, marks[n]) && !(p->options->variables && contains_text(p->options->variables, marks[n])))
            n++;
    }
    return n == COUNT_OF(marks) ? 0 : error_set(ERR_USAGE, "the messages hold every character from U+FDD0 to U+FDEF");
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Inside the blanks around the text, so that a template may trim them. */
static struct template_value mark_text(struct marking *m, const struct template_value *text)
{
    const char *bytes = text->text.bytes;
    size_t n = text->text.n_bytes, begin = 0, end = n;
    while (begin < n && is_blank(bytes[begin]))
        begin++;
    while (end > begin && is_blank(bytes[end - 1]))
        end--;
    char *marked = arena_alloc(&m->arena, n + 2 * MARK_BYTES), *to = marked;
    if (!marked) {
        m->err = no_memory();
        return *text;
    }
    to = (char *)mempcpy(to, bytes, begin);
    to = (char *)mempcpy(to, m->mark, MARK_BYTES);
    to = (char *)mempcpy(to, bytes + begin, end - begin);
    to = (char *)mempcpy(to, m->mark, MARK_BYTES);
    memcpy(to, bytes + end, n - end);
    m->any = true;
    return template_value_text(marked, n + 2 * MARK_BYTES);
}

static struct template_value mark_value(struct marking *m, const struct template_value *value);

static const struct template_value *entry_of(const struct template_value *value, const char *name)
{
    return value->kind == VALUE_MAP ? template_map_find(value->map, name, strlen(name)) : NULL;
}

/* Whether texts of parts, each behind the other, hold a control token, which may begin in one and end in the next. */
static bool parts_have_control(struct marking *m, const struct template_list *parts)
{
    struct buffer all = { 0 };
    for (size_t i = 0; i < parts->n; i++) {
        const struct template_value *text = entry_of(&parts->items[i], "text");
        if (text && text->kind == VALUE_STRING)
            buffer_add(&all, text->text.bytes, text->text.n_bytes);
    }
    bool has = all.size && tokenizer_has_control(m->tokenizer, all.bytes, all.size);
    if (all.failed)
        m->err = no_memory();
    buffer_release(&all);
    return has;
}

static struct template_value mark_list(struct marking *m, const struct template_value *value)
{
    struct template_value copy = template_value_list(&m->arena, LIST_LIST);
    bool outer = m->parts_are_one;
    m->parts_are_one = parts_have_control(m, value->list);
    for (size_t i = 0; i < value->list->n && !m->err; i++)
        if (!template_list_add(&m->arena, copy, mark_value(m, &value->list->items[i])))
            m->err = no_memory();
    m->parts_are_one = outer;
    return copy;
}

static struct template_value mark_map(struct marking *m, const struct template_value *value)
{
    struct template_value copy = template_value_map(&m->arena);
    bool is_part = m->parts_are_one;
    m->parts_are_one = false;
    for (size_t i = 0; i < value->map->n && !m->err; i++) {
        const struct template_entry *entry = &value->map->entries[i];
        bool one = is_part && template_text_equal(&entry->key, "text") && entry->value.kind == VALUE_STRING;
        struct template_value marked = one ? mark_text(m, &entry->value) : mark_value(m, &entry->value);
        if (!template_map_add(&m->arena, copy, mark_value(m, &entry->key), marked))
            m->err = no_memory();
    }
    m->parts_are_one = is_part;
    return copy;
}

/* The value with marks; values without a control token in them are not copied where they are strings. */
static struct template_value mark_value(struct marking *m, const struct template_value *value)
{
    switch (value->kind) {
    case VALUE_STRING: return tokenizer_has_control(m->tokenizer, value->text.bytes, value->text.n_bytes) ? mark_text(m, value) : *value;
    case VALUE_LIST:   return mark_list(m, value);
    case VALUE_MAP:    return mark_map(m, value);
    default:           return *value;
    }
}

/* ---- an answer that goes on ---- */

/* A copy of the list with another value in place of items[at]. */
static struct template_value with_item(struct marking *m, const struct template_list *list, size_t at, struct template_value item)
{
    struct template_value copy = template_value_list(&m->arena, LIST_LIST);
    bool ok = copy.kind == VALUE_LIST;
    for (size_t i = 0; i < list->n && ok; i++)
        ok = template_list_add(&m->arena, copy, i == at ? item : list->items[i]);
    if (!ok)
        m->err = no_memory();
    return copy;
}

/* A copy of the map with another value in place of that one of its own. */
static struct template_value with_value(struct marking *m, const struct template_map *map, const struct template_value *old,
                                        struct template_value value)
{
    struct template_value copy = template_value_map(&m->arena);
    bool ok = copy.kind == VALUE_MAP;
    for (size_t i = 0; i < map->n && ok; i++)
        ok = template_map_add(&m->arena, copy, map->entries[i].key, &map->entries[i].value == old ? value : map->entries[i].value);
    if (!ok)
        m->err = no_memory();
    return copy;
}

static struct template_value mark_behind(struct marking *m, const struct template_value *text)
{
    size_t n_bytes = text->text.n_bytes;
    char *bytes = arena_alloc(&m->arena, n_bytes + MARK_BYTES);
    if (bytes)
        memcpy(mempcpy(bytes, text->text.bytes, n_bytes), m->end_mark, MARK_BYTES);
    else
        m->err = no_memory();
    return template_value_text(bytes, bytes ? n_bytes + MARK_BYTES : 0);
}

/* A copy of the content, a string or a list of parts, with a mark behind its last text. */
static struct template_value mark_content(struct marking *m, const struct template_value *content)
{
    if (content && content->kind == VALUE_STRING)
        return mark_behind(m, content);
    for (size_t i = content && content->kind == VALUE_LIST ? content->list->n : 0; i-- > 0;) {
        const struct template_value *part = &content->list->items[i], *text = entry_of(part, "text");
        if (text && text->kind == VALUE_STRING)
            return with_item(m, content->list, i, with_value(m, part->map, text, mark_behind(m, text)));
    }
    m->err = error_set(ERR_USAGE, "the last message has no text to go on with");
    return (struct template_value){ 0 };
}

/* A copy of the messages, the last one's content with a mark behind it. */
static struct template_value mark_end(struct marking *m, const struct template_value *messages)
{
    static const struct template_value nothing;
    const struct template_list *list = messages->list;
    const struct template_value *last = list->n ? &list->items[list->n - 1] : &nothing, *content = entry_of(last, "content");
    struct template_value marked = mark_content(m, content);
    return m->err < 0 ? marked : with_item(m, list, list->n - 1, with_value(m, last->map, content, marked));
}

/* Cuts the text at that mark. */
static int cut_at_end(const struct marking *m, struct buffer *text)
{
    char *at = text->size ? memmem(text->bytes, text->size, m->end_mark, MARK_BYTES) : NULL;
    if (!at)
        return error_set(ERR_USAGE, "the chat template does not print the last message as it is, so no answer can go on with it");
    text->size = (size_t)(at - text->bytes);
    *at = 0;
    return 0;
}

/* ---- rendering ---- */

static int render(const struct chat_prompt *p, struct marking *m, const struct template_value *messages, const struct chat_options *options,
                  struct buffer *out)
{
    struct template_value ended;
    if (p->goes_on)
        ended = mark_end(m, messages);
    if (m->err < 0)
        return m->err;
    int err = template_render_messages(p->template, p->goes_on ? &ended : messages, options, out);
    if (!err && p->goes_on)
        err = cut_at_end(m, out);
    return !err && out->failed ? no_memory() : err;
}

struct ranges {
    struct text_range *ranges;
    size_t n;
};

/* Takes the marks out of `marked`, noting where they were; what is left must be `text`. */
static int find_ranges(const struct marking *m, const struct buffer *marked, const struct buffer *text, struct ranges *out)
{
    size_t at = 0, n_marks = 0, room = 0;
    const char *piece = marked->bytes ? marked->bytes : "", *end = piece + marked->size;
    bool same = true;
    while (same) {
        const char *mark = memmem(piece, (size_t)(end - piece), m->mark, MARK_BYTES);
        size_t n_piece = (size_t)((mark ? mark : end) - piece);
        same = n_piece <= text->size - at && !memcmp(piece, text->bytes + at, n_piece);
        at += n_piece;
        if (!mark)
            break;
        if (n_marks / 2 == room) {
            struct text_range *more = realloc(out->ranges, (room = 2 * room + 8) * sizeof *more);
            if (!more)
                return no_memory();
            out->ranges = more;
        }
        if (n_marks % 2)
            out->ranges[n_marks / 2].end = at;
        else
            out->ranges[n_marks / 2].begin = at;
        n_marks++;
        piece = mark + MARK_BYTES;
    }
    out->n = n_marks / 2;
    if (!same || at != text->size || n_marks % 2)
        return error_set(ERR_USAGE, "a message holds the text of a special token, and the chat template does more with it "
                                    "than to print it");
    return 0;
}

/* Where plain text stands in the rendered text. */
static int find_plain(const struct chat_prompt *p, struct marking *m, const struct buffer *text, struct ranges *ranges)
{
    struct template_value messages = mark_value(m, p->messages), variables;
    struct chat_options options = *p->options;
    struct buffer marked = { 0 };
    if (options.variables) {
        variables = mark_value(m, options.variables);
        options.variables = &variables;
    }
    int err = m->err;
    if (!err && m->any && (err = render(p, m, &messages, &options, &marked)) == 0)
        err = find_ranges(m, &marked, text, ranges);
    buffer_release(&marked);
    return err;
}

int chat_prompt_encode(const struct chat_prompt *p, int32_t **ids, size_t *n)
{
    struct marking m = { .tokenizer = p->tokenizer };
    struct ranges ranges = { 0 };
    struct buffer text = { 0 };
    int err;
    if ((err = choose_marks(&m, p)) < 0 || (err = render(p, &m, p->messages, p->options, &text)) < 0 ||
        (err = find_plain(p, &m, &text, &ranges)) < 0)
        goto done;
    if (p->most_bytes && text.size > p->most_bytes) {
        err = error_set(ERR_FULL, "the prompt has %zu bytes, the limit is %zu", text.size, p->most_bytes);
        goto done;
    }
    struct encode_text encode = {
        .bytes = text.bytes ? text.bytes : "", .n_bytes = text.size, .plain = ranges.ranges, .n_plain = ranges.n,
        .flags = TOKENIZE_SPECIAL | (p->without_begin ? 0 : TOKENIZE_BEGIN),
    };
    err = tokenizer_encode_text(p->tokenizer, &encode, ids, n);
done:
    free(ranges.ranges);
    buffer_release(&text);
    arena_close(&m.arena);
    return err;
}
