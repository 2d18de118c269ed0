/* template_eval.c: the value of an expression.
 *
 * What Python would raise is an error of the rendering; what is undefined is a value that prints as nothing, as in
 * jinja2, and becomes an error where it is used for more. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"
#include "text/unicode.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int template_fail(struct template_run *run, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(ERR_FAILED, "chat template, line %u: %s", run->line, what);
}

int template_no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory to render a chat template");
}

int template_spend(struct template_run *run, size_t n_bytes)
{
    if (n_bytes > TEMPLATE_MAX_WORK || (run->work += TEMPLATE_STEP_COST + n_bytes) > TEMPLATE_MAX_WORK)
        return template_fail(run, "takes too many steps or too much memory");
    return 0;
}

char *template_alloc(struct template_run *run, size_t n_bytes)
{
    char *bytes = NULL;
    if (template_spend(run, n_bytes) == 0 && !(bytes = arena_alloc(&run->arena, n_bytes + 1)))
        template_no_memory();
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

int template_new_list(struct template_run *run, enum template_list_type type, struct template_value *out)
{
    int err = template_spend(run, sizeof(struct template_list));
    *out = template_value_list(&run->arena, type);
    return err < 0 ? err : out->kind == VALUE_ABSENT ? template_no_memory() : 0;
}

int template_new_map(struct template_run *run, struct template_value *out)
{
    int err = template_spend(run, sizeof(struct template_map));
    *out = template_value_map(&run->arena);
    return err < 0 ? err : out->kind == VALUE_ABSENT ? template_no_memory() : 0;
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
    return template_list_add(&run->arena, list, item) ? 0 : template_no_memory();
}

int template_map_put(struct template_run *run, struct template_value map, const struct template_value *key,
                     struct template_value item)
{
    int err = template_spend(run, ITEM_COST + 8 * map.map->n);
    if (err < 0)
        return err;
    if (key->kind != VALUE_STRING && key->kind != VALUE_NONE && !template_is_number(key))
        return template_fail(run, "a dict with a key of type %s is not supported", template_kind_name(key->kind));
    if (template_value_depth(&item) >= TEMPLATE_MAX_DEPTH)
        return template_fail(run, "a dict nested more than %d deep", TEMPLATE_MAX_DEPTH);
    return template_map_set_value(&run->arena, map, *key, item) ? 0 : template_no_memory();
}

int template_take_text(struct template_run *run, struct buffer *built, int err, struct template_value *out)
{
    if (err == 0)
        err = built->failed ? template_no_memory() : template_new_text(run, built->bytes, built->size, out);
    buffer_release(built);
    return err;
}

static int use_up(struct template_run *run, struct template_list *of, struct template_value *list)
{
    int err = template_new_list(run, LIST_LIST, list);
    for (; of->at < of->n && !err; of->at++)
        err = template_list_append(run, *list, of->items[of->at]);
    return err;
}

int template_iterate(struct template_run *run, const struct template_value *value, struct template_value *list)
{
    const struct template_value of = *value;            /* `list` may be the same place */
    int err = 0;
    if (of.kind == VALUE_LIST) {
        *list = of;
        return of.list->type == LIST_ITERATOR ? use_up(run, of.list, list) : 0;
    }
    if (of.kind != VALUE_MAP && of.kind != VALUE_STRING && of.kind != VALUE_UNDEFINED)
        return template_fail(run, "a value of type %s is not iterable", template_kind_name(of.kind));
    err = template_new_list(run, LIST_LIST, list);
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

int template_length(struct template_run *run, const struct template_value *value, size_t *n)
{
    *n = 0;
    switch (value->kind) {
    case VALUE_UNDEFINED: return 0;
    case VALUE_MAP:       *n = value->map->n; return 0;
    case VALUE_LOOP:      *n = value->loop->list->n; return 0;
    case VALUE_LIST:      *n = value->list->n; break;
    case VALUE_STRING:
        for (size_t i = 0; i < value->text.n_bytes; ++*n) {
            uint32_t code;
            i += utf8_decode(value->text.bytes + i, value->text.n_bytes - i, &code);
        }
        return template_spend(run, value->text.n_bytes);
    default:              break;
    }
    if (value->kind == VALUE_LIST && value->list->type != LIST_ITERATOR)
        return 0;
    return template_fail(run, "a value of type %s has no length", template_kind_name(value->kind));
}

