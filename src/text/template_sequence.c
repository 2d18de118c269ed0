/* template_sequence.c: filters of lists and dicts, as jinja2 3.1 has them. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"

#include <string.h>

static int new_iterator(run_t *run, value_t *out)
{
    return template_new_list(run, LIST_ITERATOR, out);
}

/* ---- what a filter looks at in each item ---- */

/* item.a.b.0 as `attribute` says; absent or none is the item itself.  What is not there is `absent`, when that is given. */
static int get_path(run_t *run, const value_t *item, const value_t *attribute, const value_t *absent, value_t *out)
{
    int err = 0;
    *out = *item;
    if (!template_is_given(attribute))
        return 0;
    if (attribute->kind != VALUE_STRING) {
        err = template_get_item(run, out, attribute, out);
        if (!err && absent && template_is_given(absent) && out->kind == VALUE_UNDEFINED)
            *out = *absent;
        return err;
    }
    const char *at = attribute->text.bytes, *end = at + attribute->text.n_bytes;
    while (at <= end && !err) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        size_t n = (size_t)((dot ? dot : end) - at);
        value_t key = template_value_text(at, n);
        int64_t number = 0;
        bool digits = n > 0 && n < 18;
        for (size_t i = 0; i < n && digits; i++) {
            digits = at[i] >= '0' && at[i] <= '9';
            number = number * 10 + (at[i] - '0');
        }
        if (digits)
            key = template_value_int(number);
        err = template_get_item(run, out, &key, out);
        if (!err && absent && template_is_given(absent) && out->kind == VALUE_UNDEFINED)
            *out = *absent;
        at += n + 1;
    }
    return err;
}

static int fold_case(run_t *run, bool case_sensitive, value_t *key)
{
    return case_sensitive || key->kind != VALUE_STRING ? 0 : template_to_lower(run, key, key);
}

static int get_key(run_t *run, const value_t *item, const value_t *attribute, bool case_sensitive, value_t *key)
{
    int err = get_path(run, item, attribute, NULL, key);
    return err < 0 ? err : fold_case(run, case_sensitive, key);
}

/* The keys that sort() compares: one for each of the attributes between commas. */
static int get_keys(run_t *run, const value_t *item, const value_t *attribute, bool case_sensitive, value_t *keys)
{
    int err = template_new_list(run, LIST_LIST, keys);
    const char *at = attribute->kind == VALUE_STRING ? attribute->text.bytes : NULL;
    const char *end = at ? at + attribute->text.n_bytes : NULL;
    do {
        const char *comma = at ? memchr(at, ',', (size_t)(end - at)) : NULL;
        value_t part = at ? template_value_text(at, (size_t)((comma ? comma : end) - at)) : *attribute, key;
        if (err == 0 && (err = get_key(run, item, &part, case_sensitive, &key)) == 0)
            err = template_list_append(run, *keys, key);
        at = comma ? comma + 1 : NULL;
    } while (at && !err);
    return err;
}

/* ---- order ---- */

struct keyed {
    value_t key, item;
};

static int less(run_t *run, const value_t *a, const value_t *b, bool *yes)
{
    value_t result;
    int err = template_compare(run, TEMPLATE_LESS, a, b, &result);
    *yes = !err && result.flag;
    return err;
}

/* A merge sort, stable as Python's; `reverse` keeps the order of equals too. */
static int sort(run_t *run, struct keyed *items, size_t n, bool reverse)
{
    struct keyed *to = n > 1 ? (struct keyed *)(void *)template_alloc(run, n * sizeof *to) : NULL, *from = items;
    int err = n > 1 && !to ? ERR_FAILED : 0;
    for (size_t width = 1; width < n && !err; width *= 2) {
        for (size_t start = 0; start < n && !err; start += 2 * width) {
            size_t middle = MIN(start + width, n), end = MIN(start + 2 * width, n), i = start, j = middle;
            for (size_t k = start; k < end && !err; k++) {
                bool second = i == middle;
                if (!second && j < end)
                    err = reverse ? less(run, &from[i].key, &from[j].key, &second) : less(run, &from[j].key, &from[i].key, &second);
                to[k] = second ? from[j++] : from[i++];
            }
        }
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items && !err)
        memcpy(items, from, n * sizeof *items);
    return err;
}

