/* template_builtin.c: the filters, tests, methods and functions that templates may use: a row each, at the end.
 *
 * They do what jinja2 3.1 and Python do.  Where that would need more than is here (the upper case of letters beyond
 * ASCII, say), the call is an error and no guess. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"
#include "text/unicode.h"

#include <string.h>

typedef struct template_run run_t;
typedef struct template_value value_t;

static bool is_given(const value_t *value)
{
    return value->kind != VALUE_ABSENT && value->kind != VALUE_NONE;
}

/* An argument that must be a string. */
static int want_text(run_t *run, const value_t *value)
{
    if (value->kind == VALUE_STRING)
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "a string is wanted, not a value of type %s", template_kind_name(value->kind));
}

static int want_int(run_t *run, const value_t *value)
{
    if (value->kind == VALUE_INT)
        return 0;
    return template_fail(run, "an integer is wanted, not a value of type %s", template_kind_name(value->kind));
}

/* What filters do to their subject first: everything is text. */
static int soft_text(run_t *run, const value_t *value, value_t *text)
{
    int err = template_to_text(run, value, text);
    return err < 0 ? err : template_spend(run, text->text.n_bytes);
}

/* ---- stripping ---- */

/* Whether the character is white space, or one of `set` when that is given. */
static bool strips(const value_t *set, const char *character, size_t n_bytes, uint32_t code)
{
    if (!is_given(set))
        return template_is_space(code);
    return memmem(set->text.bytes, set->text.n_bytes, character, n_bytes) != NULL;
}

static size_t last_character(const char *bytes, size_t n_bytes)
{
    size_t n = 1;
    while (n < n_bytes && n < 4 && ((unsigned char)bytes[n_bytes - n] & 0xc0) == 0x80)
        n++;
    return n;
}

static int strip(run_t *run, value_t text, const value_t *set, bool left, bool right, value_t *out)
{
    const char *bytes = text.text.bytes;
    size_t start = 0, end = text.text.n_bytes, n;
    uint32_t code;
    int err = is_given(set) ? want_text(run, set) : 0;
    if (err < 0)
        return err;
    for (; left && start < end; start += n) {
        n = utf8_decode(bytes + start, end - start, &code);
        if (!strips(set, bytes + start, n, code))
            break;
    }
    for (; right && end > start; end -= n) {
        n = last_character(bytes + start, end - start);
        if (utf8_decode(bytes + end - n, n, &code) != n || !strips(set, bytes + end - n, n, code))
            break;
    }
    err = template_spend(run, text.text.n_bytes - (end - start));
    *out = template_value_text(bytes + start, end - start);
    return err;
}

static int method_strip(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : strip(run, a[0], &a[1], true, true, out);
}

static int method_lstrip(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : strip(run, a[0], &a[1], true, false, out);
}

static int method_rstrip(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : strip(run, a[0], &a[1], false, true, out);
}

static int filter_trim(run_t *run, const value_t *a, value_t *out)
{
    int err = soft_text(run, &a[0], out);
    return err < 0 ? err : strip(run, *out, &a[1], true, true, out);
}

/* ---- case ---- */

enum text_case { UPPER, LOWER, CAPITALIZED };

static int change_case(run_t *run, const value_t *text, enum text_case to, value_t *out)
{
    char *bytes = template_alloc(run, text->text.n_bytes);
    if (!bytes)
        return ERR_FAILED;
    for (size_t i = 0; i < text->text.n_bytes; i++) {
        char c = text->text.bytes[i];
        bool upper = to == UPPER || (to == CAPITALIZED && i == 0);
        if (c & 0x80)
            return template_fail(run, "changing the case of text beyond ASCII is not supported");
        bytes[i] = (char)(upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c));
    }
    *out = template_value_text(bytes, text->text.n_bytes);
    return 0;
}

static int filter_upper(run_t *run, const value_t *a, value_t *out)
{
    int err = soft_text(run, &a[0], out);
    return err < 0 ? err : change_case(run, out, UPPER, out);
}