/* ---- names and attributes ---- */

int template_undefined(struct template_run *run, const struct template_value *value)
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

static int new_function(struct template_run *run, const struct template_builtin *builtin, const struct template_value *self,
                        struct template_value *out)
{
    struct template_function *function = arena_new(&run->arena, struct template_function);
    if (!function)
        return template_no_memory();
    function->builtin = builtin;
    function->self = self ? *self : (struct template_value){ .kind = VALUE_ABSENT };
    *out = (struct template_value){ .kind = VALUE_FUNCTION, .function = function };
    return template_spend(run, sizeof *function);
}

static int eval_name(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    const struct template_value *name = &node->value, *found = find_variable(run, name);
    const struct template_builtin *function;
    *out = found ? *found : template_value_undefined(name->text.bytes, name->text.n_bytes);
    if (found || !(function = template_builtin_find(TEMPLATE_FUNCTION, name->text.bytes, name->text.n_bytes)))
        return 0;
    return new_function(run, function, NULL, out);
}

static void loop_attribute(const struct template_loop *loop, const struct template_value *name, struct template_value *out)
{
    size_t i = loop->index0, n = loop->list->n;
    const struct { const char *name; struct template_value value; } attributes[] = {
        { "index", template_value_int((int64_t)i + 1) },        { "index0", template_value_int((int64_t)i) },
        { "revindex", template_value_int((int64_t)(n - i)) },   { "revindex0", template_value_int((int64_t)(n - i) - 1) },
        { "first", template_value_bool(i == 0) },               { "last", template_value_bool(i + 1 == n) },
        { "length", template_value_int((int64_t)n) },
        { "depth", template_value_int(loop->depth0 + 1) },      { "depth0", template_value_int(loop->depth0) },
        { "previtem", i > 0 ? loop->list->items[i - 1] : *out },
        { "nextitem", i + 1 < n ? loop->list->items[i + 1] : *out },
    };
    for (size_t k = 0; k < COUNT_OF(attributes); k++)
        if (template_text_equal(name, attributes[k].name)) {
            *out = attributes[k].value;
            return;
        }
}

/* A method goes before a key, as getattr() does in Python; with brackets the key goes first.  The sandbox shows nothing
 * whose name begins with "_". */
static int get_attribute(struct template_run *run, const struct template_value *of_value, const struct template_value *name,
                         bool brackets, struct template_value *out)
{
    const struct template_value of = *of_value, *found = NULL;      /* `out` may be the same place */
    const struct template_builtin *method = template_find_method(&of, name->text.bytes, name->text.n_bytes);
    bool keys = of.kind == VALUE_MAP || of.kind == VALUE_NAMESPACE;
    *out = template_value_undefined(name->text.bytes, name->text.n_bytes);
    if (of.kind == VALUE_UNDEFINED)
        return template_undefined(run, &of);
    if (of.kind == VALUE_LOOP)
        loop_attribute(of.loop, name, out);
    if (keys)
        found = template_map_find(of.map, name->text.bytes, name->text.n_bytes);
    if ((!found || !brackets) && template_is_unsafe_name(&of, name->text.bytes, name->text.n_bytes))
        return 0;
    if (method && (!found || !brackets))
        return new_function(run, method, &of, out);
    if ((!found || !brackets) && template_is_method_name(&of, name->text.bytes, name->text.n_bytes))
        return template_fail(run, "the attribute \"%.*s\" of a %s is not supported",
                             (int)MIN(name->text.n_bytes, (size_t)40), name->text.bytes, template_kind_name(of.kind));
    if (of.kind == VALUE_MACRO && template_text_equal(name, "name"))
        *out = of.macro->node->value;
    if (found)
        *out = *found;
    return keys ? template_spend(run, 8 * of.map->n) : 0;
}

int template_get_attribute(struct template_run *run, const struct template_value *of, const struct template_value *name,
                           struct template_value *out)
{
    return get_attribute(run, of, name, false, out);
}

static int eval_attribute(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value of;
    int err = template_eval(run, node->child[0], &of);
    run->line = node->line;
    return err < 0 ? err : get_attribute(run, &of, &node->value, false, out);
}