static int sort_list(run_t *run, const value_t *list, struct keyed *items, bool reverse, value_t *out)
{
    int err = sort(run, items, list->list->n, reverse);
    for (size_t i = 0; i < list->list->n && !err; i++)
        err = template_list_append(run, *out, items[i].item);
    return err;
}

static struct keyed *new_keyed(run_t *run, size_t n)
{
    return (struct keyed *)(void *)template_alloc(run, n * sizeof(struct keyed));
}

int template_filter_sort(run_t *run, const value_t *a, value_t *out)
{
    bool case_sensitive = template_value_is_true(&a[2]);
    struct keyed *items;
    value_t list;
    int err;
    if ((err = template_iterate(run, &a[0], &list)) < 0 || (err = template_new_list(run, LIST_LIST, out)) < 0)
        return err;
    if (!(items = new_keyed(run, list.list->n)))
        return ERR_FAILED;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        items[i].item = list.list->items[i];
        err = get_keys(run, &items[i].item, &a[3], case_sensitive, &items[i].key);
    }
    return err < 0 ? err : sort_list(run, &list, items, template_value_is_true(&a[1]), out);
}

static int want_map(run_t *run, const value_t *value)
{
    if (value->kind == VALUE_MAP)
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "a dict is wanted, not a value of type %s", template_kind_name(value->kind));
}

int template_filter_dictsort(run_t *run, const value_t *a, value_t *out)
{
    bool by_value = a[2].kind == VALUE_STRING && template_text_equal(&a[2], "value");
    struct keyed *items;
    value_t list;
    int err = want_map(run, &a[0]);
    if (err == 0 && a[2].kind != VALUE_ABSENT && !by_value && !(a[2].kind == VALUE_STRING && template_text_equal(&a[2], "key")))
        err = template_fail(run, "dictsort() by something else than key or value");
    if (err < 0 || (err = template_method_items(run, &a[0], &list)) < 0 || (err = template_new_list(run, LIST_LIST, out)) < 0)
        return err;
    if (!(items = new_keyed(run, list.list->n)))
        return ERR_FAILED;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        items[i].item = list.list->items[i];
        items[i].key = items[i].item.list->items[by_value];
        err = fold_case(run, template_value_is_true(&a[1]), &items[i].key);
    }
    return err < 0 ? err : sort_list(run, &list, items, template_value_is_true(&a[3]), out);
}

static int extreme(run_t *run, const value_t *a, bool least, value_t *out)
{
    bool case_sensitive = template_value_is_true(&a[1]), better = false;
    value_t list, best = { 0 }, key;
    int err = template_iterate(run, &a[0], &list);
    *out = template_value_undefined("an item of nothing", 18);
    for (size_t i = 0; !err && i < list.list->n; i++) {
        if ((err = get_key(run, &list.list->items[i], &a[2], case_sensitive, &key)) < 0)
            break;
        if (i)
            err = least ? less(run, &key, &best, &better) : less(run, &best, &key, &better);
        if (!err && (!i || better)) {
            best = key;
            *out = list.list->items[i];
        }
    }
    return err;
}

int template_filter_min(run_t *run, const value_t *a, value_t *out)
{
    return extreme(run, a, true, out);
}

int template_filter_max(run_t *run, const value_t *a, value_t *out)
{
    return extreme(run, a, false, out);
}

int template_filter_unique(run_t *run, const value_t *a, value_t *out)
{
    value_t list, seen, key, found;
    int err;
    if ((err = template_iterate(run, &a[0], &list)) < 0 || (err = new_iterator(run, out)) < 0 ||
        (err = template_new_list(run, LIST_LIST, &seen)) < 0)
        return err;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        if ((err = get_key(run, &list.list->items[i], &a[2], template_value_is_true(&a[1]), &key)) < 0)
            break;
        if (!template_is_hashable(&key))
            return template_fail(run, "unique() of values of type %s", template_kind_name(key.kind));
        if ((err = template_compare(run, TEMPLATE_IN, &key, &seen, &found)) == 0 && !found.flag &&
            (err = template_list_append(run, seen, key)) == 0)
            err = template_list_append(run, *out, list.list->items[i]);
    }
    return err;
}

static int add_group(run_t *run, const value_t *key, value_t group, value_t out)
{
    value_t pair;
    int err;
    if ((err = template_new_list(run, LIST_TUPLE, &pair)) < 0 || (err = template_list_append(run, pair, *key)) < 0 ||
        (err = template_list_append(run, pair, group)) < 0)
        return err;
    return template_list_append(run, out, pair);
}