static int filter_lower(run_t *run, const value_t *a, value_t *out)
{
    int err = soft_text(run, &a[0], out);
    return err < 0 ? err : change_case(run, out, LOWER, out);
}

static int filter_capitalize(run_t *run, const value_t *a, value_t *out)
{
    int err = soft_text(run, &a[0], out);
    return err < 0 ? err : change_case(run, out, CAPITALIZED, out);
}

static int method_upper(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : change_case(run, &a[0], UPPER, out);
}

static int method_lower(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : change_case(run, &a[0], LOWER, out);
}

static int method_capitalize(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : change_case(run, &a[0], CAPITALIZED, out);
}

/* ---- splitting, joining, replacing, looking ---- */

/* Cuts at white space: no part is empty. */
static int split_words(run_t *run, value_t rest, int64_t most, value_t out)
{
    static const value_t space = { .kind = VALUE_ABSENT };
    int err = strip(run, rest, &space, true, false, &rest);
    for (int64_t cuts = 0; rest.text.n_bytes && !err; cuts++) {
        const char *bytes = rest.text.bytes;
        size_t n = 0, n_code;
        uint32_t code;
        for (; n < rest.text.n_bytes; n += n_code) {
            n_code = utf8_decode(bytes + n, rest.text.n_bytes - n, &code);
            if (template_is_space(code) && (most < 0 || cuts < most))
                break;
        }
        err = template_list_append(run, out, template_value_text(bytes, n));
        if (err == 0)
            err = strip(run, template_value_text(bytes + n, rest.text.n_bytes - n), &space, true, false, &rest);
    }
    return err;
}

static int split_at(run_t *run, const value_t *text, const value_t *separator, int64_t most, value_t out)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes, *cut;
    int err = 0;
    if (!separator->text.n_bytes)
        return template_fail(run, "split() with an empty separator");
    for (int64_t cuts = 0; !err && (most < 0 || cuts < most); cuts++) {
        cut = memmem(at, (size_t)(end - at), separator->text.bytes, separator->text.n_bytes);
        if (!cut)
            break;
        err = template_list_append(run, out, template_value_text(at, (size_t)(cut - at)));
        at = cut + separator->text.n_bytes;
    }
    return err < 0 ? err : template_list_append(run, out, template_value_text(at, (size_t)(end - at)));
}

static int method_split(run_t *run, const value_t *a, value_t *out)
{
    int64_t most = -1;
    int err;
    if ((err = want_text(run, &a[0])) < 0 || (is_given(&a[1]) && (err = want_text(run, &a[1])) < 0) ||
        (a[2].kind != VALUE_ABSENT && (err = want_int(run, &a[2])) < 0) ||
        (err = template_spend(run, a[0].text.n_bytes)) < 0 || (err = template_new_list(run, false, out)) < 0)
        return err;
    if (a[2].kind == VALUE_INT)
        most = a[2].number;
    return is_given(&a[1]) ? split_at(run, &a[0], &a[1], most, *out) : split_words(run, a[0], most, *out);
}

static int filter_join(run_t *run, const value_t *a, value_t *out)
{
    value_t list, between = template_value_text("", 0), part;
    struct buffer all = { 0 };
    int err = template_iterate(run, &a[0], &list);
    if (err == 0 && a[1].kind != VALUE_ABSENT)
        err = soft_text(run, &a[1], &between);
    for (size_t i = 0; err == 0 && i < list.list->n; i++) {
        if (i)
            buffer_add(&all, between.text.bytes, between.text.n_bytes);
        if ((err = soft_text(run, &list.list->items[i], &part)) == 0 && (err = template_spend(run, between.text.n_bytes)) == 0)
            buffer_add(&all, part.text.bytes, part.text.n_bytes);
    }
    if (err == 0)
        err = all.failed ? error_set(ERR_NO_MEMORY, "no memory to render a chat template") :
              template_new_text(run, all.bytes, all.size, out);
    buffer_release(&all);
    return err;
}

