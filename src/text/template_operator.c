/* template_operator.c: the binary operators of templates, as Python has them for these kinds of values. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"

#include <string.h>

static int bad_operands(struct template_run *run, const char *op, const struct template_value *a,
                        const struct template_value *b)
{
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return template_undefined(run, a->kind == VALUE_UNDEFINED ? a : b);
    return template_fail(run, "%s does not work for %s and %s", op, template_kind_name(a->kind), template_kind_name(b->kind));
}

/* // and % round to minus infinity, as in Python. */
static int arithmetic(struct template_run *run, enum template_op op, int64_t a, int64_t b, struct template_value *out)
{
    int64_t result = 0;
    bool overflow = false;
    if ((op == TEMPLATE_FLOOR_DIVIDE || op == TEMPLATE_MODULO) && (b == 0 || (a == INT64_MIN && b == -1)))
        return template_fail(run, b ? "a number that does not fit 64 bits" : "division by zero");
    switch (op) {
    case TEMPLATE_ADD:          overflow = __builtin_add_overflow(a, b, &result); break;
    case TEMPLATE_SUBTRACT:     overflow = __builtin_sub_overflow(a, b, &result); break;
    case TEMPLATE_MULTIPLY:     overflow = __builtin_mul_overflow(a, b, &result); break;
    case TEMPLATE_FLOOR_DIVIDE: result = a / b - (a % b && (a < 0) != (b < 0)); break;
    default:                    result = a % b + (a % b && (a < 0) != (b < 0) ? b : 0); break;
    }
    if (overflow)
        return template_fail(run, "a number that does not fit 64 bits");
    *out = template_value_int(result);
    return 0;
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
    int err = template_new_list(run, a->tuple, out);
    for (size_t i = 0; i < a->n && !err; i++)
        err = template_list_append(run, *out, a->items[i]);
    for (size_t i = 0; i < b->n && !err; i++)
        err = template_list_append(run, *out, b->items[i]);
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
        for (size_t i = 0; i < where->list->n && !*found && !err; i++)
            err = equal(run, item, &where->list->items[i], found);
        return err;
    case VALUE_MAP:
        if (item->kind == VALUE_MAP || (item->kind == VALUE_LIST && !item->list->tuple))
            return bad_operands(run, "in", item, where);            /* Python could not hash it */
        *found = item->kind == VALUE_STRING && template_map_find(where->map, item->text.bytes, item->text.n_bytes);
        return template_spend(run, 8 * where->map->n);
    case VALUE_UNDEFINED:
        return 0;
    default:
        return bad_operands(run, "in", item, where);
    }
}

/* -1, 0 or 1 for numbers and for strings, which are ordered by code point and so by byte. */
static int order(struct template_run *run, const struct template_value *a, const struct template_value *b, int *result)
{
    if (template_is_number(a) && template_is_number(b)) {
        *result = (template_as_number(a) > template_as_number(b)) - (template_as_number(a) < template_as_number(b));
        return 0;
    }
    if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
        return bad_operands(run, "a comparison", a, b);
    size_t n = MIN(a->text.n_bytes, b->text.n_bytes);
    *result = memcmp(a->text.bytes, b->text.bytes, n);
    if (!*result)
        *result = (a->text.n_bytes > b->text.n_bytes) - (a->text.n_bytes < b->text.n_bytes);
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
    case TEMPLATE_LESS:          yes = sign < 0; break;
    case TEMPLATE_LESS_EQUAL:    yes = sign <= 0; break;
    case TEMPLATE_GREATER:       yes = sign > 0; break;
    case TEMPLATE_GREATER_EQUAL: yes = sign >= 0; break;
    default: break;
    }
    *out = template_value_bool(yes);
    return err;
}

int template_operate(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out)
{
    static const char *const signs[] = { "+", "-", "*", "//", "%" };
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
        return arithmetic(run, op, template_as_number(a), template_as_number(b), out);
    if (op == TEMPLATE_ADD && a->kind == VALUE_STRING && b->kind == VALUE_STRING)
        return add_texts(run, a, b, out);
    if (op == TEMPLATE_ADD && a->kind == VALUE_LIST && b->kind == VALUE_LIST && a->list->tuple == b->list->tuple)
        return add_lists(run, a->list, b->list, out);
    if (op == TEMPLATE_MULTIPLY && a->kind == VALUE_STRING && template_is_number(b))
        return repeat_text(run, a, template_as_number(b), out);
    if (op == TEMPLATE_MULTIPLY && template_is_number(a) && b->kind == VALUE_STRING)
        return repeat_text(run, b, template_as_number(a), out);
    return bad_operands(run, signs[op], a, b);
}
