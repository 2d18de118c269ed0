/* template_eval.c: runs the nodes of a template.
 *
 * Expressions give a value, statements write to `out`.  What Python would raise is an error of the rendering; what is
 * undefined is a value that prints as nothing, as in jinja2, and becomes an error where it is used for more. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STEP_COST 16                            /* one step costs as much as so many bytes ... */
#define MAX_WORK (10000000ull * STEP_COST)      /* ... and so many may be spent: ten million steps, or 160 MB */

/* Variables: of the whole template, or of one pass of a loop. */
struct template_scope {
    struct template_value variables;            /* a map */
    struct template_scope *outer;
};

/* What a statement says to the loop around it; errors are below 0. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static int eval(struct template_run *run, const struct template_node *node, struct template_value *out);
static int run_body(struct template_run *run, const struct template_node *first);

int template_fail(struct template_run *run, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(ERR_FAILED, "chat template, line %u: %s", run->line, what);
}

static int no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory to render a chat template");
}

int template_spend(struct template_run *run, size_t n_bytes)
{
    if (n_bytes > MAX_WORK || (run->work += STEP_COST + n_bytes) > MAX_WORK)
        return template_fail(run, "takes too many steps or too much memory");
    return 0;
}

char *template_alloc(struct template_run *run, size_t n_bytes)
{
    char *bytes = NULL;
    if (template_spend(run, n_bytes) == 0 && !(bytes = arena_alloc(&run->arena, n_bytes + 1)))
        no_memory();
    return bytes;
}

int template_new_text(struct template_run *run, const char *bytes, size_t n_bytes, struct template_value *out)
{
    char *copy = template_alloc(run, n_bytes);
    if (!copy)
        return ERR_FAILED;
    if (n_bytes)
        memcpy(copy, bytes, n_bytes);
    *out = template_value_text(copy, n_bytes);
    return 0;
}

int template_new_list(struct template_run *run, bool tuple, struct template_value *out)
{
    int err = template_spend(run, sizeof(struct template_list));
    *out = template_value_list(&run->arena, tuple);
    return err < 0 ? err : out->kind == VALUE_ABSENT ? no_memory() : 0;
}

/* The room that an item takes, and what growing leaves behind. */
#define ITEM_COST (3 * sizeof(struct template_entry))

int template_list_append(struct template_run *run, struct template_value list, struct template_value item)
{
    int err = template_spend(run, ITEM_COST);
    if (err < 0)
        return err;
    if (template_value_depth(&item) >= TEMPLATE_MAX_DEPTH)
        return template_fail(run, "a list nested more than %d deep", TEMPLATE_MAX_DEPTH);
    return template_list_add(&run->arena, list, item) ? 0 : no_memory();
}

static int map_put(struct template_run *run, struct template_value map, const struct template_value *key, struct template_value item)
{
    int err = template_spend(run, ITEM_COST + 8 * map.map->n);
    if (err < 0)
        return err;
    if (key->kind != VALUE_STRING)
        return template_fail(run, "a dict whose keys are no strings is not supported");
    if (template_value_depth(&item) >= TEMPLATE_MAX_DEPTH)
        return template_fail(run, "a dict nested more than %d deep", TEMPLATE_MAX_DEPTH);
    return template_map_set(&run->arena, map, key->text.bytes, key->text.n_bytes, item) ? 0 : no_memory();
}

int template_iterate(struct template_run *run, const struct template_value *value, struct template_value *list)
{
    const struct template_value of = *value;            /* `list` may be the same place */
    int err = 0;
    if (of.kind == VALUE_LIST) {
        *list = of;
        return 0;
    }
    if (of.kind != VALUE_MAP && of.kind != VALUE_STRING && of.kind != VALUE_UNDEFINED)
        return template_fail(run, "a value of type %s is not iterable", template_kind_name(of.kind));
    err = template_new_list(run, false, list);
    if (of.kind == VALUE_MAP)
        for (size_t i = 0; i < of.map->n && !err; i++)
            err = template_list_append(run, *list, of.map->entries[i].key);
    if (of.kind == VALUE_STRING)
        for (size_t at = 0, n; at < of.text.n_bytes && !err; at += n) {
            uint32_t code;
            n = utf8_decode(of.text.bytes + at, of.text.n_bytes - at, &code);
            err = template_list_append(run, *list, template_value_text(of.text.bytes + at, n));
        }
    return err;
}

