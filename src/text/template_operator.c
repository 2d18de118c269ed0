/* template_operator.c: the binary operators of templates, as Python has them for these kinds of values. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"

#include <math.h>
#include <string.h>

static int bad_operands(struct template_run *run, const char *op, const struct template_value *a,
                        const struct template_value *b)
{
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return template_undefined(run, a->kind == VALUE_UNDEFINED ? a : b);
    return template_fail(run, "%s does not work for %s and %s", op, template_kind_name(a->kind), template_kind_name(b->kind));
}

static int too_large(struct template_run *run)
{
    return template_fail(run, "a number that does not fit 64 bits");
}

static int integer_power(struct template_run *run, int64_t base, int64_t exponent, struct template_value *out)
{
    int64_t result = 1;
    if (exponent < 0)
        return template_fail(run, "a power with a negative exponent is not supported");
    for (; exponent; exponent >>= 1) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result))
            return too_large(run);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return too_large(run);
    }
    *out = template_value_int(result);
    return 0;
}

/* // and % round to minus infinity, as in Python; / makes a fraction, always. */
static int integers(struct template_run *run, enum template_op op, int64_t a, int64_t b, struct template_value *out)
{
    int64_t result = 0;
    bool overflow = false, divides = op == TEMPLATE_FLOOR_DIVIDE || op == TEMPLATE_MODULO || op == TEMPLATE_DIVIDE;
    if (divides && b == 0)
        return template_fail(run, "division by zero");
    if (op == TEMPLATE_POWER)
        return integer_power(run, a, b, out);
    if (op == TEMPLATE_DIVIDE) {
        if (a > 1ll << 53 || a < -(1ll << 53) || b > 1ll << 53 || b < -(1ll << 53))
            return template_fail(run, "division of numbers this large is not supported");
        *out = template_value_float((double)a / (double)b);
        return 0;
    }
    if (b == -1 && divides)
        overflow = op == TEMPLATE_FLOOR_DIVIDE && __builtin_sub_overflow(0, a, &result);
    else switch (op) {
    case TEMPLATE_ADD:          overflow = __builtin_add_overflow(a, b, &result); break;
    case TEMPLATE_SUBTRACT:     overflow = __builtin_sub_overflow(a, b, &result); break;
    case TEMPLATE_MULTIPLY:     overflow = __builtin_mul_overflow(a, b, &result); break;
    case TEMPLATE_FLOOR_DIVIDE: result = a / b - (a % b && (a < 0) != (b < 0)); break;
    default:                    result = a % b + (a % b && (a < 0) != (b < 0) ? b : 0); break;
    }
    if (overflow)
        return too_large(run);
    *out = template_value_int(result);
    return 0;
}

/* As CPython's float_divmod(). */
static double float_modulo(double a, double b, double *quotient)
{
    double rest = fmod(a, b), whole = (a - rest) / b;
    if (rest < 0 || rest > 0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            whole -= 1.0;
        }
    } else {
        rest = copysign(0.0, b);
    }
    if (whole < 0 || whole > 0) {
        *quotient = floor(whole);
        if (whole - *quotient > 0.5)
            *quotient += 1.0;
    } else {
        *quotient = copysign(0.0, a / b);
    }
    return rest;
}

static int floats(struct template_run *run, enum template_op op, double a, double b, struct template_value *out)
{
    double result = 0, quotient = 0;
    bool divides = op == TEMPLATE_FLOOR_DIVIDE || op == TEMPLATE_MODULO || op == TEMPLATE_DIVIDE;
    if (divides && !(b < 0 || b > 0 || b != b))
        return template_fail(run, "division by zero");
    switch (op) {
    case TEMPLATE_ADD:          result = a + b; break;
    case TEMPLATE_SUBTRACT:     result = a - b; break;
    case TEMPLATE_MULTIPLY:     result = a * b; break;
    case TEMPLATE_DIVIDE:       result = a / b; break;
    case TEMPLATE_MODULO:       result = float_modulo(a, b, &quotient); break;
    case TEMPLATE_FLOOR_DIVIDE: float_modulo(a, b, &result); break;
    default:                    return template_fail(run, "a power of fractions is not supported");
    }
    *out = template_value_float(result);
    return 0;
}