/* Groups of neighbours with one key, once sorted: tuples of the key and the list. */
int template_filter_groupby(run_t *run, const value_t *a, value_t *out)
{
    bool case_sensitive = template_value_is_true(&a[3]);
    struct keyed *items;
    value_t list, group = { 0 }, key = { 0 }, same = template_value_bool(false);
    int err;
    if ((err = template_iterate(run, &a[0], &list)) < 0 || (err = template_new_list(run, LIST_LIST, out)) < 0)
        return err;
    if (!(items = new_keyed(run, list.list->n)))
        return ERR_FAILED;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        items[i].item = list.list->items[i];
        if ((err = get_path(run, &items[i].item, &a[1], &a[2], &items[i].key)) == 0)
            err = fold_case(run, case_sensitive, &items[i].key);
    }
    if (err == 0)
        err = sort(run, items, list.list->n, false);
    for (size_t i = 0; i < list.list->n && !err; i++) {
        if (i)
            err = template_compare(run, TEMPLATE_EQUAL, &items[i].key, &items[i - 1].key, &same);
        if (!err && !(i && same.flag)) {
            err = i ? add_group(run, &key, group, *out) : 0;        /* once it is whole: its depth counts */
            if (err < 0 || (err = template_new_list(run, LIST_LIST, &group)) < 0 ||
                (err = get_path(run, &items[i].item, &a[1], &a[2], &key)) < 0)
                break;
        }
        if (!err)
            err = template_list_append(run, group, items[i].item);
    }
    return err < 0 || !list.list->n ? err : add_group(run, &key, group, *out);
}

/* ---- selecting and mapping ---- */

/* The arguments behind the first n, and those with names. */
static int rest_of(run_t *run, const value_t *list, size_t n, const value_t *map, struct template_arguments *rest)
{
    int err = template_new_list(run, LIST_TUPLE, &rest->list);
    rest->map = *map;
    for (size_t i = n; i < list->list->n && !err; i++)
        err = template_list_append(run, rest->list, list->list->items[i]);
    return err;
}

static int find_by_name(run_t *run, enum template_builtin_kind kind, const value_t *name, const struct template_builtin **found)
{
    int err = template_want_text(run, name);
    *found = err < 0 ? NULL : template_builtin_find(kind, name->text.bytes, name->text.n_bytes);
    if (err < 0 || *found)
        return err;
    return template_fail(run, "the %s \"%.*s\" is not supported", kind == TEMPLATE_FILTER ? "filter" : "test",
                         (int)MIN(name->text.n_bytes, (size_t)40), name->text.bytes);
}

static int select_items(run_t *run, const value_t *a, bool of_attribute, bool wanted, value_t *out)
{
    const struct template_list *given = a[1].list;
    const struct template_builtin *test = NULL;
    struct template_arguments rest;
    value_t list, looked_at, yes;
    int err = new_iterator(run, out);
    if (err < 0 || !template_value_is_true(&a[0]) || (err = template_iterate(run, &a[0], &list)) < 0 || !list.list->n)
        return err;
    if (of_attribute && !given->n)
        return template_fail(run, "the name of an attribute is missing");
    if (given->n > of_attribute && (err = find_by_name(run, TEMPLATE_TEST, &given->items[of_attribute], &test)) < 0)
        return err;
    if ((err = rest_of(run, &a[1], of_attribute + 1u, &a[2], &rest)) < 0)
        return err;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        looked_at = list.list->items[i];
        if (of_attribute)
            err = get_path(run, &list.list->items[i], &given->items[0], NULL, &looked_at);
        yes = looked_at;
        if (!err && test)
            err = template_call_builtin(run, test, &looked_at, &rest, &yes);
        if (!err && template_value_is_true(&yes) == wanted)
            err = template_list_append(run, *out, list.list->items[i]);
    }
    return err;
}

int template_filter_select(run_t *run, const value_t *a, value_t *out)
{
    return select_items(run, a, false, true, out);
}

int template_filter_reject(run_t *run, const value_t *a, value_t *out)
{
    return select_items(run, a, false, false, out);
}

int template_filter_selectattr(run_t *run, const value_t *a, value_t *out)
{
    return select_items(run, a, true, true, out);
}

int template_filter_rejectattr(run_t *run, const value_t *a, value_t *out)
{
    return select_items(run, a, true, false, out);
}