int template_to_text(struct template_run *run, const struct template_value *value, struct template_value *text)
{
    char digits[32];
    switch (value->kind) {
    case VALUE_STRING:    *text = *value; return 0;
    case VALUE_UNDEFINED: *text = template_value_text("", 0); return 0;
    case VALUE_NONE:      *text = template_value_text("None", 4); return 0;
    case VALUE_BOOL:      *text = value->flag ? template_value_text("True", 4) : template_value_text("False", 5); return 0;
    case VALUE_INT:
        snprintf(digits, sizeof digits, "%" PRId64, value->number);
        return template_new_text(run, digits, strlen(digits), text);
    default:
        return template_fail(run, "printing a value of type %s is not supported", template_kind_name(value->kind));
    }
}

/* ---- names and attributes ---- */

static int undefined(struct template_run *run, const struct template_value *value)
{
    return template_fail(run, "\"%.*s\" is undefined", (int)MIN(value->text.n_bytes, (size_t)80), value->text.bytes);
}

static struct template_value *find_variable(struct template_run *run, const struct template_value *name)
{
    struct template_value *found = NULL;
    for (struct template_scope *scope = run->scope; scope && !found; scope = scope->outer)
        found = template_map_find(scope->variables.map, name->text.bytes, name->text.n_bytes);
    return found;
}

static int eval_name(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    const struct template_value *name = &node->value, *found = find_variable(run, name);
    if (!found && (template_builtin_find(TEMPLATE_FUNCTION, name->text.bytes, name->text.n_bytes) ||
                   template_text_equal(name, "namespace")))
        return template_fail(run, "a function that is not called is not supported");
    *out = found ? *found : template_value_undefined(name->text.bytes, name->text.n_bytes);
    return 0;
}

static void loop_attribute(const struct template_loop *loop, const struct template_value *name, struct template_value *out)
{
    size_t i = loop->index0, n = loop->list->n;
    const struct { const char *name; struct template_value value; } attributes[] = {
        { "index", template_value_int((int64_t)i + 1) },        { "index0", template_value_int((int64_t)i) },
        { "revindex", template_value_int((int64_t)(n - i)) },   { "revindex0", template_value_int((int64_t)(n - i) - 1) },
        { "first", template_value_bool(i == 0) },               { "last", template_value_bool(i + 1 == n) },
        { "length", template_value_int((int64_t)n) },
        { "depth", template_value_int(1) },                     { "depth0", template_value_int(0) },
        { "previtem", i > 0 ? loop->list->items[i - 1] : *out },
        { "nextitem", i + 1 < n ? loop->list->items[i + 1] : *out },
    };
    for (size_t k = 0; k < COUNT_OF(attributes); k++)
        if (template_text_equal(name, attributes[k].name)) {
            *out = attributes[k].value;
            return;
        }
}

/* A method goes before a key, as getattr() does in Python; with brackets the key goes first. */
static int get_attribute(struct template_run *run, const struct template_value *of, const struct template_value *name,
                         bool brackets, struct template_value *out)
{
    const struct template_value *found = NULL;
    bool keys = of->kind == VALUE_MAP || of->kind == VALUE_NAMESPACE;
    *out = template_value_undefined(name->text.bytes, name->text.n_bytes);
    if (of->kind == VALUE_UNDEFINED)
        return undefined(run, of);
    if (of->kind == VALUE_LOOP)
        loop_attribute(of->loop, name, out);
    if (keys)
        found = template_map_find(of->map, name->text.bytes, name->text.n_bytes);
    if ((!found || !brackets) && template_is_method_name(of->kind, name->text.bytes, name->text.n_bytes))
        return template_fail(run, "the method \"%.*s\" of a %s that is not called is not supported",
                             (int)MIN(name->text.n_bytes, (size_t)40), name->text.bytes, template_kind_name(of->kind));
    if (found)
        *out = *found;
    return keys ? template_spend(run, 8 * of->map->n) : 0;
}