static int arithmetic(struct template_run *run, enum template_op op, const struct template_value *a, const struct template_value *b,
                      struct template_value *out)
{
    if (template_is_integer(a) && template_is_integer(b))
        return integers(run, op, template_as_integer(a), template_as_integer(b), out);
    return floats(run, op, template_as_float(a), template_as_float(b), out);
}

static int add_texts(struct template_run *run, const struct template_value *a, const struct template_value *b,
                     struct template_value *out)
{
    char *both = template_alloc(run, a->text.n_bytes + b->text.n_bytes);
    if (!both)
        return ERR_FAILED;
    memcpy(both, a->text.bytes, a->text.n_bytes);
    memcpy(both + a->text.n_bytes, b->text.bytes, b->text.n_bytes);
    *out = template_value_text(both, a->text.n_bytes + b->text.n_bytes);
    return 0;
}

static int add_lists(struct template_run *run, const struct template_list *a, const struct template_list *b,
                     struct template_value *out)
{
    int err = template_new_list(run, a->type, out);
    for (size_t i = 0; i < a->n && !err; i++)
        err = template_list_append(run, *out, a->items[i]);
    for (size_t i = 0; i < b->n && !err; i++)
        err = template_list_append(run, *out, b->items[i]);
    return err;
}

static int repeat_list(struct template_run *run, const struct template_list *list, int64_t times, struct template_value *out)
{
    int err = template_new_list(run, list->type, out);
    for (; times > 0 && list->n && !err; times--)
        for (size_t i = 0; i < list->n && !err; i++)
            err = template_list_append(run, *out, list->items[i]);
    return err;
}

static int repeat_text(struct template_run *run, const struct template_value *text, int64_t times, struct template_value *out)
{
    size_t n = text->text.n_bytes, total = 0;
    if (times > 0 && n && __builtin_mul_overflow(n, (size_t)times, &total))
        total = SIZE_MAX;
    char *bytes = template_alloc(run, total);
    if (!bytes)
        return ERR_FAILED;
    for (size_t at = 0; at < total; at += n)
        memcpy(bytes + at, text->text.bytes, n);
    *out = template_value_text(bytes, total);
    return 0;
}

static bool contains(const struct template_value *text, const struct template_value *part)
{
    return !part->text.n_bytes || memmem(text->text.bytes, text->text.n_bytes, part->text.bytes, part->text.n_bytes);
}

static int equal(struct template_run *run, const struct template_value *a, const struct template_value *b, bool *same)
{
    uint64_t budget = TEMPLATE_MAX_WORK - run->work;
    *same = template_value_equal(a, b, &budget);
    run->work = TEMPLATE_MAX_WORK - budget;
    return template_spend(run, 0);
}

/* Takes from the iterator what it looks at. */
static int in_iterator(struct template_run *run, const struct template_value *item, struct template_list *list, bool *found)
{
    int err = 0;
    while (list->at < list->n && !*found && !err)
        err = equal(run, item, &list->items[list->at++], found);
    return err;
}

static int is_in(struct template_run *run, const struct template_value *item, const struct template_value *where, bool *found)
{
    int err = 0;
    *found = false;
    switch (where->kind) {
    case VALUE_STRING:
        if (item->kind != VALUE_STRING)
            return bad_operands(run, "in", item, where);
        *found = contains(where, item);
        return template_spend(run, where->text.n_bytes);
    case VALUE_LIST:
        if (where->list->type == LIST_ITERATOR)
            return in_iterator(run, item, where->list, found);
        for (size_t i = 0; i < where->list->n && !*found && !err; i++)
            err = equal(run, item, &where->list->items[i], found);
        return err;
    case VALUE_MAP:
        if (!template_is_hashable(item))
            return bad_operands(run, "in", item, where);
        *found = item->kind != VALUE_LIST && template_map_find_value(where->map, item);
        return template_spend(run, 8 * where->map->n);
    case VALUE_UNDEFINED:
        return 0;
    default:
        return bad_operands(run, "in", item, where);
    }
}

static int order(struct template_run *run, const struct template_value *a, const struct template_value *b, int *result);