static int map_attribute(run_t *run, const value_t *list, const struct template_map *named, value_t *out)
{
    const value_t *attribute = template_map_find(named, "attribute", 9), *absent = template_map_find(named, "default", 7);
    int err = named->n == 1u + (absent != NULL) ? 0 : template_fail(run, "map() has no such argument");
    for (size_t i = 0; i < list->list->n && !err; i++) {
        value_t item;
        if ((err = get_path(run, &list->list->items[i], attribute, absent, &item)) == 0)
            err = template_list_append(run, *out, item);
    }
    return err;
}

int template_filter_map(run_t *run, const value_t *a, value_t *out)
{
    const struct template_builtin *filter;
    struct template_arguments rest;
    value_t list;
    int err = new_iterator(run, out);
    if (err < 0 || !template_value_is_true(&a[0]) || (err = template_iterate(run, &a[0], &list)) < 0 || !list.list->n)
        return err;
    if (!a[1].list->n && a[2].kind == VALUE_MAP && template_map_find(a[2].map, "attribute", 9))
        return map_attribute(run, &list, a[2].map, out);
    if (!a[1].list->n)
        return template_fail(run, "map() wants a filter or an attribute");
    if ((err = find_by_name(run, TEMPLATE_FILTER, &a[1].list->items[0], &filter)) < 0 || (err = rest_of(run, &a[1], 1, &a[2], &rest)) < 0)
        return err;
    for (size_t i = 0; i < list.list->n && !err; i++) {
        value_t item;
        if ((err = template_call_builtin(run, filter, &list.list->items[i], &rest, &item)) == 0)
            err = template_list_append(run, *out, item);
    }
    return err;
}

/* ---- the rest ---- */

int template_filter_length(run_t *run, const value_t *a, value_t *out)
{
    size_t n;
    int err = template_length(run, &a[0], &n);
    *out = template_value_int((int64_t)n);
    return err;
}

int template_filter_list(run_t *run, const value_t *a, value_t *out)
{
    value_t all;
    int err;
    if ((err = template_iterate(run, &a[0], &all)) < 0 || (err = template_new_list(run, LIST_LIST, out)) < 0)
        return err;
    for (size_t i = 0; i < all.list->n && !err; i++)
        err = template_list_append(run, *out, all.list->items[i]);
    return err;
}

/* Takes one item from an iterator, not all. */
int template_filter_first(run_t *run, const value_t *a, value_t *out)
{
    value_t list;
    int err;
    *out = template_value_undefined("an item of nothing", 18);
    if (a[0].kind == VALUE_LIST && a[0].list->type == LIST_ITERATOR) {
        if (a[0].list->at < a[0].list->n)
            *out = a[0].list->items[a[0].list->at++];
        return 0;
    }
    if ((err = template_iterate(run, &a[0], &list)) == 0 && list.list->n)
        *out = list.list->items[0];
    return err;
}

int template_filter_last(run_t *run, const value_t *a, value_t *out)
{
    value_t list;
    int err;
    if (a[0].kind == VALUE_LIST && a[0].list->type == LIST_ITERATOR)
        return template_fail(run, "last() of what has no end to begin with");
    *out = template_value_undefined("an item of nothing", 18);
    if ((err = template_iterate(run, &a[0], &list)) == 0 && list.list->n)
        *out = list.list->items[list.list->n - 1];
    return err;
}

int template_filter_reverse(run_t *run, const value_t *a, value_t *out)
{
    value_t list, none = template_value_text("", 0);
    int err;
    bool iterator = a[0].kind == VALUE_LIST && a[0].list->type == LIST_ITERATOR;
    if ((err = template_iterate(run, &a[0], &list)) < 0 || (err = template_new_list(run, iterator ? LIST_LIST : LIST_ITERATOR, out)) < 0)
        return err;
    for (size_t i = list.list->n; i-- > 0 && !err; )
        err = template_list_append(run, *out, list.list->items[i]);
    return err < 0 || a[0].kind != VALUE_STRING ? err : template_join(run, out, &none, out);
}

