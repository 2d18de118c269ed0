/* template_builtin.c: the filters, tests, methods and functions that templates may use: a row each, at the end.
 *
 * They do what jinja2 3.1 and Python do.  Where that would need more than is here, the call is an error and no guess. */
#include "text/template_builtin.h"

#include "base/base.h"
#include "base/error.h"

#include <string.h>
#include <time.h>

/* ---- what all look at their arguments with ---- */

int template_want_text(run_t *run, const value_t *value)
{
    if (value->kind == VALUE_STRING)
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "a string is wanted, not a value of type %s", template_kind_name(value->kind));
}

int template_want_int(run_t *run, const value_t *value)
{
    if (template_is_integer(value))
        return 0;
    if (value->kind == VALUE_UNDEFINED)
        return template_undefined(run, value);
    return template_fail(run, "an integer is wanted, not a value of type %s", template_kind_name(value->kind));
}

int template_int_or(run_t *run, const value_t *value, int64_t absent, int64_t *out)
{
    int err = template_is_given(value) ? template_want_int(run, value) : 0;
    *out = err < 0 || !template_is_given(value) ? absent : template_as_integer(value);
    return err;
}

int template_soft_text(run_t *run, const value_t *value, value_t *text)
{
    int err = template_to_text(run, value, text);
    return err < 0 ? err : template_spend(run, text->text.n_bytes);
}

/* ---- functions ---- */

int template_function_raise_exception(run_t *run, const value_t *a, value_t *out)
{
    int err = template_to_text(run, &a[0], out);
    return err < 0 ? err : error_set(ERR_USAGE, "%.*s", (int)MIN(out->text.n_bytes, (size_t)900), out->text.bytes);
}