static int replace(run_t *run, const value_t *text, const value_t *old, const value_t *new, const value_t *count, value_t *out)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes, *hit;
    struct buffer all = { 0 };
    int64_t left = -1;
    int err;
    if ((err = want_text(run, old)) < 0 || (err = want_text(run, new)) < 0 ||
        (is_given(count) && (err = want_int(run, count)) < 0) || (err = template_spend(run, text->text.n_bytes)) < 0)
        return err;
    if (!old->text.n_bytes)
        return template_fail(run, "replacing the empty string is not supported");
    if (is_given(count))
        left = count->number;
    for (; left && !err && (hit = memmem(at, (size_t)(end - at), old->text.bytes, old->text.n_bytes)); left -= left > 0) {
        err = template_spend(run, new->text.n_bytes);
        if (err == 0) {
            buffer_add(&all, at, (size_t)(hit - at));
            buffer_add(&all, new->text.bytes, new->text.n_bytes);
        }
        at = hit + old->text.n_bytes;
    }
    buffer_add(&all, at, (size_t)(end - at));
    if (err == 0)
        err = all.failed ? error_set(ERR_NO_MEMORY, "no memory to render a chat template") :
              template_new_text(run, all.bytes, all.size, out);
    buffer_release(&all);
    return err;
}

static int method_replace(run_t *run, const value_t *a, value_t *out)
{
    int err = want_text(run, &a[0]);
    return err < 0 ? err : replace(run, &a[0], &a[1], &a[2], &a[3], out);
}

static int filter_replace(run_t *run, const value_t *a, value_t *out)
{
    value_t text;
    int err = soft_text(run, &a[0], &text);
    return err < 0 ? err : replace(run, &text, &a[1], &a[2], &a[3], out);
}

static bool has_end(const value_t *text, const value_t *part, bool at_start)
{
    size_t n = part->text.n_bytes;
    return n <= text->text.n_bytes &&
           !memcmp(at_start ? text->text.bytes : text->text.bytes + text->text.n_bytes - n, part->text.bytes, n);
}

/* The part may be a tuple: any of them. */
static int test_end(run_t *run, const value_t *a, bool at_start, value_t *out)
{
    bool found = false, tuple = a[1].kind == VALUE_LIST && a[1].list->tuple;
    int err = want_text(run, &a[0]);
    if (err == 0 && !tuple && (err = want_text(run, &a[1])) == 0)
        found = has_end(&a[0], &a[1], at_start);
    for (size_t i = 0; err == 0 && tuple && i < a[1].list->n && !found; i++)
        if ((err = want_text(run, &a[1].list->items[i])) == 0 && (err = template_spend(run, a[1].list->items[i].text.n_bytes)) == 0)
            found = has_end(&a[0], &a[1].list->items[i], at_start);
    *out = template_value_bool(found);
    return err;
}

static int method_startswith(run_t *run, const value_t *a, value_t *out)
{
    return test_end(run, a, true, out);
}

static int method_endswith(run_t *run, const value_t *a, value_t *out)
{
    return test_end(run, a, false, out);
}

/* ---- maps ---- */

static int want_map(run_t *run, const value_t *value)
{
    if (value->kind == VALUE_MAP)
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "a dict is wanted, not a value of type %s", template_kind_name(value->kind));
}

static int method_get(run_t *run, const value_t *a, value_t *out)
{
    int err = want_map(run, &a[0]);
    if (err < 0 || (err = template_spend(run, 8 * a[0].map->n)) < 0)
        return err;
    const value_t *found = a[1].kind == VALUE_STRING ? template_map_find(a[0].map, a[1].text.bytes, a[1].text.n_bytes) : NULL;
    *out = found ? *found : a[2].kind != VALUE_ABSENT ? a[2] : (value_t){ .kind = VALUE_NONE };
    return 0;
}