/* Lists are ordered by the first items that are not equal, or else by length. */
static int order_lists(struct template_run *run, const struct template_list *a, const struct template_list *b, int *result)
{
    int err = 0;
    for (size_t i = 0; i < MIN(a->n, b->n); i++) {
        bool same = false;
        if ((err = equal(run, &a->items[i], &b->items[i], &same)) < 0)
            return err;
        if (!same)
            return order(run, &a->items[i], &b->items[i], result);
    }
    *result = (a->n > b->n) - (a->n < b->n);
    return 0;
}

/* -1, 0 or 1 for numbers, lists, and strings, which are ordered by code point and so by byte; 2 when there is no order. */
static int order(struct template_run *run, const struct template_value *a, const struct template_value *b, int *result)
{
    if (template_is_number(a) && template_is_number(b)) {
        *result = template_number_order(a, b);
        return 0;
    }
    if (a->kind == VALUE_LIST && b->kind == VALUE_LIST && a->list->type == b->list->type && a->list->type <= LIST_TUPLE)
        return order_lists(run, a->list, b->list, result);
    if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
        return bad_operands(run, "a comparison", a, b);
    size_t n = MIN(a->text.n_bytes, b->text.n_bytes);
    *result = memcmp(a->text.bytes, b->text.bytes, n);
    *result = *result ? (*result > 0) - (*result < 0) : (a->text.n_bytes > b->text.n_bytes) - (a->text.n_bytes < b->text.n_bytes);
    return template_spend(run, n);
}

int template_compare(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out)
{
    bool yes = false;
    int sign = 0, err = op == TEMPLATE_EQUAL || op == TEMPLATE_NOT_EQUAL ? equal(run, a, b, &yes) :
                        op == TEMPLATE_IN || op == TEMPLATE_NOT_IN ? is_in(run, a, b, &yes) : order(run, a, b, &sign);
    switch (op) {
    case TEMPLATE_NOT_EQUAL:
    case TEMPLATE_NOT_IN:        yes = !yes; break;
    case TEMPLATE_LESS:          yes = sign == -1; break;
    case TEMPLATE_LESS_EQUAL:    yes = sign == -1 || sign == 0; break;
    case TEMPLATE_GREATER:       yes = sign == 1; break;
    case TEMPLATE_GREATER_EQUAL: yes = sign == 1 || sign == 0; break;
    default: break;
    }
    *out = template_value_bool(yes);
    return err;
}

static bool is_sum(const struct template_value *a, const struct template_value *b)
{
    return a->kind == VALUE_LIST && b->kind == VALUE_LIST && a->list->type == b->list->type && a->list->type <= LIST_TUPLE;
}

static int multiply(struct template_run *run, const struct template_value *of, int64_t times, struct template_value *out)
{
    if (of->kind == VALUE_STRING)
        return repeat_text(run, of, times, out);
    return repeat_list(run, of->list, times, out);
}

static bool is_repeatable(const struct template_value *a)
{
    return a->kind == VALUE_STRING || (a->kind == VALUE_LIST && a->list->type <= LIST_TUPLE);
}

int template_operate(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out)
{
    static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "**" };
    struct template_value left, right;
    int err;
    if (op >= TEMPLATE_EQUAL)
        return template_compare(run, op, a, b, out);
    if (op == TEMPLATE_CONCATENATE) {
        if ((err = template_to_text(run, a, &left)) < 0 || (err = template_to_text(run, b, &right)) < 0)
            return err;
        return add_texts(run, &left, &right, out);
    }
    if (template_is_number(a) && template_is_number(b))
        return arithmetic(run, op, a, b, out);
    if ((a->kind == VALUE_STRING && a->markup) || (b->kind == VALUE_STRING && b->markup))
        return template_fail(run, "%s on text that was escaped or is safe is not supported", signs[op]);
    if (op == TEMPLATE_ADD && a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return add_texts(run, a, b, out);
    if (op == TEMPLATE_ADD && is_sum(a, b))
        return add_lists(run, a->list, b->list, out);
    if (op == TEMPLATE_MULTIPLY && is_repeatable(a) && template_is_integer(b))
        return multiply(run, a, template_as_integer(b), out);
    if (op == TEMPLATE_MULTIPLY && template_is_integer(a) && is_repeatable(b))
        return multiply(run, b, template_as_integer(a), out);
    if (op == TEMPLATE_MODULO && a->kind == VALUE_STRING)
        return template_percent(run, a, b, out);
    return bad_operands(run, signs[op], a, b);
}