static int eval_attribute(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value of;
    int err = eval(run, node->child[0], &of);
    return err < 0 ? err : get_attribute(run, &of, &node->value, false, out);
}

static bool is_number(const struct template_value *value)
{
    return value->kind == VALUE_INT || value->kind == VALUE_BOOL;
}

static int64_t as_number(const struct template_value *value)
{
    return value->kind == VALUE_BOOL ? value->flag : value->number;
}

/* A list, or the characters of a string as one; anything else is not a sequence. */
static int as_sequence(struct template_run *run, const struct template_value *value, struct template_value *list, bool *is_sequence)
{
    *is_sequence = value->kind == VALUE_LIST || value->kind == VALUE_STRING;
    return *is_sequence ? template_iterate(run, value, list) : 0;
}

static int eval_index(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value of, index, list;
    bool is_sequence;
    int err;
    if ((err = eval(run, node->child[0], &of)) < 0 || (err = eval(run, node->child[1], &index)) < 0)
        return err;
    if (index.kind == VALUE_STRING)
        return get_attribute(run, &of, &index, true, out);
    if (of.kind == VALUE_UNDEFINED)
        return undefined(run, &of);
    *out = template_value_undefined("an item", 7);
    if (!is_number(&index) || (err = as_sequence(run, &of, &list, &is_sequence)) < 0 || !is_sequence)
        return err;
    int64_t i = as_number(&index), n = (int64_t)list.list->n;
    if (i >= -n && i < n)
        *out = list.list->items[i < 0 ? i + n : i];
    return 0;
}

/* Python's slice.indices(): a bound that is absent is the end it stands for, and others are cut to [low, high]. */
static int slice_bound(struct template_run *run, const struct template_node *node, int64_t n, int64_t low, int64_t high,
                       int64_t absent, int64_t *out)
{
    struct template_value value = { .kind = VALUE_NONE };
    int err = node ? eval(run, node, &value) : 0;
    if (err < 0)
        return err;
    if (value.kind != VALUE_NONE && !is_number(&value))
        return template_fail(run, "the bounds of a slice must be integers");
    int64_t i = value.kind == VALUE_NONE ? absent : as_number(&value);
    if (value.kind != VALUE_NONE && i < 0)
        i = i < -n ? -1 : i + n;
    *out = MIN(MAX(i, low), high);
    return 0;
}

static int join_characters(struct template_run *run, struct template_value list, struct template_value *out)
{
    size_t n = 0;
    for (size_t i = 0; i < list.list->n; i++)
        n += list.list->items[i].text.n_bytes;
    char *bytes = template_alloc(run, n);
    if (!bytes)
        return ERR_FAILED;
    *out = template_value_text(bytes, n);
    for (size_t i = 0; i < list.list->n; i++) {
        memcpy(bytes, list.list->items[i].text.bytes, list.list->items[i].text.n_bytes);
        bytes += list.list->items[i].text.n_bytes;
    }
    return 0;
}