static int method_items(run_t *run, const value_t *a, value_t *out)
{
    int err = want_map(run, &a[0]);
    if (err == 0)
        err = template_new_list(run, false, out);
    for (size_t i = 0; err == 0 && i < a[0].map->n; i++) {
        value_t pair;
        if ((err = template_new_list(run, true, &pair)) == 0 &&
            (err = template_list_append(run, pair, a[0].map->entries[i].key)) == 0 &&
            (err = template_list_append(run, pair, a[0].map->entries[i].value)) == 0)
            err = template_list_append(run, *out, pair);
    }
    return err;
}

static int method_keys(run_t *run, const value_t *a, value_t *out)
{
    int err = want_map(run, &a[0]);
    return err < 0 ? err : template_iterate(run, &a[0], out);
}

static int method_values(run_t *run, const value_t *a, value_t *out)
{
    int err = want_map(run, &a[0]);
    if (err == 0)
        err = template_new_list(run, false, out);
    for (size_t i = 0; err == 0 && i < a[0].map->n; i++)
        err = template_list_append(run, *out, a[0].map->entries[i].value);
    return err;
}

static int filter_items(run_t *run, const value_t *a, value_t *out)
{
    return a[0].kind == VALUE_UNDEFINED ? template_new_list(run, false, out) : method_items(run, a, out);
}

/* ---- sequences ---- */

static int filter_length(run_t *run, const value_t *a, value_t *out)
{
    value_t list;
    int err = template_iterate(run, &a[0], &list);
    if (err == 0)
        *out = template_value_int((int64_t)list.list->n);
    return err;
}

static int filter_list(run_t *run, const value_t *a, value_t *out)
{
    value_t all;
    int err;
    if ((err = template_iterate(run, &a[0], &all)) < 0 || (err = template_new_list(run, false, out)) < 0)
        return err;
    for (size_t i = 0; i < all.list->n && !err; i++)
        err = template_list_append(run, *out, all.list->items[i]);
    return err;
}

static int item_at_end(run_t *run, const value_t *a, bool first, value_t *out)
{
    value_t list;
    int err = template_iterate(run, &a[0], &list);
    if (err < 0)
        return err;
    *out = list.list->n ? list.list->items[first ? 0 : list.list->n - 1] : template_value_undefined("an item of nothing", 18);
    return 0;
}

static int filter_first(run_t *run, const value_t *a, value_t *out)
{
    return item_at_end(run, a, true, out);
}

static int filter_last(run_t *run, const value_t *a, value_t *out)
{
    return item_at_end(run, a, false, out);
}

static int filter_string(run_t *run, const value_t *a, value_t *out)
{
    return soft_text(run, &a[0], out);
}

static int filter_default(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    bool take = a[0].kind == VALUE_UNDEFINED || (template_value_is_true(&a[2]) && !template_value_is_true(&a[0]));
    *out = !take ? a[0] : a[1].kind == VALUE_ABSENT ? template_value_text("", 0) : a[1];
    return 0;
}

/* ---- tests ---- */

static int test_kinds(const value_t *a, unsigned kinds, value_t *out)
{
    *out = template_value_bool(kinds >> a[0].kind & 1);
    return 0;
}

#define KIND_TEST(name, kinds) \
    static int test_##name(run_t *run, const value_t *a, value_t *out) { (void)run; return test_kinds(a, kinds, out); }
KIND_TEST(defined, ~(1u << VALUE_UNDEFINED))
KIND_TEST(undefined, 1u << VALUE_UNDEFINED)
KIND_TEST(none, 1u << VALUE_NONE)
KIND_TEST(string, 1u << VALUE_STRING)
KIND_TEST(mapping, 1u << VALUE_MAP)
KIND_TEST(boolean, 1u << VALUE_BOOL)
KIND_TEST(integer, 1u << VALUE_INT)
KIND_TEST(number, 1u << VALUE_INT | 1u << VALUE_BOOL)
KIND_TEST(sequence, 1u << VALUE_STRING | 1u << VALUE_LIST | 1u << VALUE_MAP | 1u << VALUE_UNDEFINED)
KIND_TEST(iterable, 1u << VALUE_STRING | 1u << VALUE_LIST | 1u << VALUE_MAP | 1u << VALUE_UNDEFINED | 1u << VALUE_LOOP)

