#include "text/template_value.h"

#include "base/base.h"
#include "text/unicode.h"

#include <string.h>

struct template_value template_value_list(struct arena *arena, bool tuple)
{
    struct template_list *list = arena_new(arena, struct template_list);
    if (!list)
        return (struct template_value){ .kind = VALUE_ABSENT };
    list->tuple = tuple;
    return (struct template_value){ .kind = VALUE_LIST, .list = list };
}

struct template_value template_value_map(struct arena *arena)
{
    struct template_map *map = arena_new(arena, struct template_map);
    return (struct template_value){ .kind = map ? VALUE_MAP : VALUE_ABSENT, .map = map };
}

unsigned template_value_depth(const struct template_value *value)
{
    return value->kind == VALUE_LIST ? value->list->depth : value->kind == VALUE_MAP ? value->map->depth : 0;
}

/* Room for one more of `size` bytes.  What was there before stays in the arena. */
static bool grow(struct arena *arena, void **items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return true;
    size_t wanted = MAX((size_t)4, 2 * *capacity);
    void *grown = wanted < SIZE_MAX / size / 2 ? arena_alloc(arena, wanted * size) : NULL;
    if (!grown)
        return false;
    if (n)
        memcpy(grown, *items, n * size);
    *items = grown;
    *capacity = wanted;
    return true;
}

bool template_list_add(struct arena *arena, struct template_value value, struct template_value item)
{
    struct template_list *list = value.list;
    void *items = value.kind == VALUE_LIST ? list->items : NULL;
    unsigned depth = template_value_depth(&item) + 1;
    if (value.kind != VALUE_LIST || depth > TEMPLATE_MAX_DEPTH ||
        !grow(arena, &items, list->n, &list->capacity, sizeof *list->items))
        return false;
    list->items = items;
    list->items[list->n++] = item;
    list->depth = MAX(list->depth, depth);
    return true;
}

struct template_value *template_map_find(const struct template_map *map, const char *key, size_t n_key)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct template_value *there = &map->entries[i].key;
        if (there->text.n_bytes == n_key && !memcmp(there->text.bytes, key, n_key))
            return &map->entries[i].value;
    }
    return NULL;
}

bool template_map_set(struct arena *arena, struct template_value value, const char *key, size_t n_key,
                      struct template_value item)
{
    struct template_map *map = value.map;
    unsigned depth = template_value_depth(&item) + 1;
    if ((value.kind != VALUE_MAP && value.kind != VALUE_NAMESPACE) || depth > TEMPLATE_MAX_DEPTH)
        return false;
    struct template_value *there = template_map_find(map, key, n_key);
    void *entries = map->entries;
    map->depth = MAX(map->depth, depth);
    if (there) {
        *there = item;
        return true;
    }
    if (!grow(arena, &entries, map->n, &map->capacity, sizeof *map->entries))
        return false;
    map->entries = entries;
    map->entries[map->n++] = (struct template_entry){ template_value_text(key, n_key), item };
    return true;
}

bool template_value_is_true(const struct template_value *value)
{
    switch (value->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:      return false;
    case VALUE_BOOL:      return value->flag;
    case VALUE_INT:       return value->number != 0;
    case VALUE_STRING:    return value->text.n_bytes != 0;
    case VALUE_LIST:      return value->list->n != 0;
    case VALUE_MAP:       return value->map->n != 0;
    case VALUE_NAMESPACE: return true;
    case VALUE_LOOP:      return true;
    }
    return false;
}

static bool equal_lists(const struct template_list *a, const struct template_list *b, uint64_t *budget)
{
    bool same = a->n == b->n && a->tuple == b->tuple;
    for (size_t i = 0; same && i < a->n; i++)
        same = template_value_equal(&a->items[i], &b->items[i], budget);
    return same;
}

static bool equal_maps(const struct template_map *a, const struct template_map *b, uint64_t *budget)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct template_value *key = &a->entries[i].key;
        const struct template_value *there = template_map_find(b, key->text.bytes, key->text.n_bytes);
        same = there && template_value_equal(&a->entries[i].value, there, budget);
    }
    return same;
}

/* No deeper than values nest: a namespace, which may hold itself, is not looked into. */
bool template_value_equal(const struct template_value *a, const struct template_value *b, uint64_t *budget)
{
    uint64_t cost = 16 + (a->kind == VALUE_STRING ? a->text.n_bytes : 0);
    *budget -= MIN(*budget, cost);
    if (template_is_number(a) && template_is_number(b))
        return template_as_number(a) == template_as_number(b);
    if (a->kind != b->kind || !*budget)
        return false;
    switch (a->kind) {
    case VALUE_STRING:
        return a->text.n_bytes == b->text.n_bytes && !memcmp(a->text.bytes, b->text.bytes, a->text.n_bytes);
    case VALUE_LIST:      return a->list == b->list || equal_lists(a->list, b->list, budget);
    case VALUE_MAP:       return a->map == b->map || equal_maps(a->map, b->map, budget);
    case VALUE_NAMESPACE: return a->map == b->map;
    case VALUE_LOOP:      return a->loop == b->loop;
    default:              return true;
    }
}

bool template_text_equal(const struct template_value *value, const char *text)
{
    size_t n_bytes = strlen(text);
    return value->text.n_bytes == n_bytes && !memcmp(value->text.bytes, text, n_bytes);
}

const char *template_kind_name(enum template_kind kind)
{
    static const char *const names[] = {
        [VALUE_ABSENT] = "nothing", [VALUE_UNDEFINED] = "undefined", [VALUE_NONE] = "none", [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int", [VALUE_STRING] = "str", [VALUE_LIST] = "list", [VALUE_MAP] = "dict",
        [VALUE_NAMESPACE] = "namespace", [VALUE_LOOP] = "loop",
    };
    return names[kind];
}

bool template_is_space(uint32_t code)
{
    return unicode_class(code) == CHAR_SPACE || (code >= 0x1c && code <= 0x1f);
}