static int eval_slice(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value of, all, some, step_value = template_value_int(1);
    bool is_sequence;
    int64_t start, stop;
    int err;
    if ((err = eval(run, node->child[0], &of)) < 0 || (node->child[3] && (err = eval(run, node->child[3], &step_value)) < 0))
        return err;
    if (of.kind == VALUE_UNDEFINED)
        return undefined(run, &of);
    if ((err = as_sequence(run, &of, &all, &is_sequence)) < 0)
        return err;
    if (!is_sequence)
        return template_fail(run, "a slice of a value of type %s", template_kind_name(of.kind));
    int64_t n = (int64_t)all.list->n, step = step_value.kind == VALUE_NONE ? 1 : as_number(&step_value);
    if (step == 0 || (step_value.kind != VALUE_NONE && !is_number(&step_value)))
        return template_fail(run, "the step of a slice must be an integer and not 0");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if ((err = slice_bound(run, node->child[1], n, low, high, step > 0 ? low : high, &start)) < 0 ||
        (err = slice_bound(run, node->child[2], n, low, high, step > 0 ? high : low, &stop)) < 0 ||
        (err = template_new_list(run, all.list->tuple, &some)) < 0)
        return err;
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && !err; ) {
        err = template_list_append(run, some, all.list->items[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    if (err < 0 || of.kind == VALUE_LIST) {
        *out = some;
        return err;
    }
    return join_characters(run, some, out);
}

/* ---- operators ---- */

static int bad_operands(struct template_run *run, const char *op, const struct template_value *a, const struct template_value *b)
{
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return undefined(run, a->kind == VALUE_UNDEFINED ? a : b);
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

static int add_texts(struct template_run *run, const struct template_value *a, const struct template_value *b, struct template_value *out)
{
    char *both = template_alloc(run, a->text.n_bytes + b->text.n_bytes);
    if (!both)
        return ERR_FAILED;
    memcpy(both, a->text.bytes, a->text.n_bytes);
    memcpy(both + a->text.n_bytes, b->text.bytes, b->text.n_bytes);
    *out = template_value_text(both, a->text.n_bytes + b->text.n_bytes);
    return 0;
}

static int add_lists(struct template_run *run, const struct template_list *a, const struct template_list *b, struct template_value *out)
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
    uint64_t budget = MAX_WORK - run->work;
    *same = template_value_equal(a, b, &budget);
    run->work = MAX_WORK - budget;
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
    if (is_number(a) && is_number(b)) {
        *result = (as_number(a) > as_number(b)) - (as_number(a) < as_number(b));
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

static int eval_binary(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    static const char *const signs[] = { "+", "-", "*", "//", "%" };
    struct template_value a, b;
    enum template_op op = node->op;
    int err;
    if ((err = eval(run, node->child[0], &a)) < 0 || (err = eval(run, node->child[1], &b)) < 0)
        return err;
    run->line = node->line;
    if (op >= TEMPLATE_EQUAL)
        return template_compare(run, op, &a, &b, out);
    if (op == TEMPLATE_CONCATENATE) {
        if ((err = template_to_text(run, &a, &a)) < 0 || (err = template_to_text(run, &b, &b)) < 0)
            return err;
        return add_texts(run, &a, &b, out);
    }
    if (is_number(&a) && is_number(&b))
        return arithmetic(run, op, as_number(&a), as_number(&b), out);
    if (op == TEMPLATE_ADD && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return add_texts(run, &a, &b, out);
    if (op == TEMPLATE_ADD && a.kind == VALUE_LIST && b.kind == VALUE_LIST && a.list->tuple == b.list->tuple)
        return add_lists(run, a.list, b.list, out);
    if (op == TEMPLATE_MULTIPLY && a.kind == VALUE_STRING && is_number(&b))
        return repeat_text(run, &a, as_number(&b), out);
    if (op == TEMPLATE_MULTIPLY && is_number(&a) && b.kind == VALUE_STRING)
        return repeat_text(run, &b, as_number(&a), out);
    return bad_operands(run, signs[op], &a, &b);
}

/* `and` and `or` give one of their operands, as in Python. */
static int eval_logic(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = eval(run, node->child[0], out);
    if (err < 0 || template_value_is_true(out) == (node->kind == NODE_OR))
        return err;
    return eval(run, node->child[1], out);
}

static int eval_if_else(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = eval(run, node->child[0], out);
    if (err < 0)
        return err;
    if (template_value_is_true(out))
        return eval(run, node->child[1], out);
    if (node->child[2])
        return eval(run, node->child[2], out);
    *out = template_value_undefined("an if without else", 18);
    return 0;
}

static int eval_not(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = eval(run, node->child[0], out);
    if (err == 0)
        *out = template_value_bool(!template_value_is_true(out));
    return err;
}

static int eval_negate(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = eval(run, node->child[0], out);
    if (err < 0)
        return err;
    if (!is_number(out))
        return out->kind == VALUE_UNDEFINED ? undefined(run, out) :
               template_fail(run, "- does not work for %s", template_kind_name(out->kind));
    return arithmetic(run, TEMPLATE_SUBTRACT, 0, as_number(out), out);
}

static int eval_list(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value item;
    int err = template_new_list(run, node->value.kind == VALUE_BOOL && node->value.flag, out);
    for (const struct template_node *n = node->child[0]; n && !err; n = n->next)
        if ((err = eval(run, n, &item)) == 0)
            err = template_list_append(run, *out, item);
    return err;
}

static int eval_map(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value key, item;
    int err = template_spend(run, sizeof(struct template_map));
    *out = template_value_map(&run->arena);
    if (err < 0 || out->kind == VALUE_ABSENT)
        return err < 0 ? err : no_memory();
    for (const struct template_node *n = node->child[0]; n && !err; n = n->next->next)
        if ((err = eval(run, n, &key)) == 0 && (err = eval(run, n->next, &item)) == 0)
            err = map_put(run, *out, &key, item);
    if (node->kind == NODE_NAMESPACE)
        out->kind = VALUE_NAMESPACE;
    return err;
}

static int eval_call(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value arguments[TEMPLATE_MAX_ARGUMENTS] = { 0 };
    size_t n = 0;
    int err = 0;
    for (const struct template_node *argument = node->child[0]; argument && !err; argument = argument->next)
        err = eval(run, argument, &arguments[n++]);
    run->line = node->line;
    return err < 0 ? err : node->builtin->run(run, arguments, out);
}

static int eval(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err;
    run->line = node->line;
    if ((err = template_spend(run, 0)) < 0)
        return err;
    switch (node->kind) {
    case NODE_LITERAL:   *out = node->value; return 0;
    case NODE_NAME:      return eval_name(run, node, out);
    case NODE_LIST:      return eval_list(run, node, out);
    case NODE_MAP:
    case NODE_NAMESPACE: return eval_map(run, node, out);
    case NODE_ATTRIBUTE: return eval_attribute(run, node, out);
    case NODE_INDEX:     return eval_index(run, node, out);
    case NODE_SLICE:     return eval_slice(run, node, out);
    case NODE_NOT:       return eval_not(run, node, out);
    case NODE_NEGATE:    return eval_negate(run, node, out);
    case NODE_AND:
    case NODE_OR:        return eval_logic(run, node, out);
    case NODE_IF_ELSE:   return eval_if_else(run, node, out);
    case NODE_BINARY:    return eval_binary(run, node, out);
    case NODE_CALL:      return eval_call(run, node, out);
    default:             break;
    }
    return template_fail(run, "a statement where a value belongs");
}

/* ---- statements ---- */

static int write_text(struct template_run *run, const struct template_value *text)
{
    if (run->out->size - run->out_start + text->text.n_bytes > TEMPLATE_MAX_OUTPUT)
        return template_fail(run, "the prompt is longer than %zu MB", TEMPLATE_MAX_OUTPUT >> 20);
    buffer_add(run->out, text->text.bytes, text->text.n_bytes);
    return run->out->failed ? no_memory() : 0;
}

static int run_print(struct template_run *run, const struct template_node *node)
{
    struct template_value value;
    int err;
    if ((err = eval(run, node->child[0], &value)) < 0 || (err = template_to_text(run, &value, &value)) < 0)
        return err;
    return write_text(run, &value);
}

static int set_attribute(struct template_run *run, const struct template_node *target, struct template_value value)
{
    struct template_value of;
    int err = eval(run, target->child[0], &of);
    if (err < 0)
        return err;
    if (of.kind != VALUE_NAMESPACE)
        return template_fail(run, "only a namespace takes new attributes");
    return map_put(run, of, &target->value, value);
}

static int assign(struct template_run *run, const struct template_node *target, struct template_value value)
{
    struct template_value items;
    size_t i = 0, n = 0;
    int err;
    if (target->kind == NODE_NAME)
        return map_put(run, run->scope->variables, &target->value, value);
    if (target->kind == NODE_ATTRIBUTE)
        return set_attribute(run, target, value);
    if ((err = template_iterate(run, &value, &items)) < 0)
        return err;
    for (const struct template_node *name = target->child[0]; name; name = name->next)
        n++;
    if (n != items.list->n)
        return template_fail(run, "%zu values for %zu names", items.list->n, n);
    for (const struct template_node *name = target->child[0]; name && !err; name = name->next)
        err = assign(run, name, items.list->items[i++]);
    return err;
}

static int run_set(struct template_run *run, const struct template_node *node)
{
    struct template_value value;
    int err = eval(run, node->child[1], &value);
    return err < 0 ? err : assign(run, node->child[0], value);
}

static int run_if(struct template_run *run, const struct template_node *node)
{
    struct template_value condition;
    int err = eval(run, node->child[0], &condition);
    return err < 0 ? err : run_body(run, node->child[template_value_is_true(&condition) ? 1 : 2]);
}

static int scope_enter(struct template_run *run, struct template_scope *scope)
{
    *scope = (struct template_scope){ template_value_map(&run->arena), run->scope };
    if (scope->variables.kind == VALUE_ABSENT)
        return no_memory();
    run->scope = scope;
    return template_spend(run, sizeof(struct template_map));
}

/* The items for which the condition of a `for` holds; it sees the target but no loop variable. */
static int filter_items(struct template_run *run, const struct template_node *node, struct template_value *list)
{
    struct template_value some, condition;
    int err = template_new_list(run, false, &some);
    for (size_t i = 0; i < list->list->n && !err; i++)
        if ((err = assign(run, node->child[0], list->list->items[i])) == 0 &&
            (err = eval(run, node->child[2], &condition)) == 0 && template_value_is_true(&condition))
            err = template_list_append(run, some, list->list->items[i]);
    *list = some;
    return err;
}

/* One pass sees nothing of what another has set. */
static int run_pass(struct template_run *run, const struct template_node *node, struct template_loop *loop)
{
    static const struct template_value name = { .kind = VALUE_STRING, .text = { "loop", 4 } };
    struct template_value self = { .kind = VALUE_LOOP, .loop = loop };
    int err;
    run->scope->variables.map->n = 0;
    if ((err = map_put(run, run->scope->variables, &name, self)) < 0 ||
        (err = assign(run, node->child[0], loop->list->items[loop->index0])) < 0)
        return err;
    return run_body(run, node->child[3]);
}

static int run_for(struct template_run *run, const struct template_node *node)
{
    struct template_scope scope, *outer = run->scope;
    struct template_value items;
    struct template_loop *loop = arena_new(&run->arena, struct template_loop);  /* a namespace may keep it */
    int err;
    if (!loop)
        return no_memory();
    if ((err = eval(run, node->child[1], &items)) < 0 || (err = template_iterate(run, &items, &items)) < 0 ||
        (err = scope_enter(run, &scope)) < 0 || (node->child[2] && (err = filter_items(run, node, &items)) < 0))
        goto done;
    loop->list = items.list;
    scope.variables.map->n = 0;
    if (!items.list->n)
        err = run_body(run, node->child[4]);
    for (; loop->index0 < items.list->n && err >= 0 && err != FLOW_BREAK; loop->index0++)
        err = run_pass(run, node, loop);
    loop->index0 -= loop->index0 == items.list->n && items.list->n;
    if (items.list->n && err > 0)
        err = 0;                                /* a break or continue of this loop's own */
done:
    run->scope = outer;
    return err;
}

static int run_statement(struct template_run *run, const struct template_node *node)
{
    int err;
    run->line = node->line;
    if ((err = template_spend(run, 0)) < 0)
        return err;
    switch (node->kind) {
    case NODE_DATA:     return write_text(run, &node->value);
    case NODE_PRINT:    return run_print(run, node);
    case NODE_IF:       return run_if(run, node);
    case NODE_FOR:      return run_for(run, node);
    case NODE_SET:      return run_set(run, node);
    case NODE_BREAK:    return FLOW_BREAK;
    case NODE_CONTINUE: return FLOW_CONTINUE;
    default:            return template_fail(run, "a value where a statement belongs");
    }
}

static int run_body(struct template_run *run, const struct template_node *first)
{
    int flow = FLOW_ON;
    for (const struct template_node *node = first; node && flow == FLOW_ON; node = node->next)
        flow = run_statement(run, node);
    return flow;
}

int template_render(const struct template *template, struct template_value context, struct buffer *out)
{
    struct template_scope outer = { context, NULL }, scope;
    struct template_run run = { .out = out, .out_start = out->size, .scope = &outer };
    int err = scope_enter(&run, &scope);
    if (err == 0)
        err = run_body(&run, template->first);
    if (err < 0 && out->bytes) {
        out->size = run.out_start;              /* all of a prompt or nothing of it */
        out->bytes[out->size] = 0;
    }
    arena_close(&run.arena);
    return err;
}