static int test_true(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = template_value_bool(a[0].kind == VALUE_BOOL && a[0].flag);
    return 0;
}

static int test_false(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = template_value_bool(a[0].kind == VALUE_BOOL && !a[0].flag);
    return 0;
}

static int remainder_is(run_t *run, const value_t *a, int64_t divisor, int64_t wanted, value_t *out)
{
    int err = want_int(run, &a[0]);
    if (err == 0 && divisor == 0)
        err = template_fail(run, "division by zero");
    if (err == 0)
        *out = template_value_bool(divisor == -1 || (a[0].number % divisor != 0) == (wanted != 0));
    return err;
}

static int test_odd(run_t *run, const value_t *a, value_t *out)
{
    return remainder_is(run, a, 2, 1, out);
}

static int test_even(run_t *run, const value_t *a, value_t *out)
{
    return remainder_is(run, a, 2, 0, out);
}

static int test_divisibleby(run_t *run, const value_t *a, value_t *out)
{
    int err = want_int(run, &a[1]);
    return err < 0 ? err : remainder_is(run, a, a[1].number, 0, out);
}

#define COMPARE_TEST(name, op) \
    static int test_##name(run_t *run, const value_t *a, value_t *out) { return template_compare(run, op, &a[0], &a[1], out); }
COMPARE_TEST(eq, TEMPLATE_EQUAL)
COMPARE_TEST(ne, TEMPLATE_NOT_EQUAL)
COMPARE_TEST(lt, TEMPLATE_LESS)
COMPARE_TEST(le, TEMPLATE_LESS_EQUAL)
COMPARE_TEST(gt, TEMPLATE_GREATER)
COMPARE_TEST(ge, TEMPLATE_GREATER_EQUAL)
COMPARE_TEST(in, TEMPLATE_IN)

/* ---- functions ---- */

static int function_raise_exception(run_t *run, const value_t *a, value_t *out)
{
    int err = template_to_text(run, &a[0], out);
    return err < 0 ? err : error_set(ERR_USAGE, "%.*s", (int)MIN(out->text.n_bytes, (size_t)900), out->text.bytes);
}

