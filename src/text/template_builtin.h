/* template_builtin.h: what the files of filters, tests and methods share: the functions that the tables of
 * template_builtin.c name, and how they look at their arguments. */
#ifndef STOA_TEXT_TEMPLATE_BUILTIN_H
#define STOA_TEXT_TEMPLATE_BUILTIN_H

#include "text/template_node.h"

typedef struct template_run run_t;
typedef struct template_value value_t;

static inline bool template_is_given(const value_t *value)
{
    return value->kind != VALUE_ABSENT && value->kind != VALUE_NONE;
}

/* An argument that must be a string, or an integer; an absent integer is left as `absent`. */
int template_want_text(run_t *run, const value_t *value);
int template_want_int(run_t *run, const value_t *value);
int template_int_or(run_t *run, const value_t *value, int64_t absent, int64_t *out);
/* What filters do to their subject first: everything is text. */
int template_soft_text(run_t *run, const value_t *value, value_t *text);

/* Stripping, and a change of case, which filters and methods have in common. */
int template_strip(run_t *run, value_t text, const value_t *set, bool left, bool right, value_t *out);
int template_to_upper(run_t *run, const value_t *text, value_t *out);
int template_to_lower(run_t *run, const value_t *text, value_t *out);
int template_capitalize(run_t *run, const value_t *text, value_t *out);
int template_replace(run_t *run, const value_t *text, const value_t *old, const value_t *new, int64_t most, value_t *out);
int template_join(run_t *run, const value_t *list, const value_t *between, value_t *out);
int template_split_lines(run_t *run, const value_t *text, bool keep_ends, value_t *out);
int template_center(run_t *run, const value_t *text, int64_t width, value_t *out);
/* "%s" % value and "{}".format(value). */
int template_percent(run_t *run, const value_t *format, const value_t *values, value_t *out);
int template_format(run_t *run, const value_t *format, const struct template_arguments *values, value_t *out);

template_builtin_fn template_filter_abs, template_filter_batch, template_filter_capitalize, template_filter_center,
    template_filter_length, template_filter_default, template_filter_dictsort, template_filter_escape,
    template_filter_first, template_filter_float, template_filter_format, template_filter_groupby,
    template_filter_indent, template_filter_int, template_filter_items, template_filter_join, template_filter_last,
    template_filter_list, template_filter_lower, template_filter_map, template_filter_max, template_filter_min,
    template_filter_reject, template_filter_rejectattr, template_filter_replace, template_filter_reverse,
    template_filter_round, template_filter_safe, template_filter_select, template_filter_selectattr,
    template_filter_slice, template_filter_sort, template_filter_string, template_filter_sum, template_filter_title,
    template_filter_tojson, template_filter_trim, template_filter_truncate, template_filter_unique,
    template_filter_upper, template_filter_wordcount;
template_builtin_fn template_test_boolean, template_test_callable, template_test_defined, template_test_divisibleby,
    template_test_eq, template_test_even, template_test_false, template_test_float, template_test_ge, template_test_gt,
    template_test_in, template_test_integer, template_test_iterable, template_test_le, template_test_lt,
    template_test_lower, template_test_mapping, template_test_ne, template_test_none, template_test_number,
    template_test_odd, template_test_sameas, template_test_sequence, template_test_string, template_test_true,
    template_test_undefined, template_test_upper;
template_builtin_fn template_method_capitalize, template_method_center, template_method_count, template_method_endswith,
    template_method_find, template_method_format, template_method_index, template_method_isalnum,
    template_method_isalpha, template_method_isdigit, template_method_islower, template_method_isspace,
    template_method_isupper, template_method_join, template_method_ljust, template_method_lower, template_method_lstrip,
    template_method_partition, template_method_removeprefix, template_method_removesuffix, template_method_replace,
    template_method_rfind, template_method_rindex, template_method_rjust, template_method_rpartition,
    template_method_rsplit, template_method_rstrip, template_method_split, template_method_splitlines,
    template_method_startswith, template_method_strip, template_method_title, template_method_upper,
    template_method_zfill, template_method_copy, template_method_get, template_method_items, template_method_keys,
    template_method_values, template_method_changed, template_method_cycle;
template_builtin_fn template_list_method_count, template_list_method_index;
template_builtin_fn template_function_dict, template_function_namespace, template_function_raise_exception,
    template_function_range, template_function_strftime_now;

#endif