/* A list, or the characters of a string as one; anything else is not a sequence. */
static int as_sequence(struct template_run *run, const struct template_value *value, struct template_value *list, bool *is_sequence)
{
    *is_sequence = (value->kind == VALUE_LIST && value->list->type <= LIST_RANGE) || value->kind == VALUE_STRING;
    return *is_sequence ? template_iterate(run, value, list) : 0;
}

int template_get_item(struct template_run *run, const struct template_value *of_value, const struct template_value *index_value,
                      struct template_value *out)
{
    const struct template_value of = *of_value, index = *index_value;
    struct template_value list, *found;
    bool is_sequence;
    int err = 0;
    if (index.kind == VALUE_STRING)
        return get_attribute(run, &of, &index, true, out);
    if (of.kind == VALUE_UNDEFINED)
        return template_undefined(run, &of);
    *out = template_value_undefined("an item", 7);
    if (of.kind == VALUE_MAP && index.kind != VALUE_LIST) {
        if ((found = template_map_find_value(of.map, &index)))
            *out = *found;
        return template_spend(run, 8 * of.map->n);
    }
    if (!template_is_integer(&index) || (err = as_sequence(run, &of, &list, &is_sequence)) < 0 || !is_sequence)
        return template_is_integer(&index) && err < 0 ? err : 0;
    int64_t i = template_as_integer(&index), n = (int64_t)list.list->n;
    if (i >= -n && i < n)
        *out = list.list->items[i < 0 ? i + n : i];
    return 0;
}

static int eval_index(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value of, index;
    int err;
    if ((err = template_eval(run, node->child[0], &of)) < 0 || (err = template_eval(run, node->child[1], &index)) < 0)
        return err;
    run->line = node->line;
    return template_get_item(run, &of, &index, out);
}