int template_function_range(run_t *run, const value_t *a, value_t *out)
{
    bool only_stop = a[1].kind == VALUE_ABSENT;
    int err = 0;
    for (size_t i = 0; i < 3 && !err; i++)
        if (a[i].kind != VALUE_ABSENT)
            err = template_want_int(run, &a[i]);
    if (err < 0 || (err = template_new_list(run, LIST_RANGE, out)) < 0)
        return err;
    int64_t at = only_stop ? 0 : template_as_integer(&a[0]), stop = template_as_integer(&a[only_stop ? 0 : 1]);
    int64_t step = a[2].kind == VALUE_ABSENT ? 1 : template_as_integer(&a[2]);
    if (step == 0)
        return template_fail(run, "range() with a step of 0");
    while ((step > 0 ? at < stop : at > stop) && !err) {
        if (out->list->n == TEMPLATE_MAX_RANGE)
            return template_fail(run, "a range of more than %d numbers", TEMPLATE_MAX_RANGE);
        err = template_list_append(run, *out, template_value_int(at));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return err;
}

/* dict(map, name=value ...), also of pairs. */
int template_function_dict(run_t *run, const value_t *a, value_t *out)
{
    const struct template_list *list = a[0].list;
    value_t pairs, pair;
    int err = template_new_map(run, out);
    if (list->n > 1)
        return template_fail(run, "dict() takes one argument without a name");
    if (!err && list->n && list->items[0].kind == VALUE_MAP)
        for (size_t i = 0; i < list->items[0].map->n && !err; i++)
            err = template_map_put(run, *out, &list->items[0].map->entries[i].key, list->items[0].map->entries[i].value);
    else if (!err && list->n && (err = template_iterate(run, &list->items[0], &pairs)) == 0)
        for (size_t i = 0; i < pairs.list->n && !err; i++)
            if ((err = template_iterate(run, &pairs.list->items[i], &pair)) == 0)
                err = pair.list->n == 2 ? template_map_put(run, *out, &pair.list->items[0], pair.list->items[1]) :
                      template_fail(run, "dict() of what is no pair");
    for (size_t i = 0; !err && a[1].kind == VALUE_MAP && i < a[1].map->n; i++)
        err = template_map_put(run, *out, &a[1].map->entries[i].key, a[1].map->entries[i].value);
    return err;
}

int template_function_namespace(run_t *run, const value_t *a, value_t *out)
{
    int err = template_function_dict(run, a, out);
    out->kind = err < 0 ? VALUE_ABSENT : VALUE_NAMESPACE;
    return err;
}

/* Python's directives are C's, but for microseconds, which are taken for none, and the zone of a time that has none. */
int template_function_strftime_now(run_t *run, const value_t *a, value_t *out)
{
    struct buffer format = { 0 };
    struct tm now;
    char text[1024];
    time_t clock = time(NULL);
    int err = template_want_text(run, &a[0]);
    if (err < 0)
        return err;
    if (run->now)
        now = *run->now;
    else if (!localtime_r(&clock, &now))
        return template_fail(run, "the time is not known");
    for (size_t i = 0; i < a[0].text.n_bytes; i++) {
        char c = a[0].text.bytes[i], next = i + 1 < a[0].text.n_bytes ? a[0].text.bytes[i + 1] : 0;
        bool ours = c == '%' && next && strchr("fzZ", next);
        if (ours)
            buffer_add_text(&format, next == 'f' ? "000000" : "");
        else
            buffer_add(&format, &c, 1);
        if (c == '%' && !ours && next)
            buffer_add(&format, &next, 1);
        i += c == '%' && next;
    }
    buffer_add_text(&format, " ");              /* so that 0 is an error, and no empty text */
    size_t n = format.failed ? 0 : strftime(text, sizeof text, format.bytes, &now);
    buffer_release(&format);
    if (!n)
        return template_fail(run, "strftime_now() with a format this long is not supported");
    return template_new_text(run, text, n - 1, out);
}

/* ---- the tables ---- */

static const struct template_builtin filters[] = {
    { "abs",        template_filter_abs,        0, { 0 } },
    { "batch",      template_filter_batch,      1, { "linecount", "fill_with" } },
    { "capitalize", template_filter_capitalize, 0, { 0 } },
    { "center",     template_filter_center,     0, { "width" } },
    { "count",      template_filter_length,     0, { 0 } },
    { "d",          template_filter_default,    0, { "default_value", "boolean" } },
    { "default",    template_filter_default,    0, { "default_value", "boolean" } },
    { "dictsort",   template_filter_dictsort,   0, { "case_sensitive", "by", "reverse" } },
    { "e",          template_filter_escape,     0, { 0 } },
    { "escape",     template_filter_escape,     0, { 0 } },
    { "first",      template_filter_first,      0, { 0 } },
    { "float",      template_filter_float,      0, { "default" } },
    { "format",     template_filter_format,     0, { "*" } },
    { "groupby",    template_filter_groupby,    1, { "attribute", "default", "case_sensitive" } },
    { "indent",     template_filter_indent,     0, { "width", "first", "blank" } },
    { "int",        template_filter_int,        0, { "default", "base" } },
    { "items",      template_filter_items,      0, { 0 } },
    { "join",       template_filter_join,       0, { "d", "attribute" } },
    { "last",       template_filter_last,       0, { 0 } },
    { "length",     template_filter_length,     0, { 0 } },
    { "list",       template_filter_list,       0, { 0 } },
    { "lower",      template_filter_lower,      0, { 0 } },
    { "map",        template_filter_map,        0, { "*" } },
    { "max",        template_filter_max,        0, { "case_sensitive", "attribute" } },
    { "min",        template_filter_min,        0, { "case_sensitive", "attribute" } },
    { "reject",     template_filter_reject,     0, { "*" } },
    { "rejectattr", template_filter_rejectattr, 0, { "*" } },
    { "replace",    template_filter_replace,    2, { "old", "new", "count" } },
    { "reverse",    template_filter_reverse,    0, { 0 } },
    { "round",      template_filter_round,      0, { "precision", "method" } },
    { "safe",       template_filter_safe,       0, { 0 } },
    { "select",     template_filter_select,     0, { "*" } },
    { "selectattr", template_filter_selectattr, 0, { "*" } },
    { "slice",      template_filter_slice,      1, { "slices", "fill_with" } },
    { "sort",       template_filter_sort,       0, { "reverse", "case_sensitive", "attribute" } },
    { "string",     template_filter_string,     0, { 0 } },
    { "sum",        template_filter_sum,        0, { "attribute", "start" } },
    { "title",      template_filter_title,      0, { 0 } },
    { "tojson",     template_filter_tojson,     0, { "ensure_ascii", "indent", "separators", "sort_keys" } },
    { "trim",       template_filter_trim,       0, { "chars" } },
    { "truncate",   template_filter_truncate,   0, { "length", "killwords", "end", "leeway" } },
    { "unique",     template_filter_unique,     0, { "case_sensitive", "attribute" } },
    { "upper",      template_filter_upper,      0, { 0 } },
    { "wordcount",  template_filter_wordcount,  0, { 0 } },
    { 0 },
};

static const struct template_builtin tests[] = {
    { "==",          template_test_eq,           1, { "/other" } },
    { "!=",          template_test_ne,           1, { "/other" } },
    { "<",           template_test_lt,           1, { "/other" } },
    { "<=",          template_test_le,           1, { "/other" } },
    { ">",           template_test_gt,           1, { "/other" } },
    { ">=",          template_test_ge,           1, { "/other" } },
    { "boolean",     template_test_boolean,     0, { 0 } },
    { "callable",    template_test_callable,    0, { 0 } },
    { "defined",     template_test_defined,     0, { 0 } },
    { "divisibleby", template_test_divisibleby, 1, { "num" } },
    { "eq",          template_test_eq,          1, { "/other" } },
    { "equalto",     template_test_eq,          1, { "/other" } },
    { "even",        template_test_even,        0, { 0 } },
    { "false",       template_test_false,       0, { 0 } },
    { "float",       template_test_float,       0, { 0 } },
    { "ge",          template_test_ge,          1, { "/other" } },
    { "greaterthan", template_test_gt,          1, { "/other" } },
    { "gt",          template_test_gt,          1, { "/other" } },
    { "in",          template_test_in,          1, { "seq" } },
    { "integer",     template_test_integer,     0, { 0 } },
    { "iterable",    template_test_iterable,    0, { 0 } },
    { "le",          template_test_le,          1, { "/other" } },
    { "lessthan",    template_test_lt,          1, { "/other" } },
    { "lower",       template_test_lower,       0, { 0 } },
    { "lt",          template_test_lt,          1, { "/other" } },
    { "mapping",     template_test_mapping,     0, { 0 } },
    { "ne",          template_test_ne,          1, { "/other" } },
    { "none",        template_test_none,        0, { 0 } },
    { "number",      template_test_number,      0, { 0 } },
    { "odd",         template_test_odd,         0, { 0 } },
    { "sameas",      template_test_sameas,      1, { "other" } },
    { "sequence",    template_test_sequence,    0, { 0 } },
    { "string",      template_test_string,      0, { 0 } },
    { "true",        template_test_true,        0, { 0 } },
    { "undefined",   template_test_undefined,   0, { 0 } },
    { "upper",       template_test_upper,       0, { 0 } },
    { 0 },
};

static const struct template_builtin str_methods[] = {
    { "capitalize",   template_method_capitalize,   0, { 0 } },
    { "center",       template_method_center,       1, { "/width", "/fillchar" } },
    { "count",        template_method_count,        1, { "/sub", "/start", "/end" } },
    { "endswith",     template_method_endswith,     1, { "/suffix" } },
    { "find",         template_method_find,         1, { "/sub", "/start", "/end" } },
    { "format",       template_method_format,       0, { "*" } },
    { "index",        template_method_index,        1, { "/sub", "/start", "/end" } },
    { "isalnum",      template_method_isalnum,      0, { 0 } },
    { "isalpha",      template_method_isalpha,      0, { 0 } },
    { "isdigit",      template_method_isdigit,      0, { 0 } },
    { "islower",      template_method_islower,      0, { 0 } },
    { "isspace",      template_method_isspace,      0, { 0 } },
    { "isupper",      template_method_isupper,      0, { 0 } },
    { "join",         template_method_join,         1, { "/iterable" } },
    { "ljust",        template_method_ljust,        1, { "/width", "/fillchar" } },
    { "lower",        template_method_lower,        0, { 0 } },
    { "lstrip",       template_method_lstrip,       0, { "/chars" } },
    { "partition",    template_method_partition,    1, { "/sep" } },
    { "removeprefix", template_method_removeprefix, 1, { "/prefix" } },
    { "removesuffix", template_method_removesuffix, 1, { "/suffix" } },
    { "replace",      template_method_replace,      2, { "/old", "/new", "/count" } },
    { "rfind",        template_method_rfind,        1, { "/sub", "/start", "/end" } },
    { "rindex",       template_method_rindex,       1, { "/sub", "/start", "/end" } },
    { "rjust",        template_method_rjust,        1, { "/width", "/fillchar" } },
    { "rpartition",   template_method_rpartition,   1, { "/sep" } },
    { "rsplit",       template_method_rsplit,       0, { "sep", "maxsplit" } },
    { "rstrip",       template_method_rstrip,       0, { "/chars" } },
    { "split",        template_method_split,        0, { "sep", "maxsplit" } },
    { "splitlines",   template_method_splitlines,   0, { "keepends" } },
    { "startswith",   template_method_startswith,   1, { "/prefix" } },
    { "strip",        template_method_strip,        0, { "/chars" } },
    { "title",        template_method_title,        0, { 0 } },
    { "upper",        template_method_upper,        0, { 0 } },
    { "zfill",        template_method_zfill,        1, { "/width" } },
    { 0 },
};

static const struct template_builtin list_methods[] = {
    { "count", template_list_method_count, 1, { "/value" } },
    { "index", template_list_method_index, 1, { "/value" } },
    { 0 },
};

static const struct template_builtin map_methods[] = {
    { "copy",   template_method_copy,   0, { 0 } },
    { "get",    template_method_get,    1, { "/key", "/default" } },
    { "items",  template_method_items,  0, { 0 } },
    { "keys",   template_method_keys,   0, { 0 } },
    { "values", template_method_values, 0, { 0 } },
    { 0 },
};

static const struct template_builtin loop_methods[] = {
    { "changed", template_method_changed, 0, { "*" } },
    { "cycle",   template_method_cycle,   0, { "*" } },
    { 0 },
};

static const struct template_builtin functions[] = {
    { "dict",            template_function_dict,            0, { "*" } },
    { "namespace",       template_function_namespace,       0, { "*" } },
    { "raise_exception", template_function_raise_exception, 1, { "message" } },
    { "range",           template_function_range,           1, { "/start", "/stop", "/step" } },
    { "strftime_now",    template_function_strftime_now,    1, { "format" } },
    { 0 },
};

static const struct template_builtin *find(const struct template_builtin *row, const char *name, size_t n_bytes)
{
    while (row->name && (strlen(row->name) != n_bytes || memcmp(row->name, name, n_bytes)))
        row++;
    return row->name ? row : NULL;
}

const struct template_builtin *template_builtin_find(enum template_builtin_kind kind, const char *name, size_t n_bytes)
{
    static const struct template_builtin *const methods[] = { str_methods, map_methods, list_methods, loop_methods };
    const struct template_builtin *found = NULL;
    if (kind != TEMPLATE_METHOD)
        return find(kind == TEMPLATE_FILTER ? filters : kind == TEMPLATE_TEST ? tests : functions, name, n_bytes);
    for (size_t i = 0; i < COUNT_OF(methods) && !found; i++)
        found = find(methods[i], name, n_bytes);
    return found;
}

const struct template_builtin *template_find_method(const struct template_value *of, const char *name, size_t n_bytes)
{
    switch (of->kind) {
    case VALUE_STRING: return find(str_methods, name, n_bytes);
    case VALUE_MAP:    return find(map_methods, name, n_bytes);
    case VALUE_LIST:   return of->list->type <= LIST_RANGE ? find(list_methods, name, n_bytes) : NULL;
    case VALUE_LOOP:   return find(loop_methods, name, n_bytes);
    default:           return NULL;
    }
}

/* All of Python 3.12, so that an attribute is never mistaken for a key or for undefined. */
static const char *names_of(const struct template_value *of)
{
    switch (of->kind) {
    case VALUE_STRING:
        return " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii "
               "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans "
               "partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith "
               "strip swapcase title translate upper zfill ";
    case VALUE_INT:
    case VALUE_BOOL:
        return " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes ";
    case VALUE_FLOAT: return " as_integer_ratio conjugate fromhex hex imag is_integer real ";
    case VALUE_MAP:   return " copy fromkeys get items keys values ";
    case VALUE_LOOP:  return " cycle changed ";
    case VALUE_MACRO: return " arguments caller catch_kwargs catch_varargs explicit_caller ";
    case VALUE_LIST:
        return of->list->type == LIST_LIST ? " copy count index " : of->list->type == LIST_TUPLE ? " count index " :
               of->list->type == LIST_RANGE ? " count index start step stop " :
               of->list->type == LIST_ITERATOR ? " close send throw " : " isdisjoint mapping ";
    default:          return "";
    }
}

/* What would change its object: the sandbox makes it undefined. */
bool template_is_unsafe_name(const struct template_value *of, const char *name, size_t n_bytes)
{
    static const char *const of_map[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
    static const char *const of_list[] = { "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL };
    bool list = of->kind == VALUE_LIST && of->list->type == LIST_LIST;
    for (const char *const *one = of->kind == VALUE_MAP ? of_map : list ? of_list : NULL; one && *one; one++)
        if (strlen(*one) == n_bytes && !memcmp(*one, name, n_bytes))
            return true;
    return false;
}

bool template_is_changing_name(const char *name, size_t n_bytes)
{
    struct template_map map = { 0 };
    struct template_list list = { .type = LIST_LIST };
    return template_is_unsafe_name(&(value_t){ .kind = VALUE_MAP, .map = &map }, name, n_bytes) ||
           template_is_unsafe_name(&(value_t){ .kind = VALUE_LIST, .list = &list }, name, n_bytes);
}

bool template_is_method_name(const struct template_value *of, const char *name, size_t n_bytes)
{
    const char *names = names_of(of);
    for (const char *hit = names; n_bytes && (hit = memmem(hit, strlen(hit), name, n_bytes)); hit++)
        if (hit > names && hit[-1] == ' ' && hit[n_bytes] == ' ' && !memchr(name, ' ', n_bytes))
            return true;
    return false;
}