int template_join(run_t *run, const value_t *list_value, const value_t *between, value_t *out)
{
    const struct template_list *list = list_value->list;
    struct buffer all = { 0 };
    int err = 0;
    for (size_t i = list->at; err == 0 && i < list->n; i++) {
        value_t part;
        if (i > list->at)
            buffer_add(&all, between->text.bytes, between->text.n_bytes);
        if ((err = template_soft_text(run, &list->items[i], &part)) == 0 && (err = template_spend(run, between->text.n_bytes)) == 0)
            buffer_add(&all, part.text.bytes, part.text.n_bytes);
    }
    return template_take_text(run, &all, err, out);
}

int template_filter_join(run_t *run, const value_t *a, value_t *out)
{
    value_t list, between = template_value_text("", 0), items;
    int err;
    if ((err = template_iterate(run, &a[0], &list)) < 0 ||
        (a[1].kind != VALUE_ABSENT && (err = template_to_text(run, &a[1], &between)) < 0) ||
        (err = template_new_list(run, LIST_LIST, &items)) < 0)
        return err;
    if (!template_is_given(&a[2]))
        return template_join(run, &list, &between, out);
    for (size_t i = 0; i < list.list->n && !err; i++) {
        value_t item;
        if ((err = get_path(run, &list.list->items[i], &a[2], NULL, &item)) == 0)
            err = template_list_append(run, items, item);
    }
    return err < 0 ? err : template_join(run, &items, &between, out);
}

int template_filter_items(run_t *run, const value_t *a, value_t *out)
{
    int err = a[0].kind == VALUE_UNDEFINED ? template_new_list(run, LIST_ITEMS, out) : want_map(run, &a[0]);
    if (err == 0 && a[0].kind == VALUE_MAP)
        err = template_method_items(run, a, out);
    if (err == 0)
        out->list->type = LIST_ITERATOR;
    return err;
}

int template_filter_sum(run_t *run, const value_t *a, value_t *out)
{
    value_t list, total = a[2].kind == VALUE_ABSENT ? template_value_int(0) : a[2], item;
    int err = template_iterate(run, &a[0], &list);
    for (size_t i = 0; !err && i < list.list->n; i++)
        if ((err = get_path(run, &list.list->items[i], &a[1], NULL, &item)) == 0)
            err = template_operate(run, TEMPLATE_ADD, &total, &item, &total);
    *out = total;
    return err;
}

/* Rows of n_items; the last is filled up. */
int template_filter_batch(run_t *run, const value_t *a, value_t *out)
{
    value_t list, row = { 0 };
    int err;
    if ((err = template_want_int(run, &a[1])) < 0 || (err = template_iterate(run, &a[0], &list)) < 0 || (err = new_iterator(run, out)) < 0)
        return err;
    int64_t n_items = template_as_integer(&a[1]);
    if (n_items < 1)
        return template_fail(run, "batch() of rows without items is not supported");
    for (size_t i = 0; i < list.list->n && !err; i++) {
        if (row.kind && row.list->n == (uint64_t)n_items) {
            err = template_list_append(run, *out, row);
            row.kind = VALUE_ABSENT;
        }
        if (!err && !row.kind)
            err = template_new_list(run, LIST_LIST, &row);
        if (!err)
            err = template_list_append(run, row, list.list->items[i]);
    }
    while (!err && row.kind && template_is_given(&a[2]) && row.list->n < (uint64_t)n_items)
        err = template_list_append(run, row, a[2]);
    return err < 0 || !row.kind ? err : template_list_append(run, *out, row);
}

/* So many columns, the first of them longer by one where it does not come out even. */
int template_filter_slice(run_t *run, const value_t *a, value_t *out)
{
    value_t list, column;
    size_t at = 0;
    int err;
    if ((err = template_want_int(run, &a[1])) < 0 || (err = template_iterate(run, &a[0], &list)) < 0 || (err = new_iterator(run, out)) < 0)
        return err;
    int64_t n_columns = template_as_integer(&a[1]);
    if (n_columns < 1)
        return template_fail(run, "slice() into no columns");
    for (int64_t i = 0; i < n_columns && !err; i++) {
        bool longer = i < (int64_t)(list.list->n % (uint64_t)n_columns);
        size_t n = list.list->n / (uint64_t)n_columns + longer;
        if ((err = template_new_list(run, LIST_LIST, &column)) < 0)
            break;
        for (; n > 0 && !err; n--)
            err = template_list_append(run, column, list.list->items[at++]);
        if (!err && !longer && template_is_given(&a[2]))
            err = template_list_append(run, column, a[2]);
        if (!err)
            err = template_list_append(run, *out, column);
    }
    return err;
}
