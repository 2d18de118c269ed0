/* template_test.c: what may stand behind `is`. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"


static int test_kinds(const value_t *a, unsigned kinds, value_t *out)
{
    *out = template_value_bool(kinds >> a[0].kind & 1);
    return 0;
}

#define KIND(kind) (1u << VALUE_##kind)
#define KIND_TEST(name, kinds) \
    int template_test_##name(run_t *run, const value_t *a, value_t *out) { (void)run; return test_kinds(a, kinds, out); }
KIND_TEST(defined, ~KIND(UNDEFINED))
KIND_TEST(undefined, KIND(UNDEFINED))
KIND_TEST(none, KIND(NONE))
KIND_TEST(string, KIND(STRING))
KIND_TEST(mapping, KIND(MAP))
KIND_TEST(boolean, KIND(BOOL))
KIND_TEST(integer, KIND(INT))
KIND_TEST(float, KIND(FLOAT))
KIND_TEST(number, KIND(INT) | KIND(BOOL) | KIND(FLOAT))
KIND_TEST(iterable, KIND(STRING) | KIND(LIST) | KIND(MAP) | KIND(UNDEFINED) | KIND(LOOP))
KIND_TEST(callable, KIND(FUNCTION) | KIND(MACRO) | KIND(LOOP) | KIND(UNDEFINED))

/* What has a length and an index: views and iterators have not. */
int template_test_sequence(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = template_value_bool(a[0].kind == VALUE_STRING || a[0].kind == VALUE_MAP || a[0].kind == VALUE_UNDEFINED ||
                               (a[0].kind == VALUE_LIST && a[0].list->type <= LIST_RANGE));
    return 0;
}

int template_test_true(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = template_value_bool(a[0].kind == VALUE_BOOL && a[0].flag);
    return 0;
}

int template_test_false(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = template_value_bool(a[0].kind == VALUE_BOOL && !a[0].flag);
    return 0;
}

/* `is`: for what is no object of its own here, only the constants are sure. */
int template_test_sameas(run_t *run, const value_t *a, value_t *out)
{
    bool same = a[0].kind == a[1].kind;
    switch (a[0].kind) {
    case VALUE_NONE:      break;
    case VALUE_BOOL:      same = same && a[0].flag == a[1].flag; break;
    case VALUE_LIST:      same = same && a[0].list == a[1].list; break;
    case VALUE_MAP:
    case VALUE_NAMESPACE: same = same && a[0].map == a[1].map; break;
    case VALUE_LOOP:      same = same && a[0].loop == a[1].loop; break;
    default:
        if (same)
            return template_fail(run, "sameas of two values of type %s is not supported", template_kind_name(a[0].kind));
    }
    *out = template_value_bool(same);
    return 0;
}

static int remainder_is(run_t *run, const value_t *a, const value_t *divisor, int64_t wanted, value_t *out)
{
    const value_t want = template_value_int(wanted);
    value_t rest;
    int err = template_operate(run, TEMPLATE_MODULO, &a[0], divisor, &rest);
    return err < 0 ? err : template_compare(run, TEMPLATE_EQUAL, &rest, &want, out);
}

int template_test_odd(run_t *run, const value_t *a, value_t *out)
{
    const value_t two = template_value_int(2);
    return remainder_is(run, a, &two, 1, out);
}

int template_test_even(run_t *run, const value_t *a, value_t *out)
{
    const value_t two = template_value_int(2);
    return remainder_is(run, a, &two, 0, out);
}

int template_test_divisibleby(run_t *run, const value_t *a, value_t *out)
{
    return remainder_is(run, a, &a[1], 0, out);
}

int template_test_lower(run_t *run, const value_t *a, value_t *out)
{
    value_t text;
    int err = template_soft_text(run, &a[0], &text);
    return err < 0 ? err : template_method_islower(run, &text, out);
}

int template_test_upper(run_t *run, const value_t *a, value_t *out)
{
    value_t text;
    int err = template_soft_text(run, &a[0], &text);
    return err < 0 ? err : template_method_isupper(run, &text, out);
}

#define COMPARE_TEST(name, op) \
    int template_test_##name(run_t *run, const value_t *a, value_t *out) { return template_compare(run, op, &a[0], &a[1], out); }
COMPARE_TEST(eq, TEMPLATE_EQUAL)
COMPARE_TEST(ne, TEMPLATE_NOT_EQUAL)
COMPARE_TEST(lt, TEMPLATE_LESS)
COMPARE_TEST(le, TEMPLATE_LESS_EQUAL)
COMPARE_TEST(gt, TEMPLATE_GREATER)
COMPARE_TEST(ge, TEMPLATE_GREATER_EQUAL)
COMPARE_TEST(in, TEMPLATE_IN)