static int function_range(run_t *run, const value_t *a, value_t *out)
{
    bool only_stop = a[1].kind == VALUE_ABSENT;
    int err = 0;
    for (size_t i = 0; i < 3 && !err; i++)
        if (a[i].kind != VALUE_ABSENT)
            err = want_int(run, &a[i]);
    if (err < 0 || (err = template_new_list(run, false, out)) < 0)
        return err;
    int64_t at = only_stop ? 0 : a[0].number, stop = only_stop ? a[0].number : a[1].number;
    int64_t step = a[2].kind == VALUE_ABSENT ? 1 : a[2].number;
    if (step == 0)
        return template_fail(run, "range() with a step of 0");
    while ((step > 0 ? at < stop : at > stop) && !err) {
        err = template_list_append(run, *out, template_value_int(at));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return err;
}

/* ---- the tables ---- */

static const struct template_builtin filters[] = {
    { "capitalize", filter_capitalize, 0, { 0 } },
    { "count",      filter_length,     0, { 0 } },
    { "d",          filter_default,    0, { "default_value", "boolean" } },
    { "default",    filter_default,    0, { "default_value", "boolean" } },
    { "first",      filter_first,      0, { 0 } },
    { "items",      filter_items,      0, { 0 } },
    { "join",       filter_join,       0, { "d" } },
    { "last",       filter_last,       0, { 0 } },
    { "length",     filter_length,     0, { 0 } },
    { "list",       filter_list,       0, { 0 } },
    { "lower",      filter_lower,      0, { 0 } },
    { "replace",    filter_replace,    2, { "old", "new", "count" } },
    { "string",     filter_string,     0, { 0 } },
    { "tojson",     template_tojson,   0, { "ensure_ascii", "indent" } },
    { "trim",       filter_trim,       0, { "chars" } },
    { "upper",      filter_upper,      0, { 0 } },
    { 0 },
};

static const struct template_builtin tests[] = {
    { "boolean",     test_boolean,     0, { 0 } },
    { "defined",     test_defined,     0, { 0 } },
    { "divisibleby", test_divisibleby, 1, { "num" } },
    { "eq",          test_eq,          1, { "other" } },
    { "equalto",     test_eq,          1, { "other" } },
    { "even",        test_even,        0, { 0 } },
    { "false",       test_false,       0, { 0 } },
    { "ge",          test_ge,          1, { "other" } },
    { "gt",          test_gt,          1, { "other" } },
    { "in",          test_in,          1, { "seq" } },
    { "integer",     test_integer,     0, { 0 } },
    { "iterable",    test_iterable,    0, { 0 } },
    { "le",          test_le,          1, { "other" } },
    { "lt",          test_lt,          1, { "other" } },
    { "mapping",     test_mapping,     0, { 0 } },
    { "ne",          test_ne,          1, { "other" } },
    { "none",        test_none,        0, { 0 } },
    { "number",      test_number,      0, { 0 } },
    { "odd",         test_odd,         0, { 0 } },
    { "sequence",    test_sequence,    0, { 0 } },
    { "string",      test_string,      0, { 0 } },
    { "true",        test_true,        0, { 0 } },
    { "undefined",   test_undefined,   0, { 0 } },
    { 0 },
};

static const struct template_builtin methods[] = {
    { "capitalize", method_capitalize, 0, { 0 } },
    { "endswith",   method_endswith,   1, { "suffix" } },
    { "get",        method_get,        1, { "key", "default" } },
    { "items",      method_items,      0, { 0 } },
    { "keys",       method_keys,       0, { 0 } },
    { "lower",      method_lower,      0, { 0 } },
    { "lstrip",     method_lstrip,     0, { "chars" } },
    { "replace",    method_replace,    2, { "old", "new", "count" } },
    { "rstrip",     method_rstrip,     0, { "chars" } },
    { "split",      method_split,      0, { "sep", "maxsplit" } },
    { "startswith", method_startswith, 1, { "prefix" } },
    { "strip",      method_strip,      0, { "chars" } },
    { "upper",      method_upper,      0, { 0 } },
    { "values",     method_values,     0, { 0 } },
    { 0 },
};

static const struct template_builtin functions[] = {
    { "raise_exception", function_raise_exception, 1, { "message" } },
    { "range",           function_range,           1, { "start", "stop", "step" } },
    { 0 },
};

static const struct template_builtin *const builtins[] = {
    [TEMPLATE_FILTER] = filters, [TEMPLATE_TEST] = tests, [TEMPLATE_METHOD] = methods, [TEMPLATE_FUNCTION] = functions,
};

const struct template_builtin *template_builtin_find(enum template_builtin_kind kind, const char *name, size_t n_bytes)
{
    const struct template_builtin *row = builtins[kind];
    while (row->name && (strlen(row->name) != n_bytes || memcmp(row->name, name, n_bytes)))
        row++;
    return row->name ? row : NULL;
}

/* All of Python 3.12, so that an attribute is never mistaken for a key or for undefined. */
static const char str_methods[] =
    " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii "
    "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans "
    "partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith "
    "strip swapcase title translate upper zfill ";
static const char list_methods[] = " append clear copy count extend index insert pop remove reverse sort ";
static const char map_methods[] = " clear copy fromkeys get items keys pop popitem setdefault update values ";
static const char loop_methods[] = " cycle changed ";

bool template_is_method_name(enum template_kind kind, const char *name, size_t n_bytes)
{
    const char *names = kind == VALUE_STRING ? str_methods : kind == VALUE_LIST ? list_methods :
                        kind == VALUE_MAP ? map_methods : kind == VALUE_LOOP ? loop_methods : "";
    for (const char *hit = names; n_bytes && (hit = memmem(hit, strlen(hit), name, n_bytes)); hit++)
        if (hit[-1] == ' ' && hit[n_bytes] == ' ' && !memchr(name, ' ', n_bytes))
            return true;
    return false;
}