/* Python's slice.indices(): a bound that is absent is the end it stands for, and others are cut to [low, high]. */
static int slice_bound(struct template_run *run, const struct template_node *node, int64_t n, int64_t low, int64_t high,
                       int64_t absent, int64_t *out)
{
    struct template_value value = { .kind = VALUE_NONE };
    int err = node ? template_eval(run, node, &value) : 0;
    if (err < 0)
        return err;
    if (value.kind != VALUE_NONE && !template_is_integer(&value))
        return template_fail(run, "the bounds of a slice must be integers");
    int64_t i = value.kind == VALUE_NONE ? absent : template_as_integer(&value);
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
    if ((err = template_eval(run, node->child[0], &of)) < 0 ||
        (node->child[3] && (err = template_eval(run, node->child[3], &step_value)) < 0))
        return err;
    if (of.kind == VALUE_UNDEFINED)
        return template_undefined(run, &of);
    if ((err = as_sequence(run, &of, &all, &is_sequence)) < 0)
        return err;
    if (!is_sequence)
        return template_fail(run, "a slice of a value of type %s", template_kind_name(of.kind));
    int64_t n = (int64_t)all.list->n, step = step_value.kind == VALUE_NONE ? 1 : template_as_integer(&step_value);
    if (step == 0 || (step_value.kind != VALUE_NONE && !template_is_integer(&step_value)))
        return template_fail(run, "the step of a slice must be an integer and not 0");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if ((err = slice_bound(run, node->child[1], n, low, high, step > 0 ? low : high, &start)) < 0 ||
        (err = slice_bound(run, node->child[2], n, low, high, step > 0 ? high : low, &stop)) < 0 ||
        (err = template_new_list(run, all.list->type, &some)) < 0)
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

static int eval_binary(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value a, b;
    int err;
    if ((err = template_eval(run, node->child[0], &a)) < 0 || (err = template_eval(run, node->child[1], &b)) < 0)
        return err;
    run->line = node->line;
    return template_operate(run, node->op, &a, &b, out);
}

/* `and` and `or` give one of their operands, as in Python. */
static int eval_logic(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = template_eval(run, node->child[0], out);
    if (err < 0 || template_value_is_true(out) == (node->kind == NODE_OR))
        return err;
    return template_eval(run, node->child[1], out);
}

static int eval_if_else(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = template_eval(run, node->child[0], out);
    if (err < 0)
        return err;
    if (template_value_is_true(out))
        return template_eval(run, node->child[1], out);
    if (node->child[2])
        return template_eval(run, node->child[2], out);
    *out = template_value_undefined("an if without else", 18);
    return 0;
}

static int eval_not(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = template_eval(run, node->child[0], out);
    if (err == 0)
        *out = template_value_bool(!template_value_is_true(out));
    return err;
}

static int eval_sign(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err = template_eval(run, node->child[0], out);
    if (err < 0)
        return err;
    if (!template_is_number(out))
        return out->kind == VALUE_UNDEFINED ? template_undefined(run, out) :
               template_fail(run, "a sign does not work for %s", template_kind_name(out->kind));
    if (out->kind == VALUE_FLOAT)
        *out = template_value_float(node->value.number < 0 ? -out->real : out->real);
    else
        return template_operate(run, TEMPLATE_MULTIPLY, &node->value, out, out);
    return 0;
}

/* Stops where one does not hold, and does not evaluate what follows. */
static int eval_compare(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value left, right;
    int err = template_eval(run, node->child[0], &left);
    for (const struct template_node *n = node->child[1]; n && !err; n = n->next) {
        if ((err = template_eval(run, n->child[0], &right)) < 0)
            break;
        run->line = node->line;
        err = template_compare(run, n->op, &left, &right, out);
        if (!err && !out->flag)
            break;
        left = right;
    }
    return err;
}

static int eval_list(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value item;
    int err = template_new_list(run, node->value.kind == VALUE_BOOL && node->value.flag ? LIST_TUPLE : LIST_LIST, out);
    for (const struct template_node *n = node->child[0]; n && !err; n = n->next)
        if ((err = template_eval(run, n, &item)) == 0)
            err = template_list_append(run, *out, item);
    return err;
}

static int eval_map(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value key, item;
    int err = template_new_map(run, out);
    for (const struct template_node *n = node->child[0]; n && !err; n = n->next->next)
        if ((err = template_eval(run, n, &key)) == 0 && (err = template_eval(run, n->next, &item)) == 0)
            err = template_map_put(run, *out, &key, item);
    return err;
}

static int eval_filter(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_value subject;
    int err = 0;
    if (node->child[0])
        err = template_eval(run, node->child[0], &subject);
    else if (run->captured)
        subject = *run->captured;
    else
        err = template_fail(run, "a filter of nothing");
    return err < 0 ? err : template_apply(run, node, &subject, out);
}

static int eval_call(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_arguments arguments;
    struct template_value callee;
    int err;
    if ((err = template_eval(run, node->child[0], &callee)) < 0 || (err = template_gather(run, node->child[1], &arguments)) < 0)
        return err;
    run->line = node->line;
    return template_call(run, &callee, &arguments, out);
}

static int eval_node(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    switch (node->kind) {
    case NODE_LITERAL:   *out = node->value; return 0;
    case NODE_NAME:      return eval_name(run, node, out);
    case NODE_LIST:      return eval_list(run, node, out);
    case NODE_MAP:       return eval_map(run, node, out);
    case NODE_ATTRIBUTE: return eval_attribute(run, node, out);
    case NODE_INDEX:     return eval_index(run, node, out);
    case NODE_SLICE:     return eval_slice(run, node, out);
    case NODE_NOT:       return eval_not(run, node, out);
    case NODE_SIGN:      return eval_sign(run, node, out);
    case NODE_AND:
    case NODE_OR:        return eval_logic(run, node, out);
    case NODE_IF_ELSE:   return eval_if_else(run, node, out);
    case NODE_BINARY:    return eval_binary(run, node, out);
    case NODE_COMPARE:   return eval_compare(run, node, out);
    case NODE_FILTER:    return eval_filter(run, node, out);
    case NODE_CALL:      return eval_call(run, node, out);
    default:             break;
    }
    return template_fail(run, "a statement where a value belongs");
}

int template_eval(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    int err;
    run->line = node->line;
    if ((err = template_spend(run, 0)) < 0)
        return err;
    if (run->depth >= TEMPLATE_MAX_RECURSION)
        return template_fail(run, "macros or loops call themselves too deep");
    run->depth++;
    err = eval_node(run, node, out);
    run->depth--;
    return err;
}
