#include "text/template_value.h"

#include "base/base.h"
#include "text/unicode.h"

#include <string.h>

struct template_value template_value_list(struct arena *arena, enum template_list_type type)
{
    struct template_list *list = arena_new(arena, struct template_list);
    if (!list)
        return (struct template_value){ .kind = VALUE_ABSENT };
    list->type = type;
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
        if (there->kind == VALUE_STRING && there->text.n_bytes == n_key && !memcmp(there->text.bytes, key, n_key))
            return &map->entries[i].value;
    }
    return NULL;
}

struct template_value *template_map_find_value(const struct template_map *map, const struct template_value *key)
{
    if (key->kind == VALUE_STRING)
        return template_map_find(map, key->text.bytes, key->text.n_bytes);
    for (size_t i = 0; i < map->n; i++) {
        uint64_t budget = 1 << 20;
        if (template_value_equal(&map->entries[i].key, key, &budget))
            return &map->entries[i].value;
    }
    return NULL;
}

bool template_is_hashable(const struct template_value *value)
{
    if (value->kind != VALUE_LIST)
        return value->kind != VALUE_MAP;
    for (size_t i = 0; value->list->type == LIST_TUPLE && i < value->list->n; i++)
        if (!template_is_hashable(&value->list->items[i]))
            return false;
    return value->list->type != LIST_LIST && value->list->type != LIST_KEYS && value->list->type != LIST_ITEMS;
}

bool template_map_set(struct arena *arena, struct template_value map, const char *key, size_t n_key,
                      struct template_value item)
{
    return template_map_set_value(arena, map, template_value_text(key, n_key), item);
}

bool template_map_set_value(struct arena *arena, struct template_value value, struct template_value key,
                            struct template_value item)
{
    unsigned depth = template_value_depth(&item) + 1;
    if ((value.kind != VALUE_MAP && value.kind != VALUE_NAMESPACE) || depth > TEMPLATE_MAX_DEPTH)
        return false;
    struct template_value *there = template_map_find_value(value.map, &key);
    if (!there)
        return template_map_add(arena, value, key, item);
    value.map->depth = MAX(value.map->depth, depth);
    *there = item;
    return true;
}

bool template_map_add(struct arena *arena, struct template_value value, struct template_value key, struct template_value item)
{
    struct template_map *map = value.map;
    unsigned depth = template_value_depth(&item) + 1;
    if ((value.kind != VALUE_MAP && value.kind != VALUE_NAMESPACE) || depth > TEMPLATE_MAX_DEPTH)
        return false;
    void *entries = map->entries;
    if (!grow(arena, &entries, map->n, &map->capacity, sizeof *map->entries))
        return false;
    map->entries = entries;
    map->entries[map->n++] = (struct template_entry){ key, item };
    map->depth = MAX(map->depth, depth);
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
    case VALUE_FLOAT:     return value->real < 0 || value->real > 0 || value->real != value->real;
    case VALUE_LIST:      return value->list->n != 0 || value->list->type == LIST_ITERATOR;
    case VALUE_MAP:       return value->map->n != 0;
    case VALUE_NAMESPACE:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_LOOP:      return true;
    }
    return false;
}

static bool equal_lists(const struct template_list *a, const struct template_list *b, uint64_t *budget)
{
    bool same = a->n == b->n && a->type == b->type && a->type != LIST_ITERATOR && a->type != LIST_VALUES;
    for (size_t i = 0; same && i < a->n; i++)
        same = template_value_equal(&a->items[i], &b->items[i], budget);
    return same;
}

static bool equal_maps(const struct template_map *a, const struct template_map *b, uint64_t *budget)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct template_value *there = template_map_find_value(b, &a->entries[i].key);
        same = there && template_value_equal(&a->entries[i].value, there, budget);
    }
    return same;
}

int template_number_order(const struct template_value *a, const struct template_value *b)
{
    if (template_is_integer(a) && template_is_integer(b)) {
        int64_t x = template_as_integer(a), y = template_as_integer(b);
        return (x > y) - (x < y);
    }
    double x = template_as_float(a), y = template_as_float(b);
    if (x != x || y != y)
        return 2;
    if (x < y || x > y)
        return (x > y) - (x < y);
    /* The one that is an integer may have been rounded. */
    const struct template_value *whole = template_is_integer(a) ? a : b;
    if (!template_is_integer(whole) || x >= 9223372036854775808.0)
        return template_is_integer(whole) ? (whole == a ? -1 : 1) : 0;
    int64_t exact = template_as_integer(whole), rounded = (int64_t)x;
    return whole == a ? (exact > rounded) - (exact < rounded) : (rounded > exact) - (rounded < exact);
}

/* No deeper than values nest: a namespace, which may hold itself, is not looked into. */
bool template_value_equal(const struct template_value *a, const struct template_value *b, uint64_t *budget)
{
    uint64_t cost = 16 + (a->kind == VALUE_STRING ? a->text.n_bytes : 0);
    *budget -= MIN(*budget, cost);
    if (template_is_number(a) && template_is_number(b))
        return template_number_order(a, b) == 0;
    if (a->kind != b->kind || !*budget)
        return false;
    switch (a->kind) {
    case VALUE_STRING:
        return a->text.n_bytes == b->text.n_bytes && !memcmp(a->text.bytes, b->text.bytes, a->text.n_bytes);
    case VALUE_LIST:      return a->list == b->list || equal_lists(a->list, b->list, budget);
    case VALUE_MAP:       return a->map == b->map || equal_maps(a->map, b->map, budget);
    case VALUE_NAMESPACE: return a->map == b->map;
    case VALUE_LOOP:      return a->loop == b->loop;
    case VALUE_MACRO:     return a->macro == b->macro;
    case VALUE_FUNCTION:  return a->function == b->function;
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
        [VALUE_INT] = "int", [VALUE_FLOAT] = "float", [VALUE_STRING] = "str", [VALUE_LIST] = "list", [VALUE_MAP] = "dict",
        [VALUE_NAMESPACE] = "namespace", [VALUE_LOOP] = "loop", [VALUE_MACRO] = "macro", [VALUE_FUNCTION] = "function",
    };
    return names[kind];
}

bool template_is_space(uint32_t code)
{
    return (unicode_class(code) & CHAR_SPACE) || (code >= 0x1c && code <= 0x1f);
}
